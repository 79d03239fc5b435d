"""The recording application: answers 204 after the delay a record asks for, and notes it.

    python -m tests.rig.recorder --journal FILE --port PORT [--hang-path PATH] [--rules JSON]
                                 [--at-once]

A record's value is "<number> <produced, monotonic ns> <delay, ms> ...". The journal gets one line
when a request arrives, "a <number> <latency, us> <attempt> <path> <idempotency key>", and one
before it is answered, "d <number> <status> <monotonic seconds>". It is flushed to the kernel at
least every 20 ms and before the end, so killing the sidecar, or ending the application, takes
nothing from it; with --at-once each line is, so neither does killing the application.

Rules let it answer otherwise; `PUT /` with their JSON changes them. The first that fits counts.
SIGTERM ends it at once, with requests unanswered.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple, TextIO

import httptools
import uvloop

ANSWER = b"HTTP/1.1 204 No Content\r\n\r\n"


class Rule(NamedTuple):
    """How records are answered: the one with the number, every nth, or all.

    exit: the application ends; hang: no answer.
    """

    answer: int | Literal["exit", "hang"]
    number: int | None = None
    every: int | None = None

    def fits(self, number: int) -> bool:
        if self.every is not None:
            return number % self.every == 0
        return self.number is None or self.number == number


def dump(rules: Sequence[Rule]) -> str:
    return json.dumps([rule._asdict() for rule in rules])


class Recorder(asyncio.Protocol):
    rules: Sequence[Rule] = ()  # of all connections

    def __init__(self, journal: TextIO, hang_path: bytes) -> None:
        self._journal = journal
        self._hang_path = hang_path
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.WriteTransport
        self._url = self._body = self._attempt = self._key = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if name == b"Sidecar-Attempt":
            self._attempt = value
        elif name == b"Idempotency-Key":
            self._key = value

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        url, body, attempt, key = self._url, self._body, self._attempt, self._key
        self._url = self._body = self._attempt = self._key = b""
        if self._parser.get_method() == b"PUT":
            Recorder.rules = [Rule(**rule) for rule in json.loads(body)]
            self._transport.write(ANSWER)
            return
        number, produced, delay, *_ = body.split(b" ", 3)
        latency_us = (time.monotonic_ns() - int(produced)) // 1000
        self._journal.write(
            f"a {int(number)} {latency_us} {attempt.decode()} {url.decode()} {key.decode()}\n"
        )
        if self._hang_path and url.startswith(self._hang_path):
            return
        status = 204
        if self.rules:
            answer = next((rule.answer for rule in self.rules if rule.fits(int(number))), status)
            if answer == "exit":
                end(self._journal)
            elif answer == "hang":
                return
            else:
                status = answer
        if int(delay):
            self._loop.call_later(int(delay) / 1000, self._answer, int(number), status)
        else:
            self._answer(int(number), status)

    def _answer(self, number: int, status: int) -> None:
        if not self._transport.is_closing():
            self._journal.write(f"d {number} {status} {time.monotonic():.3f}\n")
            self._transport.write(ANSWER if status == 204 else _refusal(status))


def _refusal(status: int) -> bytes:
    return b"HTTP/1.1 %d By Rule\r\nContent-Length: 7\r\n\r\nby rule" % status


def end(journal: TextIO) -> None:
    journal.flush()
    os._exit(1)


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--journal", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--hang-path", default="")
    parser.add_argument("--rules", default="[]")
    parser.add_argument("--at-once", action="store_true")
    args = parser.parse_args()
    Recorder.rules = [Rule(**rule) for rule in json.loads(args.rules)]
    loop = asyncio.get_running_loop()
    buffering = 1 if args.at_once else 1 << 16
    with Path(args.journal).open("a", encoding="ascii", buffering=buffering) as journal:  # noqa: ASYNC230
        loop.add_signal_handler(signal.SIGTERM, end, journal)
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
