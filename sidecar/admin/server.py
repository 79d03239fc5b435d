"""The admin server: listens on TCP and on a Unix socket, on the sidecar's own loop.

Owner: the runtime starts and stops it. The web framework is imported by start and not before, so
that a command that serves nothing does not pay for it.

Invariants:
* It takes no signal and ends no process; a failure to listen is one clear line.
* stop returns within STOP_SECONDS, whoever keeps a connection or a request open.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from sidecar.admin.control import Control
from sidecar.admin.letters import Letters
from sidecar.admin.listeners import UnixListener, listen_tcp
from sidecar.admin.view import View
from sidecar.errors import SidecarError
from sidecar.settings import AdminSettings

if TYPE_CHECKING:
    from sidecar.admin.embedding import EmbeddedServer

log = logging.getLogger(__name__)

STOP_SECONDS: Final = 1.0


class Address(NamedTuple):
    """Where it listens in fact."""

    host: str
    port: int
    socket: Path | None

    @property
    def url(self) -> str:
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"


class AdminServer:
    """failed is called when the server dies by itself."""

    def __init__(
        self,
        settings: AdminSettings,
        view: View,
        control: Control,
        letters: Letters,
        *,
        failed: Callable[[BaseException], object] | None = None,
    ) -> None:
        self._settings = settings
        self._view = view
        self._control = control
        self._letters = letters
        self._names = (*settings.names, settings.host)
        self._failed = failed
        self._unix: UnixListener | None = None
        self._server: EmbeddedServer | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> Address:
        """Listen, then answer; raises SidecarError if it cannot listen."""
        tcp = await listen_tcp(self._settings.host, self._settings.port)
        try:
            self._unix = self._listen_unix()
        except SidecarError:
            tcp.close()
            raise
        # Only who serves pays for the framework.
        from sidecar.admin.access import Access  # noqa: PLC0415
        from sidecar.admin.app import AdminApp  # noqa: PLC0415
        from sidecar.admin.embedding import EmbeddedServer  # noqa: PLC0415

        sockets = [tcp] if self._unix is None else [tcp, self._unix.socket]
        host, port = tcp.getsockname()[:2]
        access = Access(self._settings)
        app = AdminApp(self._view, self._control, self._letters, access, self._names)
        self._server = EmbeddedServer(app)
        self._task = asyncio.create_task(self._serve(self._server, sockets), name="admin")
        await self._server.listening.wait()
        address = Address(host, port, None if self._unix is None else self._unix.path)
        log.info("admin API on %s%s", address.url, f" and {self._unix.path}" if self._unix else "")
        return address

    async def stop(self) -> None:
        if self._task is None or self._server is None:
            return
        self._server.stop()
        _, late = await asyncio.wait([self._task], timeout=STOP_SECONDS)
        if late:
            self._task.cancel()
        self._task = None
        if self._unix is not None:
            self._unix.unlink()

    async def _serve(self, server: EmbeddedServer, sockets: list[socket.socket]) -> None:
        try:
            await server.serve(sockets)
        except Exception as error:
            log.exception("the admin server died")
            if self._failed is not None:
                self._failed(error)
        finally:
            # Cancelled without a stop, uvicorn leaves all open, and uvloop cannot close then.
            for listener in getattr(server, "servers", ()):
                listener.close()
            for connection in list(server.server_state.connections):
                connection.transport.close()
            server.listening.set()  # whoever waits for it must not wait for ever

    def _listen_unix(self) -> UnixListener | None:
        path = self._settings.socket
        if path is None:
            return None
        try:
            return UnixListener(path)
        except SidecarError as error:
            if self._settings.socket_required:
                raise
            log.info("%s; going on without it", error)
            return None
