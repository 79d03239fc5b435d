"""at_most_once: what one crash costs, and commits whose result is not known."""

from __future__ import annotations

from typing import Final

import pytest

from sidecar.dispatch.at_most_once import AtMostOnce
from sidecar.model import Guarantee, OnExhausted
from tests.fakes.application import HANG, answer
from tests.fakes.broker import CommitFate
from tests.fakes.engine import GROUP, World

AMO: Final = Guarantee.AT_MOST_ONCE
PATIENT: Final = 1000.0


def test_a_crash_costs_at_most_the_budget_and_repeats_nothing() -> None:
    """OFF-9: and what it would cost is told."""
    world = World(
        guarantee=AMO,
        threshold=100,
        executors=4,
        timeout_seconds=PATIENT,
        behave=lambda request: HANG,
    )
    world.produce(1000)
    first = world.members[0]
    world.run(3.0)
    told = first.route.offsets.exposure(first.route.executing, first.route.delayed)
    first.crash()
    world.behaviour = lambda request: answer()
    world.join()
    world.run_until(lambda: world.lag() == 0)
    world.run(1.0)
    missing = 1000 - len(world.judge.delivered)
    assert missing == told.would_lose
    assert 4 <= missing <= 100
    sent = world.offsets_sent()
    assert len(set(sent)) == len(sent)


def steady_world(fate: CommitFate) -> World:
    """A member that has joined, and the fate of its next commit."""
    world = World(guarantee=AMO)
    world.run_until(lambda: world.committed().offset == 0)
    world.run(1.0)
    world.broker.scripted_fates.append(fate)
    world.produce(5)
    return world


@pytest.mark.parametrize("fate", [CommitFate.UNKNOWN_APPLIED, CommitFate.UNKNOWN_LOST])
def test_a_commit_without_an_answer_is_read_back(fate: CommitFate) -> None:
    """Either way every record is delivered once, and none before it is known to be committed."""
    world = steady_world(fate)
    world.run_until(lambda: len(world.judge.delivered) == 5)
    assert sorted(world.offsets_sent()) == [0, 1, 2, 3, 4]
    assert world.committed_offsets() == sorted(set(world.committed_offsets()))


def test_a_commit_that_the_client_keeps_through_an_outage_is_read_back_behind_it() -> None:
    """It is applied once the broker is back. Read before that, it seemed not to be: what it covered
    was given back, and the next owner began behind it."""
    world = World(guarantee=AMO, executors=1, behave=lambda request: answer(seconds=0.5))
    (first,) = world.members
    world.produce(10)
    world.run_until(lambda: first.route.executing == 1)
    world.broker.down = True
    world.run_until(first.source.commit_pending)
    first.route.pause()
    world.run(6.0)
    world.broker.down = False
    world.run(2.0)
    first.drain()
    world.join()
    world.run_until(lambda: len(world.judge.delivered) == 10)


def test_a_refused_commit_starts_nothing_and_is_tried_again() -> None:
    world = steady_world(CommitFate.REFUSED)
    member = world.members[0]
    world.run_until(lambda: member.route.counters.commit_failures == 1)
    assert member.app.requests == []
    world.run_until(lambda: len(world.judge.delivered) == 5)


def test_what_became_of_a_commit_may_never_be_known() -> None:
    """The partition is lost before it can be read back: counted, and not dispatched."""
    world = World(guarantee=AMO)
    world.run_until(lambda: world.committed().offset == 0)
    member = world.members[0]
    offsets = member.route.offsets
    assert isinstance(offsets, AtMostOnce)

    def apply_and_vanish() -> CommitFate:
        world.broker.down = True
        return CommitFate.UNKNOWN_APPLIED

    world.run(1.0)
    world.broker.fate = apply_and_vanish
    world.produce(5)
    world.run_until(lambda: world.broker.down)
    assert world.committed().offset == 5
    world.broker.fate = lambda: CommitFate.OK
    world.broker.expel(GROUP, member.name)
    world.scheduler.call_later(3.0, setattr, world.broker, "down", False)
    world.run_until(lambda: offsets.maybe_lost == 5)
    world.run(5.0)
    assert member.app.requests == []
    assert member.places.in_flight == 0
    world.produce(1)
    world.run_until(lambda: len(world.judge.delivered) == 1)


