"""Which Host headers are answered: the guard against pages that rebind a name of their own.

A browser that was led here by a foreign name says that name. Addresses, localhost and configured
names are answered; so is a request without a Host, which no browser sends, and everything that
comes through the Unix socket, which no browser opens.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable

from starlette.types import ASGIApp, Receive, Scope, Send

from sidecar.admin.problems import problem_response

_HOST = re.compile(r"(\[[^\]]*\]|[^:]*)(?::\d*)?", re.ASCII)


class HostCheck:
    """ASGI middleware; names are compared without case."""

    def __init__(self, app: ASGIApp, names: Iterable[str]) -> None:
        self._app = app
        self._names = {"localhost", *(name.lower().rstrip(".") for name in names)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not self._answered(scope):
            response = problem_response(421, "this name is not one of the sidecar's own")
            await response(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _answered(self, scope: Scope) -> bool:
        server = scope.get("server")
        if server is not None and server[1] is None:
            return True
        hosts = [value for name, value in scope["headers"] if name == b"host"]
        return len(hosts) < 2 and all(self._is_own(host.decode("latin-1")) for host in hosts)

    def _is_own(self, host: str) -> bool:
        match = _HOST.fullmatch(host)
        if match is None:
            return False
        name = match[1].lower().rstrip(".")
        try:
            ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
        except ValueError:
            return name in self._names
        return True
