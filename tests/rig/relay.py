"""A relay of TCP connections that takes its time, for where the kernel has no netem.

Each direction of each connection keeps its order and its bandwidth; every byte comes late by the
delay that was set when it arrived here.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Final, Self


class Relay:
    """From `port` of 127.0.0.1 to the port `to`; runs in a thread of its own within a `with`."""

    def __init__(self, port: int, to: int) -> None:
        self.delay_seconds = 0.0
        self._port: Final = port
        self._to: Final = to
        self._loop: Final = asyncio.new_event_loop()
        self._thread: Final = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._server: asyncio.Server | None = None
        self._tasks: Final[set[asyncio.Task[None]]] = set()

    def __enter__(self) -> Self:
        self._thread.start()
        self._run(self._listen())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, what: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(what, self._loop).result(30)

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", self._port)

    async def _end(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.sleep(0)  # which closes the transports

    async def _connected(self, near: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        try:
            far, forth = await asyncio.open_connection("127.0.0.1", self._to)
        except OSError:
            back.close()
            return
        for source, sink in ((near, forth), (far, back)):
            task = self._loop.create_task(self._pass_on(source, sink))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pass_on(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        line: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(1000)
        reading = self._loop.create_task(self._read(source, line))
        try:
            while True:
                due, data = await line.get()
                await asyncio.sleep(due - self._loop.time())
                if not data:
                    return
                sink.write(data)
                await sink.drain()
        except OSError:
            return
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
            sink.close()

    async def _read(
        self, source: asyncio.StreamReader, line: asyncio.Queue[tuple[float, bytes]]
    ) -> None:
        data = b"-"
        while data:
            try:
                data = await source.read(1 << 16)
            except OSError:
                data = b""
            await line.put((self._loop.time() + self.delay_seconds, data))
