"""Many records in one request, by every way."""

from __future__ import annotations

import asyncio
import json

import pytest

from sidecar.delivery.batches import RecordsBatch
from sidecar.delivery.connection import BATCH_ANSWER_LIMIT
from sidecar.model import UNREADABLE_HEADERS, FailureKind, Record, Result
from tests.contract.delivery.ways import (
    Stage,
    Way,
    a_record,
    answer,
    answering,
    failure,
    play,
)
from tests.rig.hostile_app import NO_CONTENT

BATCH = [a_record(b"1"), a_record(b"2", offset=43)]


async def send(stage: Stage, records: list[Record]) -> Result:
    answered: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
    slot = stage.delivery.open_slot()
    slot.send_batch([(record, 1) for record in records], answered.set_result)
    assert not answered.done(), "done was called before send_batch returned"
    return await answered


def ok(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


@pytest.mark.parametrize("size", [1, 1000, 200_000])
def test_a_batch_is_one_request(way: Way, size: int) -> None:
    async def act(stage: Stage) -> None:
        records = [a_record(b"x" * size), a_record(b"2", offset=43)]
        assert answer(await send(stage, records)) == (204, None, b"")
        (received,) = stage.app.received
        assert [each["offset"] for each in json.loads(received.body)] == [42, 43]

    play(way, answering(NO_CONTENT), act, batch_shape=RecordsBatch())


def test_the_answer_to_a_batch_is_read_whole(way: Way) -> None:
    body = json.dumps({"failures": list(range(50_000))}).encode()

    async def act(stage: Stage) -> None:
        assert answer(await send(stage, BATCH)) == (200, None, body)

    play(way, answering(ok(body)), act, batch_shape=RecordsBatch())


def test_an_answer_that_cannot_be_read_whole_is_none(way: Way) -> None:
    """Of what was cut off nobody knows whom it named."""

    async def act(stage: Stage) -> None:
        result = await send(stage, BATCH)
        assert failure(result) == (FailureKind.MALFORMED, True)
        assert "longer than" in repr(result)

    play(way, answering(ok(b" " * (2 * BATCH_ANSWER_LIMIT))), act, batch_shape=RecordsBatch())


def test_a_failure_of_a_batch_is_its_status_however_long_it_is(way: Way) -> None:
    head = b"HTTP/1.1 500 Oops\r\nContent-Length: %d\r\n\r\n" % (2 * BATCH_ANSWER_LIMIT)

    async def act(stage: Stage) -> None:
        assert answer(await send(stage, BATCH))[0] == 500

    play(
        way,
        answering(head, b" " * (2 * BATCH_ANSWER_LIMIT)),
        act,
        batch_shape=RecordsBatch(),
    )


def test_a_batch_that_cannot_be_sent_says_so(way: Way) -> None:
    async def act(stage: Stage) -> None:
        records = [a_record(b"1"), a_record(headers=UNREADABLE_HEADERS)]
        assert failure(await send(stage, records)) == (FailureKind.UNSENDABLE, False)
        assert stage.app.received == []

    play(way, answering(NO_CONTENT), act, batch_shape=RecordsBatch())
