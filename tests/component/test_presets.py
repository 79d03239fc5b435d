"""What answers of applications written for other systems come to, on the whole engine."""

from __future__ import annotations

import pytest

from sidecar.core.presets import Preset
from sidecar.model import Answer, Guarantee, OnExhausted, Outcome, Record, Result
from sidecar.settings import RetrySettings
from tests.fakes.application import Reply, Request, answer
from tests.fakes.engine import World

QUICK = RetrySettings(max_attempts=3, initial_backoff_seconds=0.01, max_backoff_seconds=0.05)


def says(status: bytes) -> Reply:
    return Reply(0.01, Answer(200, body=b'{"status": "%b"}' % status))


def dapr(request: Request) -> Reply:
    """Drops 1, asks for 2 again and again, does not know 3, and takes the rest."""
    return {1: says(b"DROP"), 2: says(b"RETRY"), 3: answer(404)}.get(
        request.offset, says(b"SUCCESS")
    )


def taught(world: World, meaning: dict[int, int], *, drops: bool = False) -> World:
    """The judge knows the default's statuses: what it is told instead, by offset."""
    told = world.judge.answered

    def answered(member: str, record: Record, attempt: int, result: Result) -> None:
        told(member, record, attempt, Answer(meaning.get(record.offset, 204)))

    vars(world.judge).update(answered=answered, _drops=drops)
    return world


def test_what_the_application_drops_is_parked_once_under_a_reason_of_its_own() -> None:
    """OBS-3: asked to drop and given up are told apart."""
    world = World(on_exhausted=OnExhausted.PARK, retry=QUICK, preset=Preset.DAPR, behave=dapr)
    taught(world, {1: 400, 2: 500, 3: 400})
    world.produce(5)
    world.run_until(lambda: world.lag() == 0)
    parking = world.members[0].parking
    told = {
        r.offset: (s.reason, s.attempts)
        for r, s in zip(parking.records, parking.stories, strict=True)
    }
    assert told == {1: ("app_drop", 1), 2: ("answer_retry", 3), 3: ("app_drop", 1)}
    assert world.members[0].route.counters.failures == {"app_drop": 2, "answer_retry": 3}


@pytest.mark.parametrize("guarantee", list(Guarantee))
def test_without_a_dead_letter_topic_it_is_dropped_and_counted(guarantee: Guarantee) -> None:
    """Nothing is exhausted: not even retry_forever, the default, sends it again."""
    world = World(
        guarantee=guarantee,
        retry=QUICK,
        preset=Preset.DAPR,
        behave=lambda r: says(b"DROP") if r.offset == 1 else says(b"SUCCESS"),
    )
    taught(world, {1: 400}, drops=True)
    world.produce(5)
    counters = world.members[0].route.counters
    world.run_until(lambda: counters.delivered + counters.dropped == 5)
    assert (counters.delivered, counters.dropped) == (4, 1)
    assert counters.failures == {"app_drop": 1}
    world.run_until(lambda: world.lag() == 0)
    assert sum(r.offset == 1 for r in world.members[0].app.requests) == 1


def test_an_override_decides_on_the_route() -> None:
    world = World(
        retry=QUICK,
        answers={"409": Outcome.DELIVERED},
        behave=lambda r: answer(409 if r.offset == 1 else 204),
    )
    taught(world, {})
    world.produce(3)
    world.run_until(lambda: world.lag() == 0)
    assert world.members[0].route.counters.delivered == 3
