"""Failures that are not the record's: what is parked in a row, who broke the application, overload,
and an application that stays away."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Final

import pytest

from sidecar.core.breaker import State
from sidecar.core.commands import Leave
from sidecar.core.ledger import InFlight
from sidecar.dispatch.causes import Now
from sidecar.dispatch.in_a_row import LET_THROUGH_SECONDS
from sidecar.dispatch.status import route_status
from sidecar.model import Failed, FailureKind, Guarantee, OnExhausted, Partition
from sidecar.settings import BatchSettings, RetrySettings
from sidecar.status import CauseName, RouteState, RouteStatus
from tests.fakes.application import HANG, RESET_WITH_OTHERS, Reply, Request, answer
from tests.fakes.broker import Protocol
from tests.fakes.engine import GROUP, TOPIC, Member, World

QUICK: Final = RetrySettings(max_attempts=3, initial_backoff_seconds=0.1, max_backoff_seconds=0.2)
AMO: Final = Guarantee.AT_MOST_ONCE
MOST: Final = 20


def status_of(member: Member) -> RouteStatus:
    now = member.world.now
    return route_status(member.route, Now(now, member.world.wall_clock()))


def causes_of(member: Member) -> list[CauseName]:
    return [each.cause for each in status_of(member).causes]


# --- parked in a row --------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [None, BatchSettings(max_records=8)])
@pytest.mark.parametrize("guarantee", Guarantee)
@pytest.mark.parametrize("status", [400, 401, 404, 302, 500])
def test_a_bad_deployment_parks_no_more_than_a_few(
    status: int, guarantee: Guarantee, batch: BatchSettings | None
) -> None:
    """Thirty seconds with 64 executors; then all the others are delivered.

    In at_most_once all places may be held by records that wait to be parked: one of them is let
    through in a while, to make room for one that is tried.
    """
    world = World(
        guarantee=guarantee,
        partitions=4,
        threshold=500,
        executors=64,
        batch=batch,
        on_exhausted=OnExhausted.PARK,
        retry=QUICK,
    )
    member = world.members[0]
    world.produce(100)
    world.run_until(lambda: len(world.judge.delivered) == 100)
    world.behaviour = lambda request: answer(status)
    for number in range(4):
        world.produce(300, number)
    world.run(30.0)
    assert len(member.parking.records) <= MOST
    assert member.route.breaker.state is not State.UP
    if member.parking.records:
        assert CauseName.PARKED_IN_A_ROW in causes_of(member)
    world.behaviour = lambda request: answer()
    failed = 0 if guarantee is Guarantee.AT_LEAST_ONCE else 1000
    world.run_until(
        lambda: world.lag() == 0 and member.places.in_flight == 0,
        limit=LET_THROUGH_SECONDS,
    )
    parked = len(member.parking.records)
    assert len(world.judge.delivered) + parked == 1300
    assert parked <= MOST + failed


def test_writes_under_way_count_before_they_are_confirmed() -> None:
    world = World(
        executors=64, threshold=200, on_exhausted=OnExhausted.PARK, behave=lambda r: answer(400)
    )
    member = world.members[0]
    member.parking.holding = True
    world.produce(200)
    world.run(10.0)
    assert member.parking.writes == MOST
    member.parking.release()
    world.run(10.0)
    assert len(member.parking.records) == MOST
    assert member.route.delayed == 0


def test_the_limit_is_the_route_s_own() -> None:
    world = World(
        on_exhausted=OnExhausted.PARK, max_parked_in_a_row=3, behave=lambda r: answer(400)
    )
    world.produce(50)
    world.run(10.0)
    assert len(world.members[0].parking.records) == 3


def test_while_held_for_it_one_at_a_time_is_tried_and_only_a_delivery_opens() -> None:
    """Trials at the probe's pace, over all partitions and records, charged to nobody."""
    world = World(
        partitions=3,
        threshold=60,
        on_exhausted=OnExhausted.PARK,
        retry=QUICK,
        behave=lambda r: answer(400),
    )
    member = world.members[0]
    for number in range(3):
        world.produce(60, number)
    world.run_until(lambda: member.route.breaker.until_delivered)
    world.run(1.0)
    before = len(member.app.requests)
    world.run(30.0)
    trials = member.app.requests[before:]
    assert 50 <= len(trials) <= 62
    assert len({(r.partition, r.offset) for r in trials}) == 40
    assert len({r.partition for r in trials}) == 3
    assert all(e.record.offset >= 0 and e.attempts == 0 for e in outstanding(member))
    world.behaviour = lambda request: answer()
    world.run_until(lambda: world.lag() == 0, limit=5.0)


