"""An application that answers one record badly: one outcome each, and the others do not notice.

What has no outcome by itself ends at the caller's deadline: the slot is free at once.
"""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest
import trustme
from h2.connection import H2Connection

from sidecar.model import Answer, Result
from tests.contract.delivery.ways import Sender, Stage, Way, a_record, answer, unanswered, ways
from tests.rig.hostile_app import NO_CONTENT, Peer, Script
from tests.rig.http2_app import Http2App, no_content

DEADLINE = "deadline"
DEADLINE_SECONDS = 0.3  # from when the application has the request
FLOOD = 512 * 1024 * 1024
MEMORY = 12 * 1024 * 1024
BAD = b"bad"


def word(result: Result) -> str:
    return str(result.status) if isinstance(result, Answer) else result.kind.value


async def outcome(slot: Sender, asked: asyncio.Event, expected: set[str]) -> str:
    """As an executor has it: an attempt is over at its deadline."""
    answered = slot.send(a_record(value=BAD))
    await asked.wait()
    try:
        seconds = DEADLINE_SECONDS if DEADLINE in expected else None
        return word(await asyncio.wait_for(asyncio.shield(answered), seconds))
    except TimeoutError:
        assert slot.slot.abort() is True
        await unanswered(answered)
        return DEADLINE


def pours(name: str) -> bool:
    return name == "floods" or name.endswith("for ever")


