"""The toy application: answers 204 to every POST, and takes long over some records.

Run as `python -m sidecar.demo.app FD SLOW_EVERY SLOW_SECONDS` with a listening socket as file
descriptor FD. A process of its own, so that it disturbs nobody's event loop.

Invariants: which records are slow depends on their offset alone, so everybody who delivers a
partition meets the same ones; it ends when its standard input does, so it outlives no parent.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import sys
from types import TracebackType
from typing import Final, Self

FAST_SECONDS: Final = 0.005
_END_SECONDS: Final = 2.0
_ANSWER: Final = b"HTTP/1.1 204 No Content\r\n\r\n"


class ToyApp:
    """The application as its parent sees it: a context manager around the process."""

    def __init__(self, slow_every: int, slow_seconds: float) -> None:
        # Listening begins here: whoever connects before the process is up waits in the backlog.
        with socket.create_server(("127.0.0.1", 0), backlog=1024) as server:
            self.port: Final[int] = server.getsockname()[1]
            descriptor = server.fileno()
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__]
                + [str(each) for each in (descriptor, slow_every, slow_seconds)],
                stdin=subprocess.PIPE,
                pass_fds=[descriptor],
                process_group=0,  # Ctrl-C is for the parent, which still has to drain
            )

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


async def _serve(listening: socket.socket, slow_every: int, slow_seconds: float) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(
            asyncio.IncompleteReadError,  # the client is gone
            ConnectionError,
            asyncio.CancelledError,  # the application ends
        ):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                await reader.readexactly(_number(head, b"content-length"))
                slow = _number(head, b"kafka-offset") % slow_every == slow_every // 2
                await asyncio.sleep(slow_seconds if slow else FAST_SECONDS)
                writer.write(_ANSWER)
        writer.close()

    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(sys.stdin.fileno(), ended.set)
    server = await asyncio.start_server(answer, sock=listening)
    await ended.wait()
    server.close()


def _number(head: bytes, name: bytes) -> int:
    _, found, rest = head.partition(b"\r\n" + name + b":")
    return int(rest.partition(b"\r\n")[0]) if found else 0


def main(descriptor: str, slow_every: str, slow_seconds: str) -> None:
    with socket.socket(fileno=int(descriptor)) as listening:
        asyncio.run(_serve(listening, int(slow_every), float(slow_seconds)))


if __name__ == "__main__":
    main(*sys.argv[1:])