def test_failing_records_among_good_ones_never_hold_intake() -> None:
    world = World(
        threshold=50,
        on_exhausted=OnExhausted.PARK,
        retry=QUICK,
        behave=lambda r: answer(400 if r.offset % 5 else 204),
    )
    world.produce(500)
    world.run_until(lambda: world.lag() == 0, limit=30.0)
    member = world.members[0]
    assert len(member.parking.records) == 400
    assert not member.route.breaker.until_delivered


def test_more_failing_in_a_row_than_the_limit_go_as_soon_as_one_is_taken() -> None:
    """They need not come to an end by themselves: the operator may allow as many again."""
    world = World(threshold=100, on_exhausted=OnExhausted.PARK, behave=lambda r: answer(400))
    member = world.members[0]
    world.produce(50)
    world.run(20.0)
    assert len(member.parking.records) == MOST
    member.resume()
    world.run(5.0)
    assert len(member.parking.records) == 2 * MOST
    world.run(5.0)
    member.resume()
    world.run_until(lambda: world.lag() == 0)
    assert len(member.parking.records) == 50


def test_at_most_once_what_failed_for_good_waits_to_be_parked_and_is_never_sent_again() -> None:
    """A delivery lets as many go; a drain all of them."""
    world = World(
        guarantee=AMO,
        threshold=100,
        executors=64,
        on_exhausted=OnExhausted.PARK,
        behave=lambda r: answer(500),
    )
    member = world.members[0]
    world.produce(60)
    world.run_until(lambda: len(world.requests) >= 30)
    world.run(2.0)
    waiting = member.route.failures.waiting
    assert waiting > 0
    assert status_of(member).delayed == waiting
    assert len(member.parking.records) == MOST
    member.drain(cut_after=20.0)
    world.run_until(lambda: not world.running)
    assert member.route.lost_records == []
    assert sorted(r.offset for r in member.parking.records) == sorted(world.offsets_sent())


def test_at_most_once_goes_on_when_all_that_is_in_flight_waits_to_be_parked() -> None:
    """One a minute makes room for one that can be tried."""
    world = World(
        guarantee=AMO,
        threshold=30,
        executors=64,
        on_exhausted=OnExhausted.PARK,
        behave=lambda r: answer(500),
    )
    member = world.members[0]
    world.produce(200)
    world.run(40.0)
    assert len(member.parking.records) == MOST
    assert member.route.failures.waiting == 30
    world.behaviour = lambda request: answer()
    world.run(LET_THROUGH_SECONDS)
    world.run_until(lambda: world.lag() == 0 and member.places.in_flight == 0, limit=10.0)
    assert len(world.judge.delivered) == 200 - MOST - 30
    assert len(set(world.offsets_sent())) == len(world.offsets_sent())


def outstanding(member: Member) -> list[InFlight]:
    entries = []
    for state in member.route.offsets.partitions():
        entry = state.oldest
        while entry is not None:
            entries.append(entry)
            entry = entry.next
    return entries