@contextmanager
def flat_memory() -> Iterator[None]:
    """Of both sides together. It slows everything down, so it is not for every case."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < MEMORY
    finally:
        tracemalloc.stop()


async def harms_nobody(
    stage: Stage, asked: asyncio.Event, expected: set[str], *, pouring: bool
) -> None:
    neighbours = [stage.slot() for _ in range(4)]
    spoilt = stage.slot()

    async def deliver(slot: Sender) -> None:
        for _ in range(10):
            assert answer(await slot.send())[0] == 204

    for slot in neighbours:
        await deliver(slot)
    with flat_memory() if pouring else nullcontext():
        told, *_ = await asyncio.gather(
            outcome(spoilt, asked, expected), *(deliver(each) for each in neighbours)
        )
    assert told in expected
    assert answer(await spoilt.send())[0] == 204
    await stage.app.until(lambda: stage.app.open <= len(neighbours) + 1)


# --- HTTP/1.1 -----------------------------------------------------------------------------------


def for_ever(start: bytes, again: bytes) -> Callable[[Peer], Awaitable[None]]:
    async def behave(peer: Peer) -> None:
        await peer.send(start)
        poured = 0
        while poured < FLOOD:
            await peer.send(again)
            poured += len(again)

    return behave


def once(raw: bytes, *, close: bool = True) -> Callable[[Peer], Awaitable[None]]:
    async def behave(peer: Peer) -> None:
        await peer.send(raw)
        if not close:
            await peer.gone()

    return behave


OK = b"HTTP/1.1 200 OK\r\n"
# By name: what it does, and what an attempt comes to. httpx reads without an end what the wire
# cuts at its limit; then the deadline does.
HTTP1: dict[str, tuple[Callable[[Peer], Awaitable[None]], set[str]]] = {
    "hangs": (once(b"", close=False), {DEADLINE}),
    "drips": (once(OK + b"Content-Length: 100000\r\n\r\nx", close=False), {DEADLINE}),
    "drips its head": (once(OK + b"X: y\r\n", close=False), {DEADLINE}),
    "floods": (for_ever(OK + b"Content-Length: %d\r\n\r\n" % FLOOD, b"f" * 65_536), {"200"}),
    "chunks for ever": (
        for_ever(OK + b"Transfer-Encoding: chunked\r\n\r\n", b"1000\r\n" + b"f" * 4096 + b"\r\n"),
        {"200"},
    ),
    "a head for ever": (for_ever(OK, b"X: " + b"y" * 1000 + b"\r\n"), {"malformed"}),
    "1xx for ever": (
        for_ever(b"", b"HTTP/1.1 102 Processing\r\n\r\n" * 50),
        {"malformed", DEADLINE},
    ),
    "chunk extensions for ever": (
        for_ever(OK + b"Transfer-Encoding: chunked\r\n\r\n1;", b"x" * 4096),
        {"200", "malformed"},
    ),
    "lies about its length": (once(OK + b"Content-Length: 10\r\n\r\nabc"), {"broken"}),
    "closes in the middle": (once(OK + b"Content-Le"), {"broken"}),
    "closes at once": (once(b""), {"broken"}),
    "redirects": (
        once(b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"),
        {"302"},
    ),
    "says gzip": (
        once(OK + b"Content-Encoding: gzip\r\nContent-Length: 5\r\n\r\nplain"),
        {"200"},
    ),
    "speaks no HTTP": (
        once(b"220 mail.example ESMTP\r\n\r\n", close=False),
        {"malformed"},
    ),
}


def to(behave: Callable[[Peer], Awaitable[None]], asked: asyncio.Event) -> Script:
    async def script(peer: Peer) -> None:
        while (await peer.request()).body != BAD:
            await peer.send(NO_CONTENT)
        asked.set()
        await behave(peer)

    return script


@pytest.mark.parametrize("name", HTTP1)
def test_one_bad_answer_harms_no_other_record(way: Way, name: str) -> None:
    """WIRE-3, and every other way to answer badly."""
    behave, expected = HTTP1[name]
    asked = asyncio.Event()

    async def main() -> None:
        async with way.stage(to(behave, asked), idle_seconds=60.0) as stage:
            await harms_nobody(stage, asked, expected, pouring=pours(name))

    way.run(main)


# --- HTTP/2 -------------------------------------------------------------------------------------

Behaviour = Callable[[H2Connection, int, Peer], Awaitable[None]]


def frame(kind: int, stream: int, payload: bytes = b"", flags: int = 0) -> bytes:
    head = len(payload).to_bytes(3, "big") + bytes([kind, flags])
    return head + stream.to_bytes(4, "big") + payload


def headed(status: str, *more: tuple[str, str], end: bool = False) -> Behaviour:
    async def behave(http: H2Connection, stream: int, peer: Peer) -> None:
        http.send_headers(stream, [(":status", status), *more], end_stream=end)

    return behave


def then(first: Behaviour | None, raw: bytes, *, close: bool = False) -> Behaviour:
    """Bytes that no library sends, behind what it does."""

    async def behave(http: H2Connection, stream: int, peer: Peer) -> None:
        if first is not None:
            await first(http, stream, peer)
        await peer.send(http.data_to_send() + raw)
        if close:
            peer.writer.close()

    return behave


async def interim_for_ever(http: H2Connection, stream: int, peer: Peer) -> None:
    while True:
        http.send_headers(stream, [(":status", "103")])
        await peer.send(http.data_to_send())


async def pings_for_ever(http: H2Connection, stream: int, peer: Peer) -> None:
    while True:
        await peer.send(frame(6, 0, b"12345678"))


async def floods(http: H2Connection, stream: int, peer: Peer) -> None:
    """As much as the window takes: 16 MB."""
    http.send_headers(stream, [(":status", "200")])
    while (room := min(http.local_flow_control_window(stream), 16_384)) > 0:
        http.send_data(stream, b"f" * room)
        await peer.send(http.data_to_send())


async def lies(http: H2Connection, stream: int, peer: Peer) -> None:
    http.send_headers(stream, [(":status", "200"), ("content-length", "10")])
    http.send_data(stream, b"abc", end_stream=True)


DATA_ON_NO_STREAM = frame(0, 0, b"x")
HTTP2: dict[str, tuple[Behaviour, set[str]]] = {
    "hangs": (then(None, b""), {DEADLINE}),
    "drips": (headed("200"), {DEADLINE}),
    "floods": (floods, {"200"}),
    "a large head": (
        headed("200", *((f"x-{number}", "v" * 1000) for number in range(70)), end=True),
        {"malformed"},
    ),
    "no number for a status": (headed("abc", end=True), {"malformed"}),
    "status 999": (headed("999", end=True), {"malformed"}),
    "1xx for ever": (interim_for_ever, {DEADLINE}),
    "pings for ever": (pings_for_ever, {DEADLINE}),
    "lies about its length": (lies, {"malformed"}),
    "closes in the middle": (then(headed("200"), b"", close=True), {"broken"}),
    "redirects": (headed("302", ("location", "https://127.0.0.1:1/"), end=True), {"302"}),
    "a frame that must not be": (then(None, DATA_ON_NO_STREAM), {"malformed"}),
    "such a frame in the body": (then(headed("200"), DATA_ON_NO_STREAM), {"malformed"}),
    "a head that cannot be unpacked": (
        then(None, frame(1, 1, b"\xff" * 20, flags=4)),
        {"malformed"},
    ),
    "a promise": (then(None, frame(5, 1, b"\0\0\0\x02\x88", flags=4)), {"malformed"}),
    "speaks no HTTP/2": (then(None, b"220 mail.example ESMTP\r\n"), {DEADLINE}),
}


@pytest.mark.parametrize("name", HTTP2)
def test_one_bad_answer_by_http2_harms_no_other_record(
    tmp_path: Path, authority: trustme.CA, name: str
) -> None:
    """WIRE-2, WIRE-3: on a connection that slots shared, one record's answer ended them all."""
    behave, expected = HTTP2[name]
    asked = asyncio.Event()

    def by_body(http: H2Connection, stream: int, peer: Peer) -> Awaitable[None] | None:
        if app.bodies[-1] == BAD:
            asked.set()
            return behave(http, stream, peer)
        no_content(http, stream, peer)
        return None

    app = Http2App(by_body)
    way = ways("http2", tmp_path, authority)

    async def main() -> None:
        async with way.stage(app.script, idle_seconds=60.0) as stage:
            await harms_nobody(stage, asked, expected, pouring=pours(name))

    way.run(main)
