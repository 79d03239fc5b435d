"""What the application knows the sidecar by, and its change while the sidecar runs.

Owned by a delivery, on the event loop. Files are read again every REREAD_SECONDS, which bounds how
long a request carries what was rotated away; what cannot be read or makes no sense leaves the
last that did in use. A request costs nothing for it: lines are built when they change.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from sidecar.core.credentials import bearer_value, header_line, signing_keys
from sidecar.delivery.request import RequestEncoder
from sidecar.delivery.signature import Signer
from sidecar.logs import WithFields
from sidecar.ports import Delivery, Slot
from sidecar.settings import Secret

log = logging.getLogger(__name__)

REREAD_SECONDS: Final = 10.0


Read = Callable[[Secret], str]


def _known(secret: Secret) -> str:
    return secret.known


def _anew(secret: Secret) -> str:
    return secret.now()


@dataclass(frozen=True, slots=True)
class Credentials:
    headers: Mapping[str, Secret] = field(default_factory=dict)
    bearer: Secret | None = None
    signature: Secret | None = None

    def lines(self, read: Read = _known) -> bytes:
        """The lines that are the same for every request. Raises ValueError."""
        lines = [header_line(name, read(secret)) for name, secret in self.headers.items()]
        if self.bearer is not None:
            lines.append(header_line("Authorization", bearer_value(read(self.bearer))))
        return b"".join(lines)

    def keys(self, read: Read = _known) -> tuple[bytes, ...]:
        """The signing keys; none if requests are not signed. Raises ValueError."""
        return () if self.signature is None else signing_keys(read(self.signature))

    def signer(self, wall_clock: Callable[[], float]) -> Signer | None:
        return None if self.signature is None else Signer(self.keys(), wall_clock)

    @property
    def may_change(self) -> bool:
        given = [*self.headers.values(), self.bearer, self.signature]
        return any(secret is not None and secret.file is not None for secret in given)


class Refreshed:
    """Implements ports.Delivery: another one, whose credentials are kept up to date."""

    def __init__(
        self,
        delivery: Delivery,
        loop: asyncio.AbstractEventLoop,
        credentials: Credentials,
        encoder: RequestEncoder,
        signer: Signer | None,
        route: str = "",
    ) -> None:
        self._log: Final = WithFields(log, {"route": route})
        self._delivery: Final = delivery
        self._loop: Final = loop
        self._credentials: Final = credentials
        self._encoder: Final = encoder
        self._signer: Final = signer
        self._trouble = ""
        self._timer = loop.call_later(REREAD_SECONDS, self._refresh)

    def open_slot(self) -> Slot:
        return self._delivery.open_slot()

    def probe(self, done: Callable[[str | None], None]) -> None:
        self._delivery.probe(done)

    async def close(self) -> None:
        self._timer.cancel()
        await self._delivery.close()

    def _refresh(self) -> None:
        self._timer = self._loop.call_later(REREAD_SECONDS, self._refresh)
        try:
            lines, keys = self._credentials.lines(_anew), self._credentials.keys(_anew)
        except ValueError as error:
            if str(error) != self._trouble:
                self._log.warning(
                    "the credentials for the application stay as they were: %s", error
                )
                self._trouble = str(error)
            return
        self._trouble = ""
        changed = self._encoder.set_fixed_lines(lines)
        if self._signer is not None and self._signer.keys != keys:
            self._signer.keys = keys
            changed = True
        if changed:
            self._log.info("the credentials for the application have changed")