# --- trials -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "reply", [HANG, Reply(0.01, Failed(FailureKind.BROKEN, "reset"))], ids=["timeout", "break"]
)
def test_a_trial_without_an_answer_does_not_open_the_route(reply: Reply) -> None:
    """The application accepts connections and does nothing: nobody but the trial meets it."""
    world = World(threshold=50, executors=8, timeout_seconds=2.0)
    member = world.members[0]
    world.produce(10)
    world.run_until(lambda: world.lag() == 0)
    member.app.die()
    world.produce(100)
    world.run_until(lambda: member.route.breaker.state is State.HELD)
    world.behaviour = lambda request: reply
    before = len(member.app.requests)
    member.app.up = True
    world.run(20.0)
    assert member.route.breaker.state is not State.UP
    assert len(member.app.executing) <= 1
    assert 7 <= len(member.app.requests) - before <= 41
    world.behaviour = lambda request: answer()
    world.run_until(lambda: world.lag() == 0, limit=5.0)


@pytest.mark.parametrize("guarantee", Guarantee)
def test_an_application_that_ends_first_costs_no_attempt_and_floods_nothing(
    guarantee: Guarantee,
) -> None:
    """K8S-3: refused from 0 s on, records come, and only after 10 s the sidecar is told to stop."""
    world = World(guarantee=guarantee, threshold=200, on_exhausted=OnExhausted.PARK, retry=QUICK)
    member = world.members[0]
    world.produce(50)
    world.run_until(lambda: len(world.judge.delivered) == 50)
    member.app.die()
    world.produce(100)
    world.run(10.0)
    member.drain(cut_after=1.0)
    world.run_until(lambda: not world.running, limit=2.0)
    assert member.parking.writes == 0
    assert len(member.route.lost_records) <= (0 if guarantee is not AMO else 200)
    world.join()
    world.run_until(lambda: world.lag() == 0)
    world.run_until(
        lambda: len(world.judge.delivered) + len(member.route.lost_records) == 150, limit=5.0
    )


def test_a_record_that_is_too_old_is_not_tried_again() -> None:
    world = World(
        on_exhausted=OnExhausted.PARK,
        retry=RetrySettings(
            max_attempts=1000,
            initial_backoff_seconds=0.1,
            max_backoff_seconds=0.5,
            max_age_seconds=5.0,
        ),
        behave=lambda r: answer(500 if r.offset == 0 else 204),
    )
    world.produce(3)
    world.run_until(lambda: world.lag() == 0)
    at = [request.at for request in world.requests if request.offset == 0]
    assert 5.0 <= at[-1] - at[0] <= 5.6
    assert len(at) > 10


# --- suspects ---------------------------------------------------------------------------------


class Killer:
    """An application that one record kills; it is back after a while."""

    def __init__(
        self,
        world: World,
        offset: int,
        after: float = 0.0,
        away: float = 3.0,
        half_open: int = 0,
    ) -> None:
        self.world = world
        self.offset = offset
        self.after = after
        self.away = away
        self.half_open = half_open
        self.deaths: list[float] = []
        self.alone: list[bool] = []
        world.behaviour = self

    def __call__(self, request: Request) -> Reply:
        (member,) = [m for m in self.world.members if m.name == request.member]
        if request.offset == self.offset and not self.after:
            self.kill(member)
        elif request.offset == self.offset:
            self.world.scheduler.call_later(self.after, self.kill, member)
            return HANG
        return answer(seconds=0.02)

    def kill(self, member: Member) -> None:
        member.app.half_open = self.half_open
        self.deaths.append(self.world.now)
        self.alone.append(len(member.app.executing) == 1)
        member.app.die(self.away)


