"""Batches: what travels together, and what becomes of records when a batch fails."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from sidecar.model import Guarantee, OnExhausted
from sidecar.settings import BatchSettings, RetrySettings
from tests.fakes.application import HANG, answer, broken
from tests.fakes.engine import World

BAD = 422


def batched(max_records: int = 10, max_wait_seconds: float = 0.1, **more: Any) -> World:
    batch = BatchSettings(max_records=max_records, max_wait_seconds=max_wait_seconds)
    return World(batch=batch, **{"threshold": 100, "executors": 4, **more})


def parked(world: World) -> list[int]:
    return sorted(offset for _, offset in world.judge.parked)


def rejects(*offsets: int) -> Any:
    return lambda request: answer(BAD if request.offset in offsets else 204)


def test_records_that_are_there_travel_together() -> None:
    world = batched()
    world.produce(100)
    world.run_until(lambda: world.lag() == 0)
    batches = world.members[0].app.batches
    assert sorted(offset for batch in batches for offset in batch) == list(range(100))
    assert all(len(batch) <= 10 for batch in batches)
    assert len(batches) <= 20


def test_a_lonely_record_waits_for_company_no_longer_than_it_may() -> None:
    world = batched(max_wait_seconds=2.0)
    member = world.members[0]
    world.run(5.0)
    world.produce(1)
    world.run_until(lambda: member.places.in_flight == 1)
    began = world.now
    assert not member.app.executing, "it holds no executor while it waits"
    world.run_until(lambda: bool(member.app.batches))
    assert 1.8 <= world.now - began <= 2.2


def test_what_waits_for_company_is_given_back_at_a_stop() -> None:
    world = batched(max_wait_seconds=50.0)
    member = world.members[0]
    world.produce(3)
    world.run_until(lambda: member.places.in_flight == 3)
    member.drain()
    world.run_until(lambda: not member.running, limit=3.0)
    assert member.app.batches == []
    assert world.lag() == 3


def test_a_full_batch_does_not_wait() -> None:
    world = batched(max_records=5, max_wait_seconds=50.0)
    world.produce(5)
    world.run_until(lambda: world.lag() == 0, limit=5.0)
    assert world.members[0].app.batches == [[0, 1, 2, 3, 4]]


def test_only_the_records_that_the_answer_names_are_sent_again() -> None:
    world = batched(behave=lambda r: answer(500 if r.offset in (3, 7) and r.attempt == 1 else 204))
    world.produce(10)
    world.run_until(lambda: world.lag() == 0)
    times = Counter(request.offset for request in world.members[0].app.requests)
    assert {offset for offset, count in times.items() if count > 1} == {3, 7}


def test_a_record_that_the_answer_rejects_is_parked_alone() -> None:
    world = batched(behave=rejects(3), on_exhausted=OnExhausted.PARK)
    world.produce(10)
    world.run_until(lambda: world.lag() == 0)
    assert parked(world) == [3]
    assert len(world.members[0].app.requests) == 10


@pytest.mark.parametrize("bad", [(0,), (7,), (15,), (3, 4), (0, 15)])
@pytest.mark.parametrize("status", [BAD, 500])
def test_a_batch_that_fails_as_a_whole_is_halved_down_to_the_records_at_fault(
    bad: tuple[int, ...], status: int
) -> None:
    """The neighbours are delivered, none of them is charged an attempt or parked."""
    world = batched(
        max_records=16,
        executors=1,
        behave=lambda r: answer(status if r.offset in bad else 204),
        on_exhausted=OnExhausted.PARK,
        retry=RetrySettings(max_attempts=2, initial_backoff_seconds=0.01),
    )
    world.members[0].app.names_failures = False
    world.produce(16)
    world.run_until(lambda: world.lag() == 0)
    assert parked(world) == list(bad)
    assert sorted({o for batch in world.members[0].app.batches for o in batch}) == list(range(16))
    assert len(world.members[0].app.batches) <= 6 * len(bad) + 5


def test_an_outage_splits_no_batch() -> None:
    """A refused connection says nothing about the records."""
    world = batched(max_records=10, max_wait_seconds=50.0)
    member = world.members[0]
    world.run(2.0)
    member.app.up = False
    world.produce(10)
    world.run(3.0)
    member.app.up = True
    world.run_until(lambda: world.lag() == 0)
    assert member.route.counters.failures.keys() <= {"unreachable"}


def test_a_batch_that_hangs_ends_at_the_deadline() -> None:
    world = batched(
        timeout_seconds=1.0,
        behave=lambda r: HANG if r.attempt == 1 else answer(),
        retry=RetrySettings(max_attempts=3, initial_backoff_seconds=0.01),
    )
    world.produce(10)
    world.run_until(lambda: world.lag() == 0, limit=10.0)
    assert world.members[0].route.counters.failures["timeout"] == 10


def test_at_most_once_sends_no_batch_again_that_may_have_been_processed() -> None:
    world = batched(
        guarantee=Guarantee.AT_MOST_ONCE,
        threshold=50,
        behave=lambda r: broken() if r.offset == 7 else answer(),
    )
    world.produce(30)
    world.run_until(lambda: world.lag() == 0)
    times = Counter(request.offset for request in world.members[0].app.requests)
    assert set(times.values()) == {1}


def test_at_most_once_sends_the_deferred_records_of_a_batch_again() -> None:
    world = batched(
        guarantee=Guarantee.AT_MOST_ONCE,
        threshold=50,
        behave=lambda r: answer(429 if r.offset == 7 and r.attempt == 1 else 204),
    )
    world.produce(30)
    world.run_until(lambda: world.lag() == 0 and not world.members[0].places.in_flight)
    times = Counter(request.offset for request in world.members[0].app.requests)
    assert {offset for offset, count in times.items() if count > 1} == {7}


def test_late_results_of_a_batch_are_dropped_and_counted() -> None:
    world = batched(behave=lambda r: HANG, timeout_seconds=500.0, partitions=2)
    member = world.members[0]
    for partition in range(2):
        world.produce(20, partition)
    world.run_until(lambda: sum(map(len, member.app.batches)) == 40)
    world.join()
    world.run_until(lambda: len(world.assignments(member)) == 1)
    for slot in list(member.app.executing):
        slot.reply(answer().result)
    world.run(2.0)
    assert member.route.counters.late_results == 20
    (kept,) = world.assignments(member)
    assert world.committed(kept).offset == 20
    assert world.committed(1 - kept).offset in (0, None)


def test_a_record_whose_neighbours_have_left_is_not_charged_for_their_batch() -> None:
    """The batch was rejected; the one record of it that is still ours was not alone in it."""
    world = batched(
        max_records=20,
        max_wait_seconds=3.0,
        executors=1,
        partitions=2,
        behave=lambda r: HANG,
        timeout_seconds=500.0,
        revoke_seconds=0.5,
        on_exhausted=OnExhausted.PARK,
    )
    member = world.members[0]
    world.produce(1, 0)
    world.produce(1, 1)
    world.run_until(lambda: [len(each) for each in member.app.batches] == [2])
    world.join()
    world.run_until(lambda: len(world.assignments(member)) == 1)
    world.behaviour = lambda r: answer()
    for slot in list(member.app.executing):
        slot.reply(answer(BAD).result)
    world.run_until(lambda: world.lag() == 0)
    assert parked(world) == []


def test_the_executing_records_are_counted_and_not_the_executors() -> None:
    world = batched(executors=1, behave=lambda r: HANG, timeout_seconds=500.0)
    member = world.members[0]
    world.produce(10)
    world.run_until(lambda: bool(member.app.executing))
    route = member.route
    assert (route.executing, route.executors.busy, route.buffered) == (10, 1, 0)
