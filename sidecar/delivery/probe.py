"""Whether the application can be reached: by a connection, or by its health URL.

Owned by a delivery, on the event loop. One probe is one task, bounded in time.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Final

from sidecar.core.target import Target
from sidecar.delivery.connection import Connection
from sidecar.delivery.opening import describe, open_transport
from sidecar.model import Answer, Result


class Probe:
    """Tries the target's address, or GETs the health URL and wants a 2xx."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        target: Target,
        health: Target | None,
        seconds: float,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._loop: Final = loop
        self._to: Final = health or target
        self._by_health: Final = health is not None
        self._seconds: Final = seconds
        self._tls: Final = tls
        self._head: Final = (
            f"GET {self._to.path} HTTP/1.1\r\nHost: {self._to.authority}\r\n"
            "Connection: close\r\n\r\n"
        ).encode("ascii")
        self._running: Final[set[asyncio.Task[None]]] = set()

    def start(self, done: Callable[[str | None], None]) -> None:
        """done(None) if it can be reached, else done(reason)."""
        task = self._loop.create_task(self._run(done))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    def cancel(self) -> None:
        """Nobody is called any more."""
        for task in self._running:
            task.cancel()

    async def _run(self, done: Callable[[str | None], None]) -> None:
        try:
            async with asyncio.timeout(self._seconds):
                reason = await (self._ask() if self._by_health else self._connect())
        except TimeoutError:
            reason = f"no answer within {self._seconds:g} s"
        except OSError as error:
            reason = describe(error)
        done(reason)

    async def _connect(self) -> None:
        transport = await open_transport(self._loop, self._to, asyncio.Protocol, self._tls)
        transport.abort()

    async def _ask(self) -> str | None:
        answered: asyncio.Future[Result] = self._loop.create_future()

        def done(result: Result) -> None:
            if not answered.done():
                answered.set_result(result)

        connection = Connection(self._loop, self._open, lambda _: None)
        connection.request(self._head, b"", done)
        try:
            result = await answered
        finally:
            connection.abort()
        if not isinstance(result, Answer):
            return result.detail
        return None if 200 <= result.status < 300 else f"the health URL answered {result.status}"

    async def _open(self, protocol: Connection) -> None:
        await open_transport(self._loop, self._to, lambda: protocol, self._tls)