@pytest.mark.parametrize("batch", [None, BatchSettings(max_records=10, max_wait_seconds=0.05)])
@pytest.mark.parametrize("away", [0.2, 3.0])
@pytest.mark.parametrize("more", [True, False], ids=["in a stream", "among the last"])
def test_a_record_that_kills_the_application_is_parked_and_none_of_its_neighbours(
    away: float, batch: BatchSettings | None, more: bool
) -> None:
    world = World(
        partitions=2,
        threshold=200,
        executors=16,
        batch=batch,
        on_exhausted=OnExhausted.PARK,
        retry=QUICK,
    )
    member = world.members[0]
    killer = Killer(world, offset=995 if not more else 100, away=away)
    world.produce(1000)
    seen: Counter[int] = Counter()

    def done() -> bool:
        for entry in outstanding(member):
            if entry.record.offset != killer.offset:
                seen[entry.attempts] += 1
        return world.lag() == 0

    world.run_until(done, limit=120.0)
    assert [record.offset for record in member.parking.records] == [killer.offset]
    assert set(seen) == {0}, "a neighbour was charged"
    assert len(world.judge.delivered) == 999
    assert len(killer.deaths) <= QUICK.max_attempts + 1
    assert killer.alone[1:] == [True] * (len(killer.deaths) - 1)


def test_who_comes_after_a_killer_is_not_charged_for_a_connection_that_was_dead() -> None:
    """The next suspect gets one whose end was not seen yet, and breaks alone as well."""
    world = World(
        threshold=200,
        executors=16,
        on_exhausted=OnExhausted.PARK,
        retry=RetrySettings(max_attempts=1),
    )
    killer = Killer(world, offset=100, half_open=1)
    world.produce(300)
    world.run_until(lambda: world.lag() == 0, limit=60.0)
    assert [record.offset for record in world.members[0].parking.records] == [killer.offset]
    assert len(world.judge.delivered) == 299


def test_a_killer_that_takes_its_time_is_found_in_the_end() -> None:
    """It runs alone for a second, for four, for sixteen: then long enough."""
    world = World(
        threshold=100,
        executors=8,
        timeout_seconds=20.0,
        on_exhausted=OnExhausted.PARK,
        retry=QUICK,
    )
    member = world.members[0]
    killer = Killer(world, offset=50, after=6.0)
    for _ in range(1000):
        world.produce(2)
        world.run(0.3)
        if member.parking.records:
            break
    assert [record.offset for record in member.parking.records] == [50]
    world.run_until(lambda: world.lag() == 0)
    assert len(killer.deaths) <= 3 * QUICK.max_attempts


def test_slow_records_that_were_on_the_wire_do_not_stall_the_route() -> None:
    """All of them are suspects, and each takes five seconds."""
    world = World(
        threshold=200,
        executors=32,
        on_exhausted=OnExhausted.PARK,
        behave=lambda r: answer(seconds=5.0 if r.offset < 16 else 0.01),
    )
    member = world.members[0]
    world.produce(16)
    world.run_until(lambda: len(member.app.executing) == 16)
    member.app.die(2.0)
    world.produce(300)
    world.run_until(lambda: member.app.up and len(world.judge.delivered) >= 100, limit=5.0)
    world.run_until(lambda: world.lag() == 0, limit=10.0)
    assert not member.parking.records


def test_an_application_that_is_stopped_and_started_charges_nobody_and_is_soon_at_full_speed() -> (
    None
):
    """Away for a minute under load; within two seconds everything flows."""
    world = World(
        threshold=500, executors=64, on_exhausted=OnExhausted.PARK, retry=QUICK, partitions=3
    )
    member = world.members[0]
    world.produce(2000)
    world.run_until(lambda: len(world.judge.delivered) > 500)
    member.app.die()
    world.run(60.0)
    assert {entry.attempts for entry in outstanding(member)} == {0}
    member.app.up = True
    back_at = world.now
    world.run_until(lambda: len(member.app.executing) > 50, limit=2.0)
    world.run_until(lambda: world.lag() == 0, limit=5.0)
    assert world.now - back_at < 5.0
    assert not member.parking.records


