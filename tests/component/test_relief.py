"""Head-of-line relief: one record that holds the watermark for too long is moved away."""

from __future__ import annotations

from typing import Any

import pytest

from sidecar.dispatch.relief import is_possible
from sidecar.model import Guarantee, OnExhausted, RelieveBy, RetryTopic
from sidecar.settings import RetrySettings, RetryTopicSettings
from tests.fakes.application import HANG, Reply, Request, answer
from tests.fakes.engine import World

PATIENT = 10_000.0


def hangs_at_first(*offsets: int) -> Any:
    def behave(request: Request) -> Reply:
        return HANG if request.offset in offsets and request.attempt == 1 else answer()

    return behave


def stuck(count: int = 300, *hanging: int, **settings: Any) -> World:
    retry = RetrySettings(topics=(RetryTopicSettings(delay_seconds=5),))
    defaults = {"retry": retry, "relieve_after_seconds": 20.0, "timeout_seconds": PATIENT}
    world = World(
        behave=hangs_at_first(*(hanging or (0,))), **{**defaults, **settings}, threshold=500
    )
    world.judge.relieves = True
    world.produce(count)
    return world


def test_a_record_that_hangs_is_cut_and_moved_and_the_watermark_jumps() -> None:
    world = stuck()
    world.run(15.0)
    assert world.committed().offset == 0
    world.run_until(lambda: world.lag() == 0)
    counters = world.members[0].route.counters
    assert (counters.relieved, counters.retried_later, counters.delivered) == (1, 1, 300)
    first, second = [each for each in world.requests if each.offset == 0]
    assert 25.0 <= second.at - first.at <= 28.0
    assert second.attempt == 2


def test_a_record_that_waits_out_a_long_backoff_is_moved_as_well() -> None:
    def behave(request: Request) -> Reply:
        if request.offset == 0 and request.attempt == 1:
            return answer(503, retry_after="300")
        return answer()

    world = stuck()
    world.behaviour = behave
    world.run_until(lambda: world.lag() == 0)
    assert world.members[0].route.counters.relieved == 1


def test_parking_instead_is_a_choice() -> None:
    world = stuck(on_exhausted=OnExhausted.PARK, relieve_by=RelieveBy.PARK, retry=RetrySettings())
    world.run_until(lambda: world.lag() == 0)
    (story,) = world.members[0].parking.stories
    assert story.reason == "relieved"
    assert "held the watermark for 20 s" in story.detail


def test_what_is_relieved_counts_among_those_that_are_parked_in_a_row() -> None:
    """And a delivery ends the row, as it does for all others."""
    world = stuck(
        300,
        *range(3),
        on_exhausted=OnExhausted.PARK,
        relieve_by=RelieveBy.PARK,
        retry=RetrySettings(),
        max_parked_in_a_row=1,
    )
    world.run(60.0)
    counters = world.members[0].route.counters
    assert counters.relieved == 1
    world.produce(1)
    world.run(5.0)
    assert counters.relieved == 2


def test_where_much_is_open_nobody_is_moved() -> None:
    """Neither where little lies behind it: then it holds nothing up."""
    for world in (stuck(50), stuck(200, *range(0, 200, 10), executors=32)):
        world.run(60.0)
        assert world.members[0].route.counters.relieved == 0


def test_no_more_than_two_in_a_hundred_are_moved() -> None:
    world = stuck(120, *range(5), executors=32)
    world.run(200.0)
    assert world.members[0].route.counters.relieved == 2


def test_an_outage_does_not_count() -> None:
    """The time begins when the application is back."""
    world = stuck()
    world.run(5.0)
    member = world.members[0]
    member.app.up = False
    world.produce(1)
    world.run(60.0)
    assert member.route.counters.relieved == 0
    member.app.up = True
    world.run(18.0)
    assert member.route.counters.relieved == 0
    world.run_until(lambda: member.route.counters.relieved == 1)


@pytest.mark.parametrize("settings", [{"retry": RetrySettings()}, {"relieve_after_seconds": 0.0}])
def test_neither_without_a_place_nor_where_it_is_switched_off(settings: dict[str, Any]) -> None:
    world = stuck(**settings)
    world.run(60.0)
    assert world.members[0].route.counters.relieved == 0


def test_nothing_is_relieved_where_nothing_may_be_repeated() -> None:
    world = World(guarantee=Guarantee.AT_MOST_ONCE)
    topics = [RetryTopic("a", 0.0), RetryTopic("b", 5.0)]
    assert not is_possible(world.settings, topics)
    kept = World().settings
    assert is_possible(kept, topics)
