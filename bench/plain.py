"""What the sidecar is compared with: consumers that POST the same requests and track nothing.

    python -m bench.plain WAY --bootstrap-servers B --topic T --port P --count N

Prints one JSON line: CPU and wall seconds from the first record to the last answer, peak memory.

* floor: what can be had at all in this language: consume(256), every field of a message read, the
  identical request bytes over 32 connections of the event loop, nothing else.
* httpx: a plain httpx client with 32 requests at a time, fed by the same consumer.
* sequential: one record at a time, as a plain consumer does.
* arrivals: no requests; prints how long each record took to get here.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import resource
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import uvloop
from confluent_kafka import Consumer, Message
from httptools import HttpResponseParser

from sidecar.kafka.client_config import consumer_config
from sidecar.settings import RouteSettings, Settings

CONNECTIONS = 32
AHEAD = 1000  # records fetched and not answered, as the sidecar's threshold


def request_bytes(message: Message, port: int) -> bytes:
    """Every field read, into the bytes that the sidecar sends for such a record."""
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    _, timestamp = message.timestamp()
    key, value = message.key(), message.value() or b""
    message.headers()
    where = f"{topic}/{partition}/{offset}/{timestamp}"
    return (
        f"POST /events/{topic} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
        f"Content-Type: application/octet-stream\r\nKafka-Topic: {topic}\r\n"
        f"Kafka-Partition: {partition}\r\nKafka-Offset: {offset}\r\n"
        f"Kafka-Timestamp: {timestamp}\r\n"
        f"Kafka-Key: {key.decode() if key else ''}\r\n"
        f'Idempotency-Key: "{where}"\r\nSidecar-Attempt: 1\r\nContent-Length: {len(value)}\r\n\r\n'
    ).encode() + value


class Usage:
    """From the first record on."""

    def __init__(self) -> None:
        self._at: tuple[float, float] | None = None

    def begin(self) -> None:
        if self._at is None:
            self._at = (time.monotonic(), time.process_time())

    def report(self, count: int) -> None:
        assert self._at is not None
        wall, cpu = time.monotonic() - self._at[0], time.process_time() - self._at[1]
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
        print(json.dumps({"count": count, "cpu_s": cpu, "wall_s": wall, "peak_mb": peak}))


class Connection(asyncio.Protocol):
    def __init__(self, floor: Floor) -> None:
        self._floor = floor
        self._parser = HttpResponseParser(self)
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_complete(self) -> None:
        self._floor.answered(self)


class Floor:
    def __init__(self, count: int, port: int, usage: Usage) -> None:
        self._left = count
        self._port = port
        self._usage = usage
        self._messages: deque[Message] = deque()
        self._idle: list[Connection] = []
        self._done = asyncio.get_running_loop().create_future()
        self.room = threading.Semaphore(AHEAD // 250)

    async def run(self, consumer: Consumer) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(CONNECTIONS):
            _, connection = await loop.create_connection(
                lambda: Connection(self), "127.0.0.1", self._port
            )
            self._idle.append(connection)
        threading.Thread(target=self._fetch, args=(consumer, loop), daemon=True).start()
        await self._done

    def _fetch(self, consumer: Consumer, loop: asyncio.AbstractEventLoop) -> None:
        while True:
            self.room.acquire()
            messages = consumer.consume(256, 0.05)
            if messages:
                self._usage.begin()
                loop.call_soon_threadsafe(self._arrived, messages)
            else:
                self.room.release()

    def _arrived(self, messages: list[Message]) -> None:
        self._messages.extend(messages)
        self.room.release()
        while self._idle and self._messages:
            self._send(self._idle.pop())

    def _send(self, connection: Connection) -> None:
        connection.transport.write(request_bytes(self._messages.popleft(), self._port))

    def answered(self, connection: Connection) -> None:
        self._left -= 1
        if self._left == 0:
            self._done.set_result(None)
        elif self._messages:
            self._send(connection)
        else:
            self._idle.append(connection)


def floor(consumer: Consumer, count: int, port: int, usage: Usage) -> None:
    async def main() -> None:
        await Floor(count, port, usage).run(consumer)

    uvloop.run(main())


def with_httpx(consumer: Consumer, count: int, port: int, usage: Usage) -> None:
    async def worker(client: httpx.AsyncClient, source: Iterator[Message]) -> None:
        for message in source:
            head, _, body = request_bytes(message, port).partition(b"\r\n\r\n")
            line, *headers = head.decode().split("\r\n")
            await client.post(
                f"http://127.0.0.1:{port}{line.split()[1]}",
                content=body,
                headers=[tuple(header.split(": ", 1)) for header in headers],  # type: ignore[arg-type]
            )

    async def main() -> None:
        limits = httpx.Limits(max_connections=CONNECTIONS, max_keepalive_connections=CONNECTIONS)
        async with httpx.AsyncClient(limits=limits, trust_env=False) as client:
            messages = _take(consumer, count, usage)
            await asyncio.gather(*(worker(client, messages) for _ in range(CONNECTIONS)))

    uvloop.run(main())


def sequential(consumer: Consumer, count: int, port: int, usage: Usage) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port)
    for message in _take(consumer, count, usage):
        connection.request("POST", f"/events/{message.topic()}", message.value())
        connection.getresponse().read()


def _take(consumer: Consumer, count: int, usage: Usage) -> Iterator[Message]:
    taken = 0
    while taken < count:
        for message in consumer.consume(min(256, count - taken), 0.2):
            usage.begin()
            taken += 1
            yield message


def arrivals(consumer: Consumer, count: int, port: int, usage: Usage) -> None:
    """From production (its moment is the value's second word) to the consumer's hands, in ms."""
    seen: list[float] = []
    while len(seen) < count:
        # consume() alone would wait for its number; so does nobody who is in a hurry.
        first = consumer.poll(0.2)
        for message in [first, *consumer.consume(256, 0)] if first else ():
            produced = int((message.value() or b"").split(b" ", 2)[1])
            seen.append((time.monotonic_ns() - produced) / 1e6)
    print(json.dumps(seen))


WAYS: dict[str, Callable[[Consumer, int, int, Usage], None]] = {
    "floor": floor,
    "httpx": with_httpx,
    "sequential": sequential,
    "arrivals": arrivals,
}


def as_the_sidecar(bootstrap_servers: str, topic: str) -> dict[str, Any]:
    """What the sidecar tells its consumer: the same fetches for all."""
    route = RouteSettings(name="plain", topics=(topic,), target="http://127.0.0.1/")
    settings = Settings(
        kafka={"bootstrap.servers": bootstrap_servers, "group.id": "plain"}, routes=(route,)
    )
    return dict(consumer_config(settings, route))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("way", choices=WAYS)
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--count", type=int, required=True)
    args = parser.parse_args()
    consumer = Consumer(
        {
            **as_the_sidecar(args.bootstrap_servers, args.topic),
            "group.id": f"{args.way}-{time.time_ns()}",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([args.topic])
    usage = Usage()
    WAYS[args.way](consumer, args.count, args.port, usage)
    if args.way != "arrivals":
        usage.report(args.count)


if __name__ == "__main__":
    main()
