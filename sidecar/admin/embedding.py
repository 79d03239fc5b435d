"""uvicorn inside a loop that belongs to somebody else."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator

import uvicorn

from sidecar.admin.app import AdminApp


class EmbeddedServer(uvicorn.Server):
    """Leaves the signals alone, and says when it listens."""

    def __init__(self, app: AdminApp) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http="httptools",
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

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listening.set()
