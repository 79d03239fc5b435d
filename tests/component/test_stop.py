"""How a route ends: drain, cut, a client that dies."""

from __future__ import annotations

from typing import Final

import pytest

from sidecar.dispatch.route import Phase
from sidecar.errors import FatalSource
from sidecar.kafka.fetcher import LAST_COMMIT_SECONDS
from sidecar.model import Guarantee, OnExhausted
from sidecar.settings import BatchSettings
from tests.fakes.application import HANG, answer
from tests.fakes.broker import CommitFate
from tests.fakes.engine import GROUP, World

PATIENT: Final = 1000.0
AMO: Final = Guarantee.AT_MOST_ONCE


def slow_world(seconds: float = 8.0) -> World:
    """One record executes for that long."""
    world = World(timeout_seconds=PATIENT, behave=lambda request: answer(seconds=seconds))
    world.produce(1)
    world.run_until(lambda: len(world.requests) == 1)
    return world


def test_a_drain_finishes_what_executes_and_fetches_nothing() -> None:
    """LIFE-2, run 1: one request, its commit, and the end as soon as it is answered."""
    world = slow_world()
    began = world.requests[0].at
    world.run(2.0)
    member = world.members[0]
    member.drain(cut_after=20.0)
    world.produce(5)
    world.run_until(lambda: not world.running)
    assert 8.0 <= member.ended_at - began < 8.3
    assert len(world.requests) == 1
    assert world.committed().offset == 1
    assert member.failure is None
    assert world.broker.group(GROUP).members == {}


def test_an_idle_drain_does_not_wait() -> None:
    """LIFE-2, run 2."""
    world = World()
    world.run(3.0)
    member = world.members[0]
    began = world.now
    member.drain(cut_after=20.0)
    world.run_until(lambda: not world.running)
    assert member.ended_at - began < 0.5


def test_the_end_of_a_drain_cuts_and_the_record_comes_again() -> None:
    """LIFE-2, run 3."""
    world = slow_world()
    member = world.members[0]
    began = world.now
    member.drain(cut_after=3.0)
    world.run_until(lambda: not world.running)
    assert 3.0 <= member.ended_at - began < 3.3
    assert world.committed().offset == 0
    world.behaviour = lambda request: answer()
    world.join()
    world.run_until(lambda: world.lag() == 0)


