"""python -m bench.attack PORT: whatever a client of the admin surface can do that is not nice.

Goes on until it is ended; prints how many answers it got. Purpose: load for bench.latency.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import signal
import sys
from collections.abc import Awaitable, Callable

IDLE = 500
AGAIN_SECONDS = 1.0  # before a connection that was cut is opened again, but by the greedy
DRIP_SECONDS = 0.2
HUGE = 10_000_000

_HEAD = "HTTP/1.1\r\nHost: localhost\r\n"
GREEDY = [
    f"GET /v1/status {_HEAD}\r\n",
    f"GET /metrics {_HEAD}\r\n",
    f"GET /v1/in-flight?limit=1e9 {_HEAD}\r\n",
    f"GET /v1/routes/nothing {_HEAD}\r\n",
    f"DELETE /v1/status {_HEAD}\r\n",
    f'PUT /v1/log-level {_HEAD}content-type: application/json\r\ncontent-length: 2\r\n\r\n"x',
]
Writer = asyncio.StreamWriter
Reader = asyncio.StreamReader


async def greedy(reader: Reader, writer: Writer) -> None:
    """Asks again as soon as it is answered."""
    for request in itertools.cycle(GREEDY):
        writer.write(request.encode())
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
        await reader.readexactly(length)
        Answers.count += 1


async def listens(reader: Reader, writer: Writer) -> None:
    """To the stream of events, or to being told that too many do."""
    writer.write(f"GET /v1/events {_HEAD}\r\n".encode())
    while await reader.read(65_536):
        pass


async def idle(reader: Reader, _writer: Writer) -> None:
    await reader.read()


async def drips_a_head(_reader: Reader, writer: Writer) -> None:
    writer.write(b"GET /livez HTTP/1.1\r\nx: ")
    await _drip(writer)


async def drips_a_body(_reader: Reader, writer: Writer) -> None:
    writer.write(b"PUT /v1/log-level HTTP/1.1\r\ncontent-length: 10000\r\n\r\n")
    await _drip(writer)


async def _drip(writer: Writer) -> None:
    while not writer.transport.is_closing():
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(DRIP_SECONDS)


async def sends_a_huge_body(reader: Reader, writer: Writer) -> None:
    writer.write(f"PUT /v1/log-level {_HEAD}content-length: {HUGE}\r\n\r\n".encode())
    for _ in range(HUGE // 100_000):
        writer.write(b"x" * 100_000)
        await writer.drain()
    await reader.read()


async def sends_a_huge_head(reader: Reader, writer: Writer) -> None:
    writer.write(f"GET /livez {_HEAD}x: ".encode() + b"x" * 1_000_000 + b"\r\n\r\n")
    await reader.read()


async def never_reads(reader: Reader, writer: Writer) -> None:
    reader._transport.pause_reading()  # type: ignore[attr-defined]
    while True:
        writer.write(f"GET /openapi.json {_HEAD}\r\n".encode())
        await writer.drain()
        await asyncio.sleep(0.05)


class Answers:
    count = 0


CLIENTS: list[tuple[Callable[[Reader, Writer], Awaitable[None]], int]] = [
    (idle, IDLE),
    (greedy, 4),
    (listens, 20),
    (drips_a_head, 20),
    (drips_a_body, 20),
    (sends_a_huge_body, 2),
    (sends_a_huge_head, 2),
    (never_reads, 5),
]


async def client(port: int, what: Callable[[Reader, Writer], Awaitable[None]]) -> None:
    """The same again and again, however it ends."""
    while True:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, ValueError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                await what(reader, writer)
            finally:
                writer.transport.abort()
        await asyncio.sleep(0.0 if what is greedy else AGAIN_SECONDS)


async def main(port: int) -> None:
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    clients = [
        asyncio.create_task(client(port, what)) for what, number in CLIENTS for _ in range(number)
    ]
    await ended.wait()
    for each in clients:
        each.cancel()
    print(Answers.count)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
