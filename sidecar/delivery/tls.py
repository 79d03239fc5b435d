"""How an https target is verified, and how the sidecar shows who it is."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """Files are PEM. Reading them raises OSError (ssl.SSLError for what is not PEM)."""

    ca_file: Path | None = None  # None: the system's authorities
    cert_file: Path | None = None
    key_file: Path | None = None
    verify: bool = True

    def context(self) -> ssl.SSLContext:
        """A new context that offers HTTP/1.1."""
        context = ssl.create_default_context(cafile=self.ca_file)
        context.set_alpn_protocols(["http/1.1"])
        if self.cert_file is not None:
            context.load_cert_chain(self.cert_file, self.key_file)
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context
