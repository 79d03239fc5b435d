"""Partitions come and go, in at_least_once: late results, epochs, retries, revocation."""

from __future__ import annotations

from typing import Final

import pytest

from sidecar.model import OnExhausted
from sidecar.settings import RetrySettings
from tests.fakes.application import HANG, Reply, Request, answer
from tests.fakes.broker import Protocol
from tests.fakes.engine import GROUP, World

PATIENT: Final = 1000.0


def test_a_late_answer_commits_nothing_for_a_partition_that_left() -> None:
    """REB-1: it is counted, and the engine goes on."""

    def behave(request: Request) -> Reply:
        return answer(seconds=10.0 if request.member == "member-0" else 0.01)

    world = World(partitions=2, timeout_seconds=PATIENT, revoke_seconds=2.0, behave=behave)
    world.produce(1, partition=1)
    first = world.members[0]
    world.run_until(lambda: len(first.app.requests) == 1)
    second = world.join()
    world.run_until(lambda: len(second.owned) == 1 and world.lag() == 0)
    world.run_until(lambda: first.route.counters.delivered == 1)
    world.run(3.0)
    assert first.route.counters.late_results == 1
    history = world.broker.group(GROUP).history
    assert {c.member for c in history if c.partition.number == 1 and c.offset == 1} == {second.name}
    world.produce(1, partition=0)
    world.run_until(lambda: world.lag() == 0)


def test_old_results_are_not_credited_to_the_new_assignment() -> None:
    """REB-2: the partition leaves and returns while answers are under way."""
    first_epoch = 5

    def behave(request: Request) -> Reply:
        if len(world.requests) <= first_epoch:
            return HANG if request.offset in (1, 2) else answer(seconds=10.0)
        return answer(seconds=30.0)

    world = World(executors=10, timeout_seconds=PATIENT)
    world.produce(1)
    world.run_until(lambda: world.committed().offset == 1)
    member = world.members[0]
    member.app.requests.clear()
    world.behaviour = behave
    world.produce(5)
    world.run_until(lambda: len(member.app.requests) == first_epoch)
    world.broker.expel(GROUP, member.name)
    world.run_until(lambda: len(member.app.requests) == 2 * first_epoch)
    world.run_until(lambda: member.route.counters.late_results == 3)
    assert [state.outstanding for state in member.route.offsets.partitions()] == [5]
    world.run(5.0)
    assert world.committed().offset == 1
    world.run_until(lambda: world.committed().offset == 6)


@pytest.mark.parametrize("leaving", ["rebalance", "drain"])
def test_a_record_whose_retries_are_cut_short_is_offered_to_the_next_owner(leaving: str) -> None:
    """REB-7: it is not done because its owner stopped."""
    world = World(
        partitions=2,
        on_exhausted=OnExhausted.RETRY_FOREVER,
        behave=lambda r: answer(500 if r.offset == 1 else 204),
    )
    world.produce(3, partition=1)
    first = world.members[0]
    world.run_until(lambda: sum(r.offset == 1 for r in first.app.requests) > 2)
    second = world.join()
    if leaving == "drain":
        first.drain(cut_after=20.0)
        world.run_until(lambda: not first.running, limit=5.0)
    world.run_until(lambda: any(r.offset == 1 for r in second.app.requests))
    assert world.committed(1).offset == 1
    assert {r.offset for r in second.app.requests} == {1}
    world.behaviour = lambda request: answer()
    world.run_until(lambda: world.lag() == 0)


def test_a_record_that_waits_for_its_retry_does_not_hold_up_a_rebalance() -> None:
    """REB-8: no executor sleeps, so the partition leaves at once and once."""
    world = World(
        partitions=2,
        retry=RetrySettings(
            max_attempts=100, initial_backoff_seconds=60.0, max_backoff_seconds=60.0
        ),
        behave=lambda request: answer(503),
    )
    world.produce(1, partition=1)
    first = world.members[0]
    world.run_until(lambda: first.route.delayed == 1)
    second = world.join()
    world.run_until(lambda: len(second.owned) == 1, limit=1.0)
    world.run(300.0)
    assert first.route.counters.rebalances == 1
    assert second.route.counters.rebalances == 0
    assert first.places.in_flight == 0
    assert world.committed(1).offset == 0


