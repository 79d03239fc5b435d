"""uvicorn inside a loop that belongs to somebody else."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator

import uvicorn

from sidecar.admin.app import AdminApp
from sidecar.admin.connections import BoundedProtocol

_DATE_SECONDS = 1.0  # how long a Date header is used


class EmbeddedServer(uvicorn.Server):
    """Leaves the signals alone, says when it listens, and sleeps while nobody asks."""

    def __init__(self, app: AdminApp) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=BoundedProtocol,
                ws="none",
                lifespan="off",
                log_config=None,
                log_level="critical",
                access_log=False,
                proxy_headers=False,
                server_header=False,
                headers=[("cache-control", "no-store")],
                # Who is not done a moment after the stop is cut off.
                timeout_graceful_shutdown=0,
            )
        )
        self.listening = asyncio.Event()
        self._stop = asyncio.Event()

    def stop(self) -> None:
        self.should_exit = True
        self._stop.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def main_loop(self) -> None:
        # uvicorn's own looks ten times a second whether it is to stop: 2 ms of CPU each second.
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_DATE_SECONDS):
                    await self._stop.wait()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listening.set()
