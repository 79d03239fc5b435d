"""The recording application: answers 204 after the delay a record asks for, and notes it.

    python -m tests.rig.recorder --journal FILE --port PORT [--hang-path PATH]

A record's value is "<number> <produced, monotonic ns> <delay, ms> ...". The journal gets one line
when a request arrives: "a <number> <latency, us> <attempt> <path>", and one when it was answered:
"d <number>". It is flushed to the kernel at least every 20 ms, so killing the sidecar takes nothing
from it.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from pathlib import Path
from typing import TextIO

import httptools
import uvloop

ANSWER = b"HTTP/1.1 204 No Content\r\n\r\n"


class Recorder(asyncio.Protocol):
    def __init__(self, journal: TextIO, hang_path: bytes) -> None:
        self._journal = journal
        self._hang_path = hang_path
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.WriteTransport
        self._url = self._body = self._attempt = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if name == b"Sidecar-Attempt":
            self._attempt = value

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        number, produced, delay, *_ = self._body.split(b" ", 3)
        latency_us = (time.monotonic_ns() - int(produced)) // 1000
        self._journal.write(
            f"a {int(number)} {latency_us} {self._attempt.decode()} {self._url.decode()}\n"
        )
        hangs = bool(self._hang_path) and self._url.startswith(self._hang_path)
        self._url = self._body = self._attempt = b""
        if hangs:
            return
        if int(delay):
            self._loop.call_later(int(delay) / 1000, self._answer, int(number))
        else:
            self._answer(int(number))

    def _answer(self, number: int) -> None:
        if not self._transport.is_closing():
            self._transport.write(ANSWER)
            self._journal.write(f"d {number}\n")


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--journal", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--hang-path", default="")
    args = parser.parse_args()
    loop = asyncio.get_running_loop()
    with Path(args.journal).open("a", encoding="ascii", buffering=1 << 16) as journal:  # noqa: ASYNC230
        await loop.create_server(
            lambda: Recorder(journal, args.hang_path.encode()), "127.0.0.1", args.port
        )
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        while True:
            await asyncio.sleep(0.02)
            journal.flush()


if __name__ == "__main__":
    uvloop.run(main())
