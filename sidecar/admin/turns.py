"""How much of the loop the admin surface may have: who asks too often waits.

The loop belongs to the dispatch. Beyond a burst, requests by TCP begin EVERY_SECONDS apart, whoever
sends them; a queue of more than LONGEST_SECONDS is answered 429. Probes and those who wait for a
drain cost next to nothing and never wait, nor does what comes through the Unix socket.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from sidecar.admin.access import is_by_socket
from sidecar.admin.problems import problem_response

EVERY_SECONDS: Final = 0.02
BURST: Final = 100
LONGEST_SECONDS: Final = 1.0

_FREE: Final = frozenset({"/livez", "/readyz", "/startupz", "/v1/drained"})


class Turns:
    """ASGI middleware."""

    def __init__(
        self,
        app: ASGIApp,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._app = app
        self._clock = clock
        self._sleep = sleep
        self._next = 0.0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not is_by_socket(scope) and scope["path"] not in _FREE:
            now = self._clock()
            turn = max(self._next, now - BURST * EVERY_SECONDS)
            if turn - now > LONGEST_SECONDS:
                response = problem_response(429, "too many requests: ask less often")
                response.headers["retry-after"] = "1"
                await response(scope, receive, send)
                return
            self._next = turn + EVERY_SECONDS
            if turn > now:
                await self._sleep(turn - now)
        await self._app(scope, receive, send)