def test_commits_and_rebalances_do_not_wait_for_each_other() -> None:
    """CTL-3: a commit every 10 ms, and 50 rebalances."""
    world = World(
        partitions=4,
        members=2,
        commit_interval_seconds=0.01,
        protocol=Protocol.EAGER,
        behave=lambda request: answer(seconds=0.03 * (1 + request.offset % 5)),
    )
    for _ in range(50):
        for partition in range(4):
            world.produce(5, partition)
        world.run(0.05)
        world.broker.rejoin(world.broker.group(GROUP))
        world.run_until(lambda: world.lag() == 0, limit=5.0)
    assert world.broker.group(GROUP).generation >= 50


def test_a_revocation_waits_for_what_executes() -> None:
    """The next owner repeats nothing that ends in time."""
    world = World(partitions=2, behave=lambda request: answer(seconds=3.0))
    world.produce(4, partition=1)
    first = world.members[0]
    world.run_until(lambda: len(first.app.requests) == 4)
    second = world.join()
    world.run_until(lambda: len(second.owned) == 1)
    world.run(5.0)
    assert world.committed(1).offset == 4
    assert second.app.requests == []


def test_a_failing_park_is_left_to_the_next_owner() -> None:
    world = World(partitions=2, on_exhausted=OnExhausted.PARK, behave=lambda request: answer(400))
    world.produce(1, partition=1)
    first = world.members[0]
    first.parking.error = "not enough replicas"
    world.run_until(lambda: first.route.parker.failures > 1)
    second = world.join()
    world.run_until(lambda: len(second.owned) == 1)
    assert first.places.in_flight == 0
    writes = first.parking.writes
    world.run(120.0)
    assert first.parking.writes == writes
    assert len(second.parking.records) == 1
    assert world.lag() == 0


def test_a_busy_loop_costs_a_revocation_its_commit_and_nothing_else() -> None:
    """The fetch thread waits no longer than it may; what was settled is repeated, not lost."""
    world = World(partitions=2, revoke_seconds=1.0)
    world.produce(5, partition=1)
    first = world.members[0]
    world.run_until(lambda: first.route.counters.delivered == 5)
    first.clock.stall(30.0)
    second = world.join()
    world.run_until(lambda: len(second.owned) == 1, limit=10.0)
    world.run_until(lambda: world.committed(1).offset == 5)
    world.run(30.0)
    assert first.route.counters.rebalances == 1
    assert len(world.offsets_sent(1)) <= 10


def test_a_revocation_gives_back_what_was_not_started() -> None:
    """Only what executes is finished; the next owner begins behind it."""
    world = World(partitions=2, executors=2, behave=lambda request: answer(seconds=1.0))
    world.produce(50, partition=1)
    first = world.members[0]
    world.run_until(lambda: first.places.in_flight == 50 and first.route.executing == 2)
    second = world.join()
    world.run_until(lambda: len(second.owned) == 1)
    assert first.places.in_flight == 0
    world.run_until(lambda: world.lag() == 0)
    assert len(first.app.requests) <= 4
    assert len(world.requests) == 50


def test_a_failure_after_the_revocation_is_left_to_the_next_owner() -> None:
    """It is neither waited for nor tried again here."""
    world = World(
        partitions=2,
        retry=RetrySettings(max_attempts=9, initial_backoff_seconds=60.0, max_backoff_seconds=60.0),
        behave=lambda r: answer(500 if r.member == "member-0" else 204, 2.0),
    )
    world.produce(1, partition=1)
    first = world.members[0]
    world.run_until(lambda: len(first.app.requests) == 1)
    second = world.join()
    world.run_until(lambda: len(second.owned) == 1, limit=2.5)
    assert first.places.in_flight == 0
    world.run_until(lambda: world.lag() == 0)
    world.run(120.0)
    assert len(first.app.requests) == 1
