"""Bodies that are not the value, answers that are read, and credentials, by every way."""

from __future__ import annotations

import json

import pytest

from sidecar.core.answers import answer_table
from sidecar.core.presets import Preset
from sidecar.delivery import Credentials
from sidecar.delivery.connection import ANSWER_LIMIT
from sidecar.delivery.envelopes import LambdaShape
from sidecar.settings import Secret
from tests.contract.delivery.ways import Stage, Way, a_record, answer, answering, play
from tests.rig.hostile_app import NO_CONTENT

TOLD = b'{"status": "RETRY"}'
OK = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n"


@pytest.mark.parametrize(("preset", "kept"), [(Preset.DAPR, TOLD), (Preset.DEFAULT, b"")])
def test_the_body_of_a_success_is_read_by_presets_that_look_into_it(
    way: Way, preset: Preset, kept: bytes
) -> None:
    async def act(stage: Stage) -> None:
        assert answer(await stage.send()) == (200, None, kept)

    script = answering(OK % len(TOLD), TOLD[:5], TOLD[5:])
    play(way, script, act, answers=answer_table(preset, {}))


def test_of_a_long_success_no_more_is_read_than_the_limit(way: Way) -> None:
    long = b"x" * (2 * ANSWER_LIMIT)

    async def act(stage: Stage) -> None:
        status, _, body = answer(await stage.send())
        assert (status, set(body)) == (200, set(b"x"))
        assert 0 < len(body) <= ANSWER_LIMIT

    play(way, answering(OK % len(long), long), act, answers=answer_table(Preset.LAMBDA, {}))


def test_102_is_taken_where_it_is_an_answer(wire: Way) -> None:
    async def act(stage: Stage) -> None:
        slot = stage.slot()
        for _ in range(2):
            assert answer(await slot.send())[0] == 102
        assert stage.app.accepted == 2, "another answer might have followed"

    script = answering(b"HTTP/1.1 102 Processing\r\n\r\n", close=False)
    play(wire, script, act, answers=answer_table(Preset.PUBSUB, {}))


@pytest.mark.parametrize("value", [b"v", None, b"x" * 200_000])
def test_the_shaped_body_is_what_arrives(way: Way, value: bytes | None) -> None:
    async def act(stage: Stage) -> None:
        assert answer(await stage.send(a_record(value)))[0] == 204
        (received,) = stage.app.received
        assert list(json.loads(received.body)["records"]) == ["orders-3"]
        assert received.values("content-type") == [b"application/json"]
        assert received.values("content-length") == [b"%d" % len(received.body)]

    play(way, answering(NO_CONTENT), act, shape=LambdaShape("b:1"))


def test_credentials_arrive(way: Way) -> None:
    given = Credentials(
        headers={"X-Api-Key": Secret.parse("k")},
        bearer=Secret.parse("token"),
        signature=Secret.parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"),
    )

    async def act(stage: Stage) -> None:
        assert answer(await stage.send())[0] == 204
        (received,) = stage.app.received
        assert received.values("x-api-key") == [b"k"]
        assert received.values("authorization") == [b"Bearer token"]
        (identity,) = received.values("webhook-id")
        assert received.values("idempotency-key") == [b'"%b"' % identity]
        assert received.values("webhook-signature")[0].startswith(b"v1,")

    play(way, answering(NO_CONTENT), act, credentials=given)
