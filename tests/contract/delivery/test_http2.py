"""Delivery by HTTP/2, to an application that speaks nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx
import pytest
import trustme
from h2.connection import H2Connection

from sidecar.core.answers import DEFAULT_ANSWERS
from sidecar.delivery.client import _kind, _read
from sidecar.delivery.connection import reading_of
from sidecar.model import Answer, Failed, FailureKind, Result
from tests.contract.delivery.ways import Stage, Way, a_record, ways
from tests.rig.hostile_app import Peer
from tests.rig.http2_app import Answering, Http2App, no_content


@pytest.fixture
def way(tmp_path: Path) -> Way:
    return ways("http2", tmp_path, trustme.CA())


def play(
    way: Way,
    answer: Answering,
    act: Callable[[Stage, Http2App], Awaitable[None]],
    **options: object,
) -> None:
    async def main() -> None:
        app = Http2App(answer)
        async with way.stage(app.script, **options) as stage:
            await act(stage, app)

    way.run(main)


def test_the_request_is_the_same_by_http2(way: Way) -> None:
    async def act(stage: Stage, app: Http2App) -> None:
        record = a_record(b"v" * 100_000, b"\x00", [("n", b"1"), ("n", b"2")])
        assert repr(await stage.send(record)) == "status 204"
        head = app.heads[0]
        assert (b":method", b"POST") in head
        assert (b":path", b"/events/orders") in head
        assert (b"kafka-key", b":AA==:") in head
        assert [value for name, value in head if name == b"kafka-header-n"] == [b"1", b"2"]
        assert app.bodies == [b"v" * 100_000]

    play(way, no_content, act)


def test_a_slot_has_a_connection_of_its_own_and_uses_it_again(way: Way) -> None:
    async def act(stage: Stage, app: Http2App) -> None:
        slots = [stage.slot() for _ in range(20)]
        for _ in range(3):
            results = await asyncio.gather(*(slot.send() for slot in slots))
            assert [repr(each) for each in results] == ["status 204"] * 20
        assert stage.app.accepted == 20

    play(way, no_content, act, idle_seconds=60.0)


def test_a_slot_that_is_closed_has_no_connection(way: Way) -> None:
    async def act(stage: Stage, app: Http2App) -> None:
        slot = stage.slot()
        assert repr(await slot.send()) == "status 204"
        assert stage.app.open == 1
        slot.slot.close()
        await stage.app.until(lambda: not stage.app.open)

    play(way, no_content, act, idle_seconds=60.0)


def test_answers_that_are_cut_take_nothing_from_the_next(way: Way) -> None:
    """WIRE-2: what nobody reads would count against the connection's window, until none is left."""

    def long(http: H2Connection, stream: int, peer: Peer) -> None:
        http.send_headers(stream, [(":status", "400")])
        for _ in range(100):
            http.send_data(stream, b"x" * 10_000)
        http.end_stream(stream)

    async def act(stage: Stage, app: Http2App) -> None:
        slot = stage.slot()
        for _ in range(25):
            result = await slot.send()
            assert isinstance(result, Answer)
            assert (result.status, result.body) == (400, b"x" * 1_024)

    play(way, long, act)


def test_an_answer_with_a_body(way: Way) -> None:
    def refuse(http: H2Connection, stream: int, peer: Peer) -> None:
        http.send_headers(stream, [(":status", "429"), ("retry-after", "3")])
        http.send_data(stream, b"b" * 2_000, end_stream=True)

    async def act(stage: Stage, app: Http2App) -> None:
        result: Result = await stage.send()
        assert isinstance(result, Answer)
        assert (result.status, result.retry_after) == (429, "3")
        assert result.body == b"b" * 1_024

    play(way, refuse, act)


@pytest.mark.parametrize(
    "end",
    [
        lambda http, stream, _: http.reset_stream(stream),
        lambda http, _, __: http.close_connection(),
    ],
)
def test_a_request_that_is_ended_is_broken(way: Way, end: Answering) -> None:
    async def act(stage: Stage, app: Http2App) -> None:
        result = await stage.send()
        assert isinstance(result, Failed)
        assert (result.kind, result.sent) == (FailureKind.BROKEN, True)

    play(way, end, act)


def test_a_request_that_was_given_up_spoils_nothing(way: Way) -> None:
    answering = False

    def answer(http: H2Connection, stream: int, peer: Peer) -> None:
        if answering:
            no_content(http, stream, peer)

    async def act(stage: Stage, app: Http2App) -> None:
        nonlocal answering
        slot = stage.slot()
        answered = slot.send()
        await app.whole.wait()
        assert slot.slot.abort() is True
        answering = True
        for _ in range(3):
            assert repr(await slot.send()) == "status 204"
        assert not answered.done()

    play(way, answer, act)


def test_20_mb_go_by_http2(way: Way) -> None:
    """More than any window: it is written as fast as the application takes it."""
    body = b"x" * 20_000_000

    async def act(stage: Stage, app: Http2App) -> None:
        assert repr(await stage.send(a_record(body))) == "status 204"
        assert [len(each) for each in app.bodies] == [len(body)]

    play(way, no_content, act)


def errors(kind: type[httpx.TransportError]) -> set[type[httpx.TransportError]]:
    return {kind}.union(*(errors(each) for each in kind.__subclasses__()))


@pytest.mark.parametrize("kind", sorted(errors(httpx.TransportError), key=repr))
def test_every_error_of_the_client_has_a_meaning(kind: type[httpx.TransportError]) -> None:
    """WIRE-1: only where nothing can have left is the application away."""
    unreachable = issubclass(kind, (httpx.ConnectError, httpx.ConnectTimeout))
    malformed = issubclass(kind, httpx.ProtocolError)
    assert _kind(kind("what it says")) is (
        FailureKind.UNREACHABLE
        if unreachable
        else FailureKind.MALFORMED
        if malformed
        else FailureKind.BROKEN
    )
    if malformed:
        assert _kind(kind("Server disconnected without sending a response.")) is FailureKind.BROKEN


def test_the_head_of_an_answer_counts_towards_its_limit() -> None:
    """As by HTTP/1.1: an answer to a batch that is longer is none."""
    reading = reading_of(DEFAULT_ANSWERS, batches=True)

    def read(body: int, value: int) -> Result:
        headers = {"x": "a" * value, "content-length": str(body)}
        response = httpx.Response(200, headers=headers, stream=httpx.ByteStream(b" " * body))
        return asyncio.run(_read(response, reading))

    assert isinstance(read(reading.limit - 1000, 100), Answer)
    assert isinstance(read(reading.limit - 1000, 1000), Failed)
