"""The sockets the admin surface listens on, opened so that every failure is one clear line."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from pathlib import Path

from sidecar.errors import SidecarError

BACKLOG = 128


async def listen_tcp(host: str, port: int) -> socket.socket:
    """The first address of the host; port 0 takes a free one."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, _, _, _, address = found[0]
        return socket.create_server(address, family=family, backlog=BACKLOG)
    except OSError as error:
        reason = error.strerror or str(error)
        raise SidecarError(
            f"admin: cannot listen on {host} port {port}: {reason}; choose another admin.port, or"
            " correct admin.host"
        ) from error


class UnixListener:
    """A Unix socket that only its owner may open; a stale file in its place is replaced."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            _remove_stale(path)
            self.socket.bind(os.fspath(path))
            # Nobody can connect before it listens, so at no time with another mode.
            path.chmod(0o600)
            self.socket.listen(BACKLOG)
            self._inode = path.stat().st_ino
        except OSError as error:
            self.socket.close()
            reason = error.strerror or str(error)
            raise SidecarError(f"admin.socket: cannot listen on {path}: {reason}") from error

    def unlink(self) -> None:
        """Remove the file, unless another process has put its own there."""
        try:
            if self.path.stat().st_ino == self._inode:
                self.path.unlink()
        except OSError:
            pass  # gone already, or not ours to remove any more


def _remove_stale(path: Path) -> None:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise OSError(0, "there is a file that is no socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(os.fspath(path))
        except ConnectionRefusedError:
            path.unlink()
        else:
            raise OSError(0, "another process listens there")