def test_a_connection_that_breaks_while_the_application_stays_is_the_record_s_own() -> None:
    def behave(request: Request) -> Reply:
        if request.offset == 3:
            return Reply(0.01, Failed(FailureKind.BROKEN, "reset by peer"))
        return answer()

    world = World(on_exhausted=OnExhausted.PARK, retry=QUICK, behave=behave)
    member = world.members[0]
    world.produce(10)
    world.run_until(lambda: world.lag() == 0)
    assert [(s.reason, s.attempts) for s in member.parking.stories] == [("broken", 3)]
    assert member.route.breaker.state is State.UP
    at = [request.at for request in world.requests if request.offset == 3]
    assert all(later - earlier >= 1.0 for earlier, later in pairwise(at))


def test_suspects_go_with_their_partition() -> None:
    world = World(partitions=2, executors=8, threshold=50, behave=lambda r: answer(seconds=2.0))
    first = world.members[0]
    for number in range(2):
        world.produce(8, number)
    world.run_until(lambda: len(first.app.executing) == 8)
    first.app.die()
    world.run(3.0)
    assert len(first.route.suspects) > 0
    second = world.join()
    world.run_until(lambda: len(second.owned) == 1)
    number = next(iter(second.owned)).number
    assert all(e.record.partition != number for e in outstanding(first))
    first.app.up = True
    world.run_until(lambda: world.lag() == 0, limit=60.0)
    assert first.places.in_flight == 0


@pytest.mark.parametrize("held_by", ["refusals", "answers"])
def test_what_breaks_when_intake_is_held_already_is_charged_to_nobody(held_by: str) -> None:
    """K8S-3: it listens no more, has requests on the wire for a while, and is killed then."""
    world = World(
        executors=16,
        timeout_seconds=60.0,
        on_exhausted=OnExhausted.PARK,
        retry=RetrySettings(max_attempts=1),
        behave=lambda r: HANG if r.offset < 8 else answer(401),
    )
    member = world.members[0]
    world.produce(8)
    world.run_until(lambda: len(member.app.executing) == 8)
    member.app.up = held_by == "answers"
    world.produce(3)
    world.run_until(lambda: member.route.breaker.state is State.HELD)
    world.run(3.0 if held_by == "refusals" else 0.6)
    member.app.die(3.0)
    world.run(2.5)
    assert {entry.attempts for entry in outstanding(member)} == {0}
    world.behaviour = lambda r: answer()
    world.run_until(lambda: world.lag() == 0)
    assert len(world.judge.delivered) == 11


def test_a_suspect_that_was_the_trial_holds_up_nobody_afterwards() -> None:
    """It was not alone: one request of before the outage still runs."""

    def behave(request: Request) -> Reply:
        if request.offset == 0:
            return answer(seconds=20.0)
        return Reply(0.3, RESET_WITH_OTHERS) if request.attempt == 1 else answer()

    world = World(executors=4, timeout_seconds=30.0, behave=behave)
    member = world.members[0]
    world.produce(2)
    world.run_until(lambda: len(member.app.executing) == 2)
    world.scheduler.call_later(0.25, setattr, member.app, "up", False)
    world.run_until(lambda: len(member.route.suspects) == 1)
    member.app.up = True
    world.run_until(lambda: member.route.breaker.state is State.UP)
    world.behaviour = lambda r: answer()
    world.produce(10)
    world.run_until(lambda: len(world.judge.delivered) == 11, limit=0.5)


# --- overload ---------------------------------------------------------------------------------


def crowded(most: int) -> tuple[World, Member]:
    """An application that takes so many at a time and answers 503 to others."""
    world = World(threshold=400, executors=64, on_exhausted=OnExhausted.PARK, retry=QUICK)
    member = world.members[0]

    def behave(request: Request) -> Reply:
        if len(member.app.executing) > most:
            return answer(503, 0.001)
        return answer(seconds=0.05)

    world.behaviour = behave
    return world, member