@pytest.mark.parametrize("policy", [OnExhausted.DROP, OnExhausted.PARK])
def test_what_may_have_been_processed_is_never_sent_again(policy: OnExhausted) -> None:
    world = World(
        guarantee=AMO,
        on_exhausted=policy,
        executors=1,
        behave=lambda r: answer(500 if r.offset == 0 else 204),
    )
    world.produce(3)
    member = world.members[0]
    world.run_until(lambda: len(world.judge.delivered) == 2)
    world.run(5.0)
    assert world.offsets_sent() == [0, 1, 2]
    assert len(member.parking.records) == (policy is OnExhausted.PARK)


def test_what_was_certainly_not_processed_is_sent_again() -> None:
    world = World(guarantee=AMO, behave=lambda r: answer(425 if r.attempt < 3 else 204))
    world.produce(3)
    world.run_until(lambda: len(world.judge.delivered) == 3)
    assert len(world.requests) == 9


def test_a_revocation_discards_what_is_not_committed_and_finishes_the_rest() -> None:
    world = World(
        guarantee=AMO, partitions=2, executors=2, behave=lambda request: answer(seconds=0.5)
    )
    world.produce(50, partition=1)
    first = world.members[0]
    world.run_until(lambda: first.places.in_flight == 50 and first.route.executing == 2)
    second = world.join()
    world.run_until(lambda: len(second.owned) == 1, limit=1.0)
    assert first.places.in_flight <= 12
    world.run_until(lambda: len(world.judge.delivered) == 50)
    assert first.places.in_flight == 0
    assert second.app.requests


@pytest.mark.parametrize("fate", [CommitFate.UNKNOWN_APPLIED, CommitFate.UNKNOWN_LOST])
def test_a_commit_of_another_owner_is_not_taken_for_ones_own(fate: CommitFate) -> None:
    """Others own the partition by now, and the member does not know that when it reads back.

    Applied, and passed by them; or not applied, and they have committed exactly the same offset.
    """
    world = World(guarantee=AMO)
    world.run_until(lambda: world.committed().offset == 0)
    world.run(1.0)
    first = world.members[0]
    offsets = first.route.offsets
    assert isinstance(offsets, AtMostOnce)

    def vanish() -> CommitFate:
        world.broker.down = True
        return fate

    world.broker.fate = vanish
    world.produce(1)
    world.run_until(lambda: world.broker.down)
    world.broker.fate = lambda: CommitFate.OK
    world.broker.expel(GROUP, first.name)
    if fate is CommitFate.UNKNOWN_APPLIED:
        world.produce(1)
    second = world.join()
    with first.suspended():
        world.broker.down = False
        world.run_until(lambda: len(second.app.requests) == 1)
    world.run_until(lambda: offsets.maybe_lost == 1)
    assert first.app.requests == []
    assert world.offsets_sent() == [world.end() - 1]


def test_refused_commits_do_not_follow_each_other_at_once() -> None:
    """Whatever comes in meanwhile, and with executors idle."""
    world = steady_world(CommitFate.OK)
    world.run_until(lambda: len(world.judge.delivered) == 5)
    tries = 0

    def refuse() -> CommitFate:
        nonlocal tries
        tries += 1
        return CommitFate.REFUSED

    world.broker.fate = refuse
    for _ in range(50):
        world.produce(1)
        world.run(0.1)
    assert 10 < tries < 40
    world.broker.fate = lambda: CommitFate.OK
    world.run_until(lambda: len(world.judge.delivered) == 55)