def test_a_record_that_fails_in_a_drain_is_told_to_be_repeated(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its attempt ends at the deadline, nothing is cut, and the log says what is left."""
    world = World(timeout_seconds=5.0, behave=lambda request: HANG)
    world.produce(1)
    world.run_until(lambda: len(world.requests) == 1)
    world.members[0].drain(cut_after=20.0)
    world.run_until(lambda: not world.running)
    assert world.committed().offset == 0
    assert "1 records are not finished and will be repeated" in caplog.text


def test_a_cut_acknowledges_nothing() -> None:
    """LIFE-3: no commit, no dead letter, and the record comes first after the restart."""
    world = World(
        timeout_seconds=PATIENT, on_exhausted=OnExhausted.PARK, behave=lambda request: HANG
    )
    world.produce(3)
    member = world.members[0]
    world.run_until(lambda: len(member.app.requests) == 3)
    world.run(2.0)
    history = len(world.broker.group(GROUP).history)
    member.drain(cut_after=2.0)
    world.run_until(lambda: not world.running)
    assert len(world.broker.group(GROUP).history) == history
    assert member.parking.writes == 0
    assert member.places.in_flight == 0
    world.behaviour = lambda request: answer()
    second = world.join()
    world.run_until(lambda: world.lag() == 0)
    assert [(r.offset, r.attempt) for r in second.app.requests] == [(0, 1), (1, 1), (2, 1)]


def test_a_drain_while_the_application_is_away_ends_at_once() -> None:
    world = World()
    world.produce(10)
    member = world.members[0]
    world.run_until(lambda: world.lag() == 0)
    member.app.up = False
    world.produce(10)
    world.run(2.0)
    member.drain(cut_after=20.0)
    world.run_until(lambda: not world.running, limit=0.5)
    assert world.committed().offset == 10


def test_a_drain_before_the_application_was_there_leaves_no_timer() -> None:
    world = World(members=0)
    member = world.join()
    member.app.up = False
    world.run(5.0)
    world.scheduler.wait_for(lambda: member.app.probes == 1, 1.0)
    member.drain()
    world.run(1.0)
    assert member.route_ended
    assert world.scheduler.next_at is None


def test_a_fatal_client_error_ends_the_route() -> None:
    """BRK-6: within seconds, after what executes; the error is told."""
    world = slow_world(2.0)
    member = world.members[0]
    member.source.die("fenced")
    world.run_until(lambda: not world.running, limit=5.0)
    assert isinstance(member.failure, FatalSource)
    assert len(world.judge.delivered) == 1
    assert world.committed().offset == 0


def test_a_drain_does_not_wait_for_the_commit_of_a_dead_client() -> None:
    world = World(guarantee=AMO)
    world.run(1.0)
    member = world.members[0]
    world.broker.down = True
    world.produce(1)
    member.mailbox.post = lambda command: None  # type: ignore[method-assign]
    world.broker.down = False
    world.run_until(lambda: member.route.offsets.pending)
    member.drain()
    member.source.die()
    world.run_until(lambda: not world.running, limit=2.0)
    assert [record.offset for record in member.route.lost_records] == [0]


def test_a_drain_in_at_most_once_gives_back_and_finishes() -> None:
    """What is not committed goes back; what is committed is finished."""
    world = World(
        guarantee=AMO, executors=4, threshold=100, behave=lambda request: answer(seconds=2.0)
    )
    world.produce(100)
    member = world.members[0]
    world.run_until(lambda: member.places.in_flight == 100 and member.route.executing == 4)
    member.drain(cut_after=60.0)
    world.run_until(lambda: not world.running)
    committed = world.committed().offset
    assert committed is not None
    assert 4 <= committed <= 30
    assert sorted(world.offsets_sent()) == list(range(committed))
    assert member.route.lost_records == []
    world.join()
    world.run_until(lambda: world.lag() == 0)
    world.run_until(lambda: len(world.judge.delivered) == 100)


def test_a_cut_in_at_most_once_names_what_is_lost() -> None:
    """A second signal: what is committed and not finished is lost, with its coordinates."""
    world = World(
        guarantee=AMO,
        executors=4,
        threshold=100,
        timeout_seconds=PATIENT,
        behave=lambda request: HANG,
    )
    world.produce(100)
    member = world.members[0]
    world.run_until(lambda: member.route.executing == 4)
    world.run(1.0)
    member.drain()
    world.run(1.0)
    assert member.route.phase is Phase.DRAINING
    member.route.cut()
    world.run_until(lambda: not world.running)
    committed = world.committed().offset
    assert committed is not None
    lost = sorted(record.offset for record in member.route.lost_records)
    assert lost == list(range(committed))
    assert member.route.counters.lost == committed
    world.behaviour = lambda request: answer()
    world.join()
    world.run_until(lambda: len(world.judge.delivered) == 100 - committed)


@pytest.mark.parametrize("guarantee", Guarantee)
def test_a_drain_answers_a_rebalance_meanwhile(guarantee: Guarantee) -> None:
    world = World(guarantee=guarantee, partitions=2, behave=lambda request: answer(seconds=4.0))
    world.produce(2, partition=1)
    first = world.members[0]
    world.run_until(lambda: len(first.app.requests) == 2)
    first.drain(cut_after=20.0)
    second = world.join()
    world.run_until(lambda: len(second.owned) == 2)
    world.run_until(lambda: world.lag() == 0 and not first.running)
    assert len(world.requests) == 2


def test_a_last_commit_that_a_rebalance_refuses_is_made_when_that_is_over() -> None:
    """A rolling replacement: the next member is still joining, and nothing is to be repeated."""
    world = slow_world()
    member = world.members[0]
    world.broker.scripted_fates.extend([CommitFate.REFUSED] * 3)
    member.drain(cut_after=20.0)
    world.run_until(lambda: not world.running)
    assert not world.broker.scripted_fates
    assert world.committed().offset == 1


@pytest.mark.parametrize(
    ("cut_after", "most"), [(20.0, LAST_COMMIT_SECONDS), (9.0, 1.0)], ids=["drained", "cut"]
)
def test_a_last_commit_that_is_always_refused_does_not_hold_the_end(
    cut_after: float, most: float
) -> None:
    """And the group is left in order: the next owner does not wait for the session's end."""
    world = slow_world()
    member = world.members[0]
    world.broker.fate = lambda: CommitFate.REFUSED
    member.drain(cut_after)
    began = world.now
    world.run_until(lambda: not world.running)
    assert member.ended_at - began < 8.0 + most + 0.5
    assert member.failure is None
    assert world.broker.group(GROUP).members == {}


def test_a_drain_in_at_most_once_waits_for_a_committed_record_that_waits_for_its_retry() -> None:
    world = World(
        guarantee=AMO,
        behave=lambda r: answer(503, retry_after="3") if r.attempt == 1 else answer(),
    )
    world.produce(1)
    member = world.members[0]
    world.run_until(lambda: member.route.delayed == 1)
    member.drain(cut_after=20.0)
    world.run_until(lambda: not world.running, limit=4.0)
    assert len(world.judge.delivered) == 1
    assert member.route.lost_records == []


def test_a_drain_in_at_most_once_does_not_wait_for_an_application_that_is_away() -> None:
    """What is committed and cannot be delivered is named as lost."""
    world = World(guarantee=AMO, executors=2)
    world.run(1.0)
    member = world.members[0]
    member.app.up = False
    world.produce(20)
    world.run(5.0)
    committed = world.committed().offset
    assert committed is not None
    assert 0 < committed < 20
    member.drain(cut_after=20.0)
    world.run_until(lambda: not world.running, limit=1.0)
    assert sorted(r.offset for r in member.route.lost_records) == list(range(committed))


def test_a_batch_that_is_refused_in_a_drain_is_lost_as_a_whole_and_named() -> None:
    """K8S-3: the application has got the signal as well, and ends first."""
    world = World(
        guarantee=AMO,
        threshold=100,
        executors=1,
        batch=BatchSettings(max_records=5),
        behave=lambda request: answer(seconds=0.5),
    )
    member = world.members[0]
    world.run(1.0)
    world.produce(10)
    world.run_until(lambda: member.route.executing == 5)
    world.run(0.1)
    member.drain()
    member.app.up = False
    world.run_until(lambda: not world.running, limit=5.0)
    assert len(world.judge.delivered) == 5
    assert sorted(record.offset for record in member.route.lost_records) == [5, 6, 7, 8, 9]
    assert member.places.in_flight == 0
