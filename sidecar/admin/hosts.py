"""Which Host and Origin headers are answered: the guard against pages of others in a browser.

A browser that was led here by a foreign name says that name. Addresses, localhost and configured
names are answered; so is a request without a Host, which no browser sends, and everything that
comes through the Unix socket, which no browser opens.

A page that was not served from here says so in Origin, with everything that could change something.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable

from starlette.types import ASGIApp, Receive, Scope, Send

from sidecar.admin.access import is_by_socket
from sidecar.admin.problems import problem_response

_SAFE = ("GET", "HEAD", "OPTIONS")
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
        if is_by_socket(scope):
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


class OriginCheck:
    """ASGI middleware: whatever may change something comes from no page, or from one of ours."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] not in _SAFE and not _from_here(scope):
            response = problem_response(403, "a page of another origin may change nothing")
            await response(scope, receive, send)
        else:
            await self._app(scope, receive, send)


def _from_here(scope: Scope) -> bool:
    headers = scope["headers"]
    hosts = [value.lower() for name, value in headers if name == b"host"]
    origins = [value.lower() for name, value in headers if name == b"origin"]
    return all(
        origin in (b"http://" + host, b"https://" + host)
        for origin in origins
        for host in hosts or [b""]
    )
