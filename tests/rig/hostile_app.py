"""Scripted applications on raw sockets: every byte they say, and when, is the test's.

A script is called for each connection with its Peer. When it returns the connection is closed
in good order; whatever is still running when the app is left is cut.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

NO_CONTENT = b"HTTP/1.1 204 No Content\r\n\r\n"


@dataclass(frozen=True)
class Received:
    """One request as it came."""

    head: bytes
    body: bytes

    @property
    def lines(self) -> list[bytes]:
        return self.head[:-4].split(b"\r\n")

    def values(self, name: str) -> list[bytes]:
        wanted = name.lower().encode()
        pairs = (line.partition(b": ") for line in self.lines[1:])
        return [value for key, _, value in pairs if key.lower() == wanted]


class Peer:
    """One accepted connection."""

    def __init__(
        self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, app: App
    ) -> None:
        self.number = number
        self.reader = reader
        self.writer = writer
        self._app = app

    async def head(self) -> bytes:
        return await self.reader.readuntil(b"\r\n\r\n")

    async def request(self) -> Received:
        head = await self.head()
        received = Received(head, b"")
        length = int(received.values("content-length")[0])
        received = Received(head, await self.reader.readexactly(length))
        self._app.received.append(received)
        return received

    async def send(self, *pieces: bytes) -> None:
        """Each piece goes out as a segment of its own."""
        for piece in pieces:
            self.writer.write(piece)
            await self.writer.drain()
            await asyncio.sleep(0)

    async def answer_all(self, answer: bytes = NO_CONTENT) -> None:
        """A well-behaved application: one answer for each request until the end."""
        while True:
            try:
                await self.request()
            except asyncio.IncompleteReadError:
                return
            await self.send(answer)

    async def gone(self) -> None:
        """Wait until the other side has closed or reset the connection."""
        with suppress(ConnectionError):
            while await self.reader.read(65536):
                pass

    def reset(self) -> None:
        """Close with RST instead of FIN."""
        sock = self.writer.get_extra_info("socket")
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


Script = Callable[[Peer], Awaitable[None]]


class App:
    """What happened so far: connections accepted and still open, requests received whole."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.accepted = 0
        self.open = 0
        self.received: list[Received] = []
        self.port = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.accepted += 1
        self.open += 1
        self._changed.set()
        try:
            # Cut, when the test is over, is an end like any other.
            with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                await self.script(Peer(self.accepted, reader, writer, self))
        finally:
            self.open -= 1
            self._changed.set()
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
            self._tasks.discard(task)

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait for something about the connections."""
        while not holds():
            self._changed.clear()
            await self._changed.wait()

    async def cut(self) -> None:
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@asynccontextmanager
async def serving(
    script: Script,
    *,
    socket_path: Path | None = None,
    host: str = "127.0.0.1",
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[App]:
    """An application at an ephemeral port, or at a Unix socket."""
    app = App(script)
    if socket_path is not None:
        server = await asyncio.start_unix_server(app.serve, socket_path)
    else:
        server = await asyncio.start_server(app.serve, host, 0, ssl=tls)
        app.port = server.sockets[0].getsockname()[1]
    try:
        yield app
    finally:
        server.close()
        await app.cut()
        await server.wait_closed()


@contextmanager
def refusing(answer: bytes, socket_path: Path | None = None) -> Iterator[int]:
    """A blocking application in a thread: reads a little, answers, closes with the rest unread.

    It runs beside the loop under test, so that its answer and its end can come between any two
    steps of a write. Gives the port.
    """
    family = socket.AF_INET if socket_path is None else socket.AF_UNIX
    with socket.socket(family) as listener:
        listener.bind(("127.0.0.1", 0) if socket_path is None else str(socket_path))
        listener.listen()

        def serve() -> None:
            while True:
                try:
                    accepted, _ = listener.accept()
                except OSError:
                    return
                with accepted, suppress(OSError):
                    accepted.recv(1000)
                    accepted.sendall(answer)

        thread = threading.Thread(target=serve, name="refusing")
        thread.start()
        try:
            yield listener.getsockname()[1] if socket_path is None else 0
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
