"""What is committed, in at_least_once: contiguity, holes, markers, the done-map."""

from __future__ import annotations

from typing import Final

import pytest

from sidecar.core.done_map import MAX_CHARACTERS
from sidecar.errors import CommitFailed
from sidecar.settings import RetrySettings
from tests.fakes.application import HANG, Reply, Request, answer
from tests.fakes.engine import GROUP, TOPIC, World

PATIENT: Final = 1000.0  # a deadline that no test waits for


def test_a_later_success_commits_nothing_past_an_open_record() -> None:
    """OFF-1: the open record comes again after a crash."""
    world = World(timeout_seconds=PATIENT, behave=lambda r: HANG if r.offset == 1 else answer())
    world.produce(3)
    world.run(4.0)
    assert world.committed().offset == 1
    world.members[0].crash()
    world.behaviour = lambda request: answer()
    second = world.join()
    world.run_until(lambda: world.lag() == 0)
    assert [request.offset for request in second.app.requests] == [1]  # 2 is in the done-map


@pytest.mark.parametrize("first", [0, 31])
def test_a_slow_first_record_holds_the_commit_and_then_it_jumps(first: int) -> None:
    """OFF-2: wherever the partition begins."""

    def behave(request: Request) -> Reply:
        return answer(seconds=20.0 if request.offset == first else 0.1)

    world = World(executors=2, timeout_seconds=PATIENT, behave=behave)
    world.broker.truncate(TOPIC, 0, first)
    world.produce(10)
    world.run(19.0)
    assert set(world.committed_offsets()) == {first}
    world.run_until(lambda: world.lag() == 0)
    assert set(world.committed_offsets()) == {first, first + 10}


def test_holes_do_not_stop_the_commits() -> None:
    """OFF-3: contiguous are the offsets that exist."""
    world = World()
    for offset in (0, 1, 5, 6, 9):
        world.broker.produce(TOPIC, offset=offset)
    world.run_until(lambda: world.committed().offset == 10)
    assert world.lag() == 0


def test_transaction_markers_leave_no_lag() -> None:
    """OFF-4: neither the marker of a committed transaction nor an aborted one."""
    world = World()
    world.produce(3)
    world.broker.end_transaction(TOPIC)
    world.run_until(lambda: world.committed().offset == 4)
    world.broker.produce(TOPIC, visible=False)
    world.broker.end_transaction(TOPIC)
    world.run_until(lambda: world.lag() == 0)
    assert world.committed().offset == 6


def test_markers_do_not_carry_the_commit_past_an_open_record() -> None:
    """OFF-4: the other way round."""
    world = World(timeout_seconds=PATIENT, behave=lambda r: HANG if r.offset == 1 else answer())
    world.produce(3)
    world.broker.end_transaction(TOPIC)
    world.run(10.0)
    assert world.committed().offset == 1


def test_twenty_thousand_records_behind_a_stuck_one() -> None:
    """OFF-6: every commit succeeds, and a crash repeats what was cut from the done-map, no more."""
    count = 20_000

    def behave(request: Request) -> Reply:
        if request.offset == 0:
            return HANG
        return answer(500 if request.offset % 2 else 204, 0.001)

    world = World(
        threshold=count + 1,
        executors=200,
        timeout_seconds=PATIENT,
        retry=RetrySettings(
            max_attempts=1000, initial_backoff_seconds=PATIENT, max_backoff_seconds=PATIENT
        ),
        behave=behave,
    )
    world.produce(count)
    first = world.members[0]
    world.run_until(lambda: first.route.counters.received == count)
    world.run_until(lambda: len(first.app.requests) >= count)
    world.run(2.5)
    history = world.broker.group(GROUP).history
    assert {commit.offset for commit in history} == {0}
    assert max(len(commit.metadata) for commit in history) <= MAX_CHARACTERS
    assert first.route.counters.commit_failures == 0
    delivered = set(world.judge.delivered)
    told = first.route.offsets.exposure(first.route.executing, first.route.delayed)
    first.crash()
    world.behaviour = lambda request: answer(seconds=0.001)
    second = world.join()
    world.run_until(lambda: world.lag() == 0)
    again = {(r.partition, r.offset) for r in second.app.requests} & delivered
    assert 0 < len(again) <= told.would_repeat - 1  # the stuck one was never delivered
    assert len(again) < 1000


def test_positions_cover_nothing_that_a_drain_threw_away() -> None:
    """A busy loop learns of records and of the position behind them after the stop signal."""
    world = World(behave=lambda request: answer(seconds=5.0))
    world.produce(1)
    member = world.members[0]
    world.run_until(lambda: len(member.app.requests) == 1)
    member.clock.stall(PATIENT)
    world.produce(3)
    world.broker.end_transaction(TOPIC)
    world.run(3.0)
    member.route.drain()
    member.clock.go_on()
    world.run_until(lambda: not world.running)
    assert world.committed().offset == 1


def test_a_commit_that_the_client_does_not_take_is_tried_again() -> None:
    """It is a failed commit and not the end of the fetch thread."""
    world = World()
    world.run(1.0)
    member = world.members[0]

    def refuse(*_: object) -> None:
        raise CommitFailed("the client is busy with something else")

    right = member.source.commit_later
    member.source.commit_later = refuse  # type: ignore[assignment, method-assign]
    world.produce(3)
    world.run_until(lambda: member.route.counters.commit_failures > 1)
    member.source.commit_later = right  # type: ignore[method-assign]
    world.run_until(lambda: world.lag() == 0)
    assert len(world.requests) == 3