def test_an_overloaded_application_gets_fewer_requests_and_more_again() -> None:
    world, member = crowded(most=10)
    for _ in range(60):
        world.produce(100)
        world.run(0.5)
    pool = member.route.executors
    assert 3 <= pool.effective <= 24
    assert (pool.wanted, pool.running) == (64, max(pool.effective, pool.busy))
    status = status_of(member)
    assert status.executors.effective == pool.effective
    (cause,) = [each for each in status.causes if each.cause is CauseName.APP_OVERLOADED]
    assert "503" in cause.detail
    recent = member.app.requests[-1000:]
    assert len({r.offset for r in recent}) > 600, "most requests are wasted"
    world.behaviour = lambda request: answer(seconds=0.01)
    for _ in range(60):
        world.produce(100)
        world.run(0.2)
    assert pool.effective == 64
    assert CauseName.APP_OVERLOADED not in causes_of(member)


def test_an_outage_leaves_the_limit_as_it_was() -> None:
    world, member = crowded(most=4)
    world.produce(400)
    world.run_until(lambda: member.route.executors.effective < 32)
    world.run_until(lambda: member.route.breaker.state is State.UP)
    limit = member.route.executors.effective
    member.app.die(5.0)
    world.run(4.0)
    assert member.route.executors.effective == limit


def test_one_record_always_answered_503_among_ten_thousand_lowers_nothing() -> None:
    """It ends by its attempts, and the others are done as if it were not there."""
    world = World(
        threshold=200,
        executors=16,
        on_exhausted=OnExhausted.PARK,
        retry=QUICK,
        behave=lambda r: answer(503 if r.offset == 10 else 204, 0.005),
    )
    member = world.members[0]
    lowest = 16
    for _ in range(100):
        world.produce(100)
        world.run(0.1)
        lowest = min(lowest, member.route.executors.effective)
    world.run_until(lambda: world.lag() == 0)
    assert [record.offset for record in member.parking.records] == [10]
    assert lowest == 16


# --- leaving the group ------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", Protocol)
@pytest.mark.parametrize("guarantee", Guarantee)
def test_an_app_that_stays_away_leaves_its_partitions_to_others(
    guarantee: Guarantee, protocol: Protocol
) -> None:
    world = World(
        guarantee=guarantee,
        protocol=protocol,
        partitions=4,
        members=2,
        executors=4,
        leave_after_held_seconds=30.0,
        on_exhausted=OnExhausted.PARK,
        retry=QUICK,
    )
    sick, healthy = world.members
    world.run_until(lambda: len(sick.owned) == len(healthy.owned) == 2)
    sick.app.die()
    for number in range(4):
        world.produce(50, number)
    world.run(25.0)
    assert len(sick.owned) == 2, "it waits first"
    world.run_until(lambda: len(healthy.owned) == 4, limit=20.0)
    world.run_until(lambda: world.lag() == 0, limit=20.0)
    assert len(world.judge.delivered) >= (100 if guarantee is AMO else 200)
    assert (status_of(sick).state, sick.owned) == (RouteState.LEFT_GROUP, frozenset())
    assert CauseName.LEFT_GROUP in causes_of(sick)
    world.run(300.0)
    assert sick.name not in world.broker.group(GROUP).members
    sick.app.up = True
    world.run_until(lambda: len(sick.owned) == 2, limit=5.0)
    world.run_until(lambda: len(world.judge.delivered) == 200, limit=20.0)
    assert status_of(sick).state is RouteState.RUNNING
    assert not sick.parking.records
    assert not healthy.parking.records
    world.produce(20, min(sick.owned).number)
    world.run_until(lambda: len(world.judge.delivered) == 220)


def test_an_app_that_answers_and_takes_nothing_causes_no_storm_of_rebalances() -> None:
    """It leaves and returns once in the configured time, in both directions."""
    world = World(
        partitions=2, leave_after_held_seconds=30.0, threshold=20, behave=lambda r: answer(401)
    )
    (sick,) = world.members
    for number in range(2):
        world.produce(50, number)
    world.run(300.0)
    assert 4 <= sick.route.counters.rebalances <= 5
    world.behaviour = lambda request: answer()
    world.run_until(lambda: world.lag() == 0, limit=40.0)


