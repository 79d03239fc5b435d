"""Durable retries: from memory to topic to topic, due and not before, always the original."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Final

import pytest

from sidecar.core.retry_mark import RETRY_MARK, RetryMark, marked, read_mark
from sidecar.dispatch.causes import Now
from sidecar.dispatch.status import executing_records, partition_statuses, route_status
from sidecar.model import OnExhausted, Partition
from sidecar.settings import BatchSettings, RetrySettings, RetryTopicSettings
from sidecar.status import CauseName, RecordAction, RecordPlace
from tests.fakes.application import HANG, Reply, Request, answer
from tests.fakes.engine import GROUP, TOPIC, World

GRACE: Final = 1.0


def tiers(*delays: float, **more: Any) -> RetrySettings:
    topics = tuple(RetryTopicSettings(delay_seconds=delay) for delay in delays)
    quick = {"max_attempts": 2, "initial_backoff_seconds": 0.1, "max_backoff_seconds": 0.1}
    return RetrySettings(topics=topics, **{**quick, **more})


def always(status: int, offset: int = 0) -> Any:
    return lambda request: answer(status if request.offset == offset else 204)


def gaps(world: World, offset: int = 0) -> list[float]:
    times = [each.at for each in world.requests if each.offset == offset]
    return [after - before for before, after in pairwise(times)]


def test_a_record_that_always_fails_goes_through_all_tiers_and_is_parked() -> None:
    """DLQ-8: each gap is at least its delay and at most a second more; neighbours feel nothing."""
    world = World(
        on_exhausted=OnExhausted.PARK, retry=tiers(1, 2, 4), behave=always(500), threshold=20
    )
    world.produce(50)
    world.run_until(lambda: world.lag() == 0)
    member = world.members[0]
    assert [each.attempt for each in world.requests if each.offset == 0] == [1, 2, 3, 4, 5]
    memory, *later = gaps(world)
    assert memory < 0.2
    for gap, delay in zip(later, (1, 2, 4), strict=True):
        assert delay <= gap <= delay + GRACE
    (story,) = member.parking.stories
    first = next(each for each in world.requests if each.offset == 0)
    assert story.attempts == 5
    assert story.first_attempt_at == pytest.approx(1_700_000_000.0 + first.at, abs=0.001)
    (parked,) = member.parking.parked
    assert ("sidecar-dlq-topic", b"orders") in parked.headers
    assert ("sidecar-dlq-offset", b"0") in parked.headers
    assert RETRY_MARK not in dict(parked.headers)
    assert member.route.counters.retried_later == 3
    assert member.route.counters.rebalances == 0


def test_what_came_back_executes_under_its_original_coordinates() -> None:
    def fails_once(request: Request) -> Reply:
        return answer(500) if request.attempt < 3 else HANG

    world = World(retry=tiers(1), behave=fails_once, timeout_seconds=1000.0)
    world.produce(3)
    world.run_until(lambda: any(each.attempt == 3 for each in world.requests))
    (first, *_) = executing_records(world.members[0].route, Now(world.now, 0.0), 10)
    assert (first.topic, first.attempt) == (TOPIC, 3)
    assert first.offset in range(3)


def test_one_attempt_is_all_that_each_tier_gives_and_success_ends_it() -> None:
    world = World(
        retry=tiers(1, 1.5),
        behave=lambda request: answer(204 if request.attempt == 3 else 500),
    )
    world.produce(1)
    world.run_until(lambda: world.lag() == 0)
    assert [each.attempt for each in world.requests] == [1, 2, 3]
    assert world.members[0].route.counters.retried_later == 1


def test_what_is_rejected_is_parked_from_anywhere() -> None:
    world = World(
        on_exhausted=OnExhausted.PARK,
        retry=tiers(1, 2),
        behave=lambda request: answer(500 if request.attempt < 3 else 422),
    )
    world.produce(1)
    world.run_until(lambda: world.lag() == 0)
    (story,) = world.members[0].parking.stories
    assert (story.status, story.attempts) == (422, 3)


def test_an_outage_moves_nothing_and_charges_nothing() -> None:
    """Neither in memory nor for a record that has come back."""
    world = World(on_exhausted=OnExhausted.PARK, retry=tiers(1, 2), behave=always(500))
    world.produce(3)
    member = world.members[0]
    world.run_until(lambda: member.route.counters.retried_later == 1)
    member.app.up = False
    world.run(30.0)
    assert (member.route.counters.retried_later, member.parking.parked) == (1, [])
    member.app.up = True
    world.run_until(lambda: world.lag() == 0)
    assert member.route.counters.retried_later == 2


def test_a_bad_deployment_moves_as_few_as_it_parks() -> None:
    """Writes to retry topics count as parked in a row."""
    bad = True
    world = World(
        retry=tiers(30, max_attempts=1),
        max_parked_in_a_row=4,
        behave=lambda _: answer(500 if bad else 204),
    )
    world.produce(40)
    member = world.members[0]
    world.run(20.0)
    assert member.route.counters.retried_later == 4
    bad = False
    world.run_until(lambda: world.lag() == 0)
    assert (member.route.counters.retried_later, member.route.counters.delivered) == (4, 40)


def test_what_is_not_due_holds_no_place_and_is_no_backlog() -> None:
    world = World(
        retry=tiers(30, max_attempts=1),
        max_parked_in_a_row=40,
        threshold=5,
        behave=lambda request: answer(500 if request.attempt == 1 else 204),
    )
    world.produce(40)
    member = world.members[0]
    world.run_until(lambda: member.route.counters.retried_later == 40)
    world.run(20.0)
    assert member.places.in_flight == 0
    now = Now(world.now, world.wall_clock())
    states = partition_statuses(member.route, now, member.fetcher.ends, member.fetcher.paused)
    (later,) = [each for each in states if each.delay_seconds == 30]
    assert (later.paused, later.lag) == (True, 40)
    assert [each.delay_seconds for each in states if each.topic == TOPIC] == [None]
    world.run_until(lambda: world.lag() == 0)
    assert member.route.counters.delivered == 40


@pytest.mark.parametrize("delay", [5, 40])
def test_a_full_buffer_wakes_no_partition_and_a_due_one_waits_for_room(delay: int) -> None:
    """The intake pauses everything at 5 s, and resumes everything at 15 s."""
    blocked = True

    def behave(request: Request) -> Reply:
        if request.offset == 0 and request.attempt < 3:
            return answer(500)
        return HANG if blocked and request.offset > 0 else answer()

    world = World(
        retry=tiers(delay), threshold=4, executors=4, timeout_seconds=1000.0, behave=behave
    )
    world.produce(1)
    member = world.members[0]
    world.run_until(lambda: member.route.counters.retried_later == 1)
    world.produce(10)
    world.run(15.0)  # everything is paused by now, and the record due
    assert len(gaps(world)) == 1
    blocked = False
    for slot in list(member.app.executing):
        slot.reply(answer().result)
    world.run_until(lambda: world.lag() == 0)
    assert gaps(world)[-1] >= delay


@pytest.mark.parametrize("leave", ["drain", "crash"])
def test_another_member_goes_on_where_the_first_left(leave: str) -> None:
    """REB-7, REB-8: the count of attempts survives, and nothing is early or lost."""
    world = World(on_exhausted=OnExhausted.PARK, retry=tiers(3, 6), behave=always(500))
    world.produce(20)
    first = world.members[0]
    world.run_until(lambda: first.route.counters.retried_later == 1)
    world.run(1.5)
    second = world.join()
    (first.drain if leave == "drain" else first.crash)()
    world.run_until(lambda: world.lag() == 0)
    assert [each.attempt for each in world.requests if each.offset == 0] == [1, 2, 3, 4]
    for gap, delay in zip(gaps(world)[1:], (3, 6), strict=True):
        assert gap >= delay
    assert second.parking.stories[0].attempts == 4


def test_failing_writes_are_visible_and_heal() -> None:
    """DLQ-2, for retry topics."""
    world = World(retry=tiers(1), behave=lambda r: answer(500 if r.attempt < 3 else 204))
    member = world.members[0]
    member.parking.error = "no such topic"
    world.produce(3)
    world.run(5.0)
    now = Now(world.now, world.wall_clock())
    causes = [each.cause for each in route_status(member.route, now).causes]
    assert CauseName.DEAD_LETTER_WRITES_FAILING in causes
    assert world.committed().offset in (None, 0)
    member.parking.error = None
    world.run_until(lambda: world.lag() == 0)
    assert not member.route.parker.failures


def redriven(world: World, offset: int, attempts: int = 7) -> None:
    mark = RetryMark(TOPIC, 0, offset, 5, attempts, 1_600_000_000_000, 0)
    world.broker.produce(world.retry_topics[0].name, 0, b"v", headers=marked([], mark))


def test_a_redriven_record_gets_the_whole_policy() -> None:
    """By the topic without a delay: at once, all attempts in memory, then all tiers."""
    world = World(on_exhausted=OnExhausted.PARK, retry=tiers(1, 2), behave=always(500, 99))
    redriven(world, 99)
    world.run_until(lambda: world.lag() == 0 and bool(world.requests))
    assert [each.attempt for each in world.requests] == [8, 9, 10, 11]
    assert gaps(world, 99)[0] < 0.2
    (story,) = world.members[0].parking.stories
    assert (story.attempts, story.first_attempt_at) == (11, 1_600_000_000.0)


def test_the_last_tier_hands_over_to_on_exhausted() -> None:
    world = World(on_exhausted=OnExhausted.DROP, retry=tiers(1), behave=always(500))
    world.produce(2)
    world.run_until(lambda: world.lag() == 0)
    assert world.members[0].route.counters.dropped == 1
    assert len(gaps(world)) == 2


def test_retry_topics_are_read_from_their_beginning_whatever_the_policy() -> None:
    """What was written before anybody read it is not skipped by auto.offset.reset: latest."""
    world = World(members=0, from_end=True, retry=tiers(1))
    redriven(world, 5)
    world.judge.starts_at(Partition(TOPIC, 0), 0)
    world.join()
    world.run_until(lambda: len(world.requests) == 1)


def test_a_batch_is_about_one_original_topic() -> None:
    world = World(retry=tiers(1), batch=BatchSettings(max_records=10, max_wait_seconds=0.5))
    for offset in (50, 51):
        redriven(world, offset)
    world.produce(3)
    world.run_until(lambda: world.lag() == 0 and len(world.requests) == 5)
    assert sorted(map(len, world.members[0].app.batches)) == [5]


def test_the_mark_is_what_lies_in_the_topic() -> None:
    world = World(retry=tiers(7), behave=always(500))
    world.produce(1)
    member = world.members[0]
    world.run_until(lambda: member.route.counters.retried_later == 1)
    (entry,) = world.broker.topics[world.retry_topics[1].name].logs[0].entries
    mark = read_mark(entry.headers)
    assert mark is not None
    assert (mark.topic, mark.partition, mark.offset, mark.attempts) == (TOPIC, 0, 0, 2)
    assert world.broker.committed(GROUP, TOPIC).offset in (None, 0, 1)


def test_parked_by_hand_a_record_that_came_back_tells_its_whole_story() -> None:
    world = World(on_exhausted=OnExhausted.PARK, retry=tiers(5), behave=always(500), threshold=20)
    world.produce(3)
    member = world.members[0]
    world.run_until(lambda: member.route.counters.retried_later == 1)
    member.route.pause()
    world.run_until(lambda: member.route.startable == 1, limit=10.0)
    (entry,) = member.route.ready.entries()
    assert member.treat_by_hand(RecordAction.PARK, entry.record) is RecordPlace.BUFFERED
    world.run_until(lambda: bool(member.parking.stories))
    (story,) = member.parking.stories
    first = next(each for each in world.requests if each.offset == 0)
    assert (story.reason, story.attempts) == ("by_hand", 2)
    assert story.first_attempt_at == pytest.approx(1_700_000_000.0 + first.at, abs=0.001)
