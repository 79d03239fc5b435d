"""Who may see payloads and change anything: whoever has the token, or comes by the Unix socket.

The app shares the pod's loopback, and may be tricked into sending requests there: an address proves
nothing. A token that is in a file is read from it each time, so that it may be changed without a
restart.
"""

from __future__ import annotations

import hmac
import logging
import os
import re
from pathlib import Path
from typing import Annotated, Final

from fastapi import Depends, HTTPException, Request
from starlette.types import Scope

from sidecar.logs import RateLimited
from sidecar.settings import AdminSettings

log = logging.getLogger(__name__)

BY_SOCKET: Final = "the Unix socket"
_TOKEN: Final = re.compile(r"[!-~]+")
_TOKEN_BYTES: Final = 16_384  # more than a request could bring
_CHALLENGE: Final = {"www-authenticate": 'Bearer realm="sidecar"'}


def is_by_socket(scope: Scope) -> bool:
    """Whether the request came through the Unix socket, which only the sidecar's user can open."""
    server = scope.get("server")
    return server is not None and server[1] is None


class Access:
    """The token of these settings. None: there is no way in but the socket."""

    def __init__(self, settings: AdminSettings) -> None:
        self._file = settings.token_file
        self._token = settings.token
        self._socket = settings.socket
        self._repeating = RateLimited(log)

    def check(self, request: Request) -> str:
        """Who asks; raises HTTPException 401 or 403."""
        if is_by_socket(request.scope):
            return BY_SOCKET
        token = self._read(self._file) if self._file is not None else self._given()
        if token is None:
            raise HTTPException(403, self._no_token())
        who = "an unknown address" if request.client is None else request.client.host
        scheme, _, told = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            raise HTTPException(
                401, "this needs Authorization: Bearer with admin.token", headers=_CHALLENGE
            )
        # As bytes: text that is not ASCII cannot be compared in constant time.
        if not hmac.compare_digest(told.strip().encode("latin-1"), token.encode()):
            self._repeating.limited(
                ("token", who), logging.WARNING, "a wrong token was sent from %s", who
            )
            raise HTTPException(401, "the token is not the right one", headers=_CHALLENGE)
        return who

    def _given(self) -> str | None:
        return None if self._token is None else self._token.get_secret_value()

    def _no_token(self) -> str:
        if self._file is not None:
            return "admin.token_file holds no token at this moment; write one there"
        way = f", or use {self._socket}" if self._socket is not None else ""
        return (
            "no token is configured, so this is not open over TCP: set SIDECAR_ADMIN__TOKEN or"
            f" admin.token_file{way}"
        )

    def _read(self, file: Path) -> str | None:
        try:
            token = _beginning(file, _TOKEN_BYTES + 1).decode().strip()
        except (OSError, UnicodeDecodeError) as error:
            self._repeating.limited(
                "file", logging.WARNING, "admin.token_file: cannot read %s: %s", file, error
            )
            return None
        return token if _TOKEN.fullmatch(token) and len(token) <= _TOKEN_BYTES else None


def _beginning(file: Path, size: int) -> bytes:
    """Without a wait, whatever lies there: this is read on the loop."""
    opened = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        return os.read(opened, size)
    finally:
        os.close(opened)


async def _allowed(request: Request) -> str:
    access: Access = request.app.state.access
    return access.check(request)


# Who asks, once it is certain that they may.
Allowed = Annotated[str, Depends(_allowed)]