def test_whoever_resets_the_breaker_while_away_brings_the_member_back() -> None:
    """Nothing else would: it gets no records, so nobody could find out that the app takes them."""
    world = World(
        partitions=2, leave_after_held_seconds=300.0, threshold=20, behave=lambda r: answer(401)
    )
    (sick,) = world.members
    world.produce(50)
    world.run_until(lambda: status_of(sick).state is RouteState.LEFT_GROUP, limit=400.0)
    world.run(5.0)
    world.behaviour = lambda request: answer()
    assert sick.route.reset_breaker()
    world.run_until(lambda: world.lag() == 0, limit=10.0)
    assert status_of(sick).state is RouteState.RUNNING


def test_zero_means_never() -> None:
    world = World(leave_after_held_seconds=0.0)
    (sick,) = world.members
    world.run(1.0)
    sick.app.die()
    world.produce(10)
    world.run(1000.0)
    assert len(sick.owned) == 1


@pytest.mark.parametrize("guarantee", Guarantee)
def test_a_drain_while_away_works_at_once(guarantee: Guarantee) -> None:
    world = World(guarantee=guarantee, leave_after_held_seconds=5.0)
    (sick,) = world.members
    world.run(1.0)
    sick.app.die()
    world.produce(10)
    world.run_until(lambda: status_of(sick).state is RouteState.LEFT_GROUP)
    world.run(2.0)
    sick.drain(cut_after=20.0)
    world.run_until(lambda: not world.running, limit=1.0)
    assert sick.failure is None


def test_who_returns_while_it_still_gives_up_joins_after_that() -> None:
    """The application is back before the thread has carried out to leave."""
    world = World(partitions=2, leave_after_held_seconds=5.0)
    (sick,) = world.members
    world.run(1.0)
    sick.app.die()
    world.produce(10)
    posted: list[object] = []
    post = sick.mailbox.post

    def watch(command: object) -> None:
        posted.append(command)
        post(command)  # type: ignore[arg-type]

    sick.mailbox.post = watch  # type: ignore[method-assign]
    world.run_until(lambda: Leave() in posted)
    sick.app.up = True
    with sick.suspended():
        world.scheduler.advance(3.0)
    world.run_until(lambda: world.lag() == 0, limit=5.0)
    assert len(sick.owned) == 2


def test_an_operator_brings_a_member_back_that_left() -> None:
    """The application answers again, and only a trial could have told."""
    world = World(leave_after_held_seconds=30.0, behave=lambda r: answer(401))
    (sick,) = world.members
    world.produce(10)
    world.run_until(lambda: status_of(sick).state is RouteState.LEFT_GROUP)
    world.run(2.0)
    world.behaviour = lambda r: answer()
    assert sick.route.reset_breaker()
    world.run_until(lambda: world.lag() == 0, limit=5.0)


def test_a_record_that_is_delivered_while_away_brings_the_member_back() -> None:
    """at_most_once finishes what it has begun, whoever has the partition."""
    world = World(
        guarantee=AMO,
        executors=8,
        max_parked_in_a_row=2,
        timeout_seconds=100.0,
        on_exhausted=OnExhausted.PARK,
        leave_after_held_seconds=10.0,
        behave=lambda r: answer(seconds=14.0) if r.offset == 0 else answer(500),
    )
    (sick,) = world.members
    world.produce(100)
    world.run_until(lambda: status_of(sick).state is RouteState.LEFT_GROUP)
    world.behaviour = lambda r: answer()
    world.run_until(lambda: (Partition(TOPIC, 0), 0) in world.judge.delivered)
    world.run_until(lambda: len(sick.owned) == 1, limit=5.0)
    world.run_until(lambda: world.lag() == 0)
