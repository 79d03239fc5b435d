"""Delivery by HTTP/2, to an application that speaks nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trustme
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, RequestReceived, StreamEnded

from sidecar.model import Answer, Failed, FailureKind, Result
from tests.contract.delivery.ways import Stage, Way, a_record, ways
from tests.rig.hostile_app import Peer

Answering = Callable[[H2Connection, int], None]


@pytest.fixture
def way(tmp_path: Path) -> Way:
    return ways("http2", tmp_path, trustme.CA())


class App:
    """Keeps what it received; answers a request when it is whole."""

    def __init__(self, answer: Answering) -> None:
        self.answer = answer
        self.heads: list[list[tuple[bytes, bytes]]] = []
        self.bodies: dict[int, bytes] = {}
        self.whole = asyncio.Event()

    async def script(self, peer: Peer) -> None:
        http = H2Connection(H2Configuration(client_side=False, header_encoding=False))
        http.initiate_connection()
        await peer.send(http.data_to_send())
        while data := await peer.reader.read(65_536):
            for event in http.receive_data(data):
                if isinstance(event, RequestReceived):
                    self.heads.append(list(event.headers or []))
                elif isinstance(event, DataReceived):
                    assert event.stream_id is not None
                    assert event.data is not None
                    body = self.bodies.get(event.stream_id, b"")
                    self.bodies[event.stream_id] = body + event.data
                    http.acknowledge_received_data(
                        event.flow_controlled_length or 0, event.stream_id
                    )
                elif isinstance(event, StreamEnded):
                    assert event.stream_id is not None
                    self.answer(http, event.stream_id)
                    self.whole.set()
            await peer.send(http.data_to_send())


def play(way: Way, answer: Answering, act: Callable[[Stage, App], Awaitable[None]]) -> None:
    async def main() -> None:
        app = App(answer)
        async with way.stage(app.script) as stage:
            await act(stage, app)

    way.run(main)


def no_content(http: H2Connection, stream: int) -> None:
    http.send_headers(stream, [(":status", "204")], end_stream=True)


def test_the_request_is_the_same_by_http2(way: Way) -> None:
    async def act(stage: Stage, app: App) -> None:
        record = a_record(b"v" * 100_000, b"\x00", [("n", b"1"), ("n", b"2")])
        assert repr(await stage.send(record)) == "status 204"
        head = app.heads[0]
        assert (b":method", b"POST") in head
        assert (b":path", b"/events/orders") in head
        assert (b"kafka-key", b":AA==:") in head
        assert [value for name, value in head if name == b"kafka-header-n"] == [b"1", b"2"]
        assert list(app.bodies.values()) == [b"v" * 100_000]

    play(way, no_content, act)


def test_many_slots_share_one_connection(way: Way) -> None:
    async def act(stage: Stage, app: App) -> None:
        await stage.send()
        slots = [stage.slot() for _ in range(20)]
        results = await asyncio.gather(*(slot.send() for slot in slots))
        assert [repr(each) for each in results] == ["status 204"] * 20
        assert stage.app.accepted == 1

    play(way, no_content, act)


def test_an_answer_with_a_body(way: Way) -> None:
    def refuse(http: H2Connection, stream: int) -> None:
        http.send_headers(stream, [(":status", "429"), ("retry-after", "3")])
        http.send_data(stream, b"b" * 2_000, end_stream=True)

    async def act(stage: Stage, app: App) -> None:
        result: Result = await stage.send()
        assert isinstance(result, Answer)
        assert (result.status, result.retry_after) == (429, "3")
        assert result.body == b"b" * 1_024

    play(way, refuse, act)


@pytest.mark.parametrize(
    "end", [H2Connection.reset_stream, lambda http, _: http.close_connection()]
)
def test_a_request_that_is_ended_is_broken(way: Way, end: Answering) -> None:
    async def act(stage: Stage, app: App) -> None:
        result = await stage.send()
        assert isinstance(result, Failed)
        assert (result.kind, result.sent) == (FailureKind.BROKEN, True)

    play(way, end, act)


def test_a_request_that_was_given_up_spoils_nothing(way: Way) -> None:
    answering = False

    def answer(http: H2Connection, stream: int) -> None:
        if answering:
            no_content(http, stream)

    async def act(stage: Stage, app: App) -> None:
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
