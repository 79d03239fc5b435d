"""CPU of one request, by the wire and by other clients, side by side against the same app.

    python -m bench.wire [--requests 40000] [--slots 32]

The app (204 at once) is a process of its own on the second core. Figures are this process's CPU
time per request (user and system): sending, receiving, parsing and nothing else.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import resource
from collections.abc import Awaitable, Callable
from multiprocessing.connection import Connection as Pipe
from typing import Final, cast

import httpx
import uvloop
from httptools import HttpRequestParser, HttpResponseParser

from sidecar.core.target import parse_target
from sidecar.delivery import open_delivery
from sidecar.delivery.request import RequestEncoder, split_head
from sidecar.model import Answer, Assignment, Partition, Record, Result

NO_CONTENT: Final = b"HTTP/1.1 204 No Content\r\nDate: Sat, 01 Jan 2022 00:00:00 GMT\r\n\r\n"
HEAD_LIMIT: Final = 16_384
HTTPX_SHARE: Final = 20  # httpx is so slow that a part of the requests tells enough


class App(asyncio.Protocol):
    """Answers every request with 204."""

    def __init__(self) -> None:
        self.parser = HttpRequestParser(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)

    def on_message_complete(self) -> None:
        self.transport.write(NO_CONTENT)


def serve(pipe: Pipe) -> None:
    pin(1)

    async def main() -> None:
        server = await asyncio.get_running_loop().create_server(App, "127.0.0.1", 0)
        pipe.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    uvloop.run(main())


def pin(core: int) -> None:
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[core % len(cores)]})


def cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def a_record(offset: int) -> Record:
    return Record(ASSIGNMENT, offset, 1_700_000_000_000, b"customer-1", VALUE, None, 210)


ASSIGNMENT: Final = Assignment(Partition("orders", 3), 1)
VALUE: Final = b"x" * 200
RECORDS: Final = [a_record(offset) for offset in range(1_000)]


class Bare(asyncio.Protocol):
    """The yardstick: prepared bytes out, an answer in, no checks."""

    def __init__(self, request: bytes, finished: Callable[[], bool]) -> None:
        self.request = request
        self.finished = finished
        self.parser = HttpResponseParser(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)

    def on_message_complete(self) -> None:
        if not self.finished():
            self.transport.write(self.request)


class Count:
    """Tells the last of `total` requests."""

    def __init__(self, total: int) -> None:
        self.left = total
        self.all_done = asyncio.Event()

    def finished(self) -> bool:
        self.left -= 1
        if self.left <= 0:
            self.all_done.set()
            return True
        return False


async def by_bare(port: int, slots: int, total: int) -> None:
    encoder = RequestEncoder("/events/{topic}", f"127.0.0.1:{port}", "text/plain", HEAD_LIMIT)
    request = b"".join(encoder.encode(RECORDS[1], 1))
    count = Count(total)
    loop = asyncio.get_running_loop()
    opened = [
        await loop.create_connection(lambda: Bare(request, count.finished), "127.0.0.1", port)
        for _ in range(slots)
    ]
    await count.all_done.wait()
    for transport, _ in opened:
        transport.close()


async def by_wire(port: int, slots: int, total: int) -> None:
    delivery = open_delivery(
        target=parse_target(f"http://127.0.0.1:{port}/events/{{topic}}"),
        loop=asyncio.get_running_loop(),
        content_type="text/plain",
        max_header_bytes=HEAD_LIMIT,
    )
    count = Count(total)

    def start() -> None:
        slot = delivery.open_slot()

        def done(result: Result) -> None:
            assert isinstance(result, Answer), result
            if not count.finished():
                slot.send(RECORDS[count.left % 1_000], 1, done)

        slot.send(RECORDS[0], 1, done)

    for _ in range(slots):
        start()
    await count.all_done.wait()
    await delivery.close()


async def by_httpx(port: int, slots: int, total: int) -> None:
    encoder = RequestEncoder("/events/{topic}", f"127.0.0.1:{port}", "text/plain", HEAD_LIMIT)
    count = Count(total // HTTPX_SHARE)
    async with httpx.AsyncClient(trust_env=False, limits=httpx.Limits()) as client:

        async def run() -> None:
            while True:
                headers = split_head(encoder.encode(RECORDS[count.left % 1_000], 1)[0])
                url = f"http://127.0.0.1:{port}/events/orders"
                (await client.post(url, headers=headers, content=VALUE)).raise_for_status()
                if count.finished():
                    return

        await asyncio.gather(*(run() for _ in range(slots)))


async def measure(
    way: Callable[[int, int, int], Awaitable[None]], port: int, slots: int, total: int
) -> float:
    await way(port, slots, total // 10)  # warm
    before = cpu_seconds()
    await way(port, slots, total)
    done = total // HTTPX_SHARE if way is by_httpx else total
    return (cpu_seconds() - before) / done * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--requests", type=int, default=40_000)
    parser.add_argument("--slots", type=int, default=32)
    parser.add_argument("--no-httpx", action="store_true")
    arguments = parser.parse_args()
    ours, theirs = multiprocessing.Pipe()
    app = multiprocessing.Process(target=serve, args=(theirs,), daemon=True)
    app.start()
    port = ours.recv()
    pin(0)
    try:
        rounds = [
            [
                uvloop.run(measure(way, port, arguments.slots, arguments.requests))
                for way in (by_bare, by_wire)
            ]
            for _ in range(3)
        ]
        bare, wire = (min(column) for column in zip(*rounds, strict=True))
        print(f"bare protocol  {bare:8.1f} µs CPU per request")
        print(f"wire           {wire:8.1f} µs  {wire / bare:.2f} × bare")
        if not arguments.no_httpx:
            client = uvloop.run(measure(by_httpx, port, arguments.slots, arguments.requests))
            print(f"httpx          {client:8.1f} µs  {client / wire:.0f} × wire")
    finally:
        app.terminate()
        app.join()


if __name__ == "__main__":
    main()
