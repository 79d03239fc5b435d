"""The contract with the application: outages, mistakes in deployment, exhausted attempts."""

from __future__ import annotations

from typing import Final

import pytest

from sidecar.core.breaker import IN_A_ROW, State
from sidecar.model import Guarantee, OnExhausted
from sidecar.settings import RetrySettings
from tests.fakes.application import Reply, Request, answer, broken
from tests.fakes.engine import World

QUICK: Final = RetrySettings(max_attempts=3, initial_backoff_seconds=0.1, max_backoff_seconds=0.2)


@pytest.mark.parametrize("guarantee", Guarantee)
def test_a_sidecar_that_is_up_before_its_application_waits(guarantee: Guarantee) -> None:
    """LIFE-1: refused for 20 s, then 503 for 5 s; no attempt is counted and nothing is lost."""
    world = World(guarantee=guarantee, on_exhausted=OnExhausted.PARK, retry=QUICK)
    member = world.members[0]
    member.app.up = False
    ready_at = world.now + 25.0
    world.behaviour = lambda r: answer(204 if world.now >= ready_at else 503)
    world.produce(20)
    world.run(20.0)
    assert member.app.requests == []
    member.app.up = True
    world.run_until(lambda: len(world.judge.delivered) == 20)
    assert member.parking.writes == 0


def test_an_outage_costs_no_attempt_and_holds_intake() -> None:
    """Refused for a minute under load: the breaker is held, the membership stays."""
    world = World(on_exhausted=OnExhausted.PARK, retry=QUICK, threshold=50)
    world.produce(100)
    member = world.members[0]
    world.run_until(lambda: member.route.counters.delivered > 0)
    member.app.up = False
    world.run(1.0)
    assert member.route.breaker.state is State.HELD
    world.run(60.0)
    assert member.route.counters.rebalances == 0
    assert member.parking.writes == 0
    member.app.up = True
    world.run_until(lambda: world.lag() == 0, limit=5.0)


def test_deferring_everything_costs_no_attempt() -> None:
    """503 while nothing else is delivered is an outage, however long."""
    world = World(on_exhausted=OnExhausted.PARK, retry=QUICK, behave=lambda r: answer(503))
    world.produce(10)
    world.run(60.0)
    assert world.members[0].parking.writes == 0
    world.behaviour = lambda request: answer()
    world.run_until(lambda: world.lag() == 0)


def test_a_record_that_alone_is_deferred_uses_up_its_attempts() -> None:
    world = World(
        on_exhausted=OnExhausted.PARK,
        retry=QUICK,
        behave=lambda r: answer(503 if r.offset == 0 else 204),
    )
    member = world.members[0]
    world.produce(1)
    for _ in range(30):
        world.produce(1)
        world.run(0.3)
    assert [record.offset for record in member.parking.records] == [0]
    assert member.parking.stories[0].status == 503


def test_retry_after_is_waited_for() -> None:
    """RSP-4."""
    world = World(behave=lambda r: answer(503, retry_after="7") if r.attempt == 1 else answer())
    world.produce(1)
    world.run_until(lambda: world.lag() == 0)
    first, second = world.requests
    assert 7.0 <= second.at - first.at < 7.1


@pytest.mark.parametrize("status", [401, 403, 405, 302, 501])
def test_a_mistake_in_deployment_holds_intake_and_parks_nothing(status: int) -> None:
    """RSP-3."""
    world = World(on_exhausted=OnExhausted.PARK, retry=QUICK, threshold=50)
    member = world.members[0]
    world.produce(10)
    world.run_until(lambda: world.lag() == 0)
    world.behaviour = lambda request: answer(status)
    world.produce(100)
    world.run_until(lambda: member.route.breaker.state is State.HELD)
    before = len(member.app.requests)
    assert before <= 10 + world.settings.executors + IN_A_ROW
    world.run(30.0)
    assert len(member.app.requests) - before <= 70  # a trial every half a second
    assert len({r.offset for r in member.app.requests[before:]}) > 10  # and not always the same
    assert member.parking.writes == 0
    assert member.places.in_flight == 50
    world.behaviour = lambda request: answer()
    world.run_until(lambda: world.lag() == 0, limit=5.0)


def test_a_record_that_alone_is_forbidden_is_its_own_fault() -> None:
    """401 for one record while others are delivered: its attempts count, intake goes on."""
    world = World(
        on_exhausted=OnExhausted.PARK,
        retry=QUICK,
        behave=lambda r: answer(401 if r.offset == 5 else 204),
    )
    member = world.members[0]
    for _ in range(30):
        world.produce(2)
        world.run(0.3)
    assert [record.offset for record in member.parking.records] == [5]
    world.run_until(lambda: world.lag() == 0)


def test_not_found_is_an_outage_until_the_application_has_once_delivered() -> None:
    world = World(on_exhausted=OnExhausted.PARK, retry=QUICK, behave=lambda r: answer(404))
    member = world.members[0]
    world.produce(10)
    world.run(20.0)
    assert member.parking.writes == 0
    assert member.route.breaker.state in (State.HELD, State.TRIAL)
    world.behaviour = lambda request: answer()
    world.run_until(lambda: world.lag() == 0)
    world.behaviour = lambda request: answer(404)
    world.produce(1)
    world.run_until(lambda: world.lag() == 0)
    assert [record.offset for record in member.parking.records] == [10]
    assert sum(r.offset == 10 for r in member.app.requests) == 1


def test_rejected_is_parked_at_once_and_failing_after_its_attempts() -> None:
    """RSP-2."""

    def behave(request: Request) -> Reply:
        return {0: answer(422), 1: answer(500), 2: broken()}.get(request.offset, answer())

    world = World(on_exhausted=OnExhausted.PARK, retry=QUICK, behave=behave)
    world.produce(5)
    world.run_until(lambda: world.lag() == 0)
    parking = world.members[0].parking
    told = {
        r.offset: (s.reason, s.attempts)
        for r, s in zip(parking.records, parking.stories, strict=True)
    }
    assert told == {0: ("status_rejected", 1), 1: ("status_retry", 3), 2: ("broken", 3)}


def test_a_failing_park_holds_the_commit_and_is_tried_again() -> None:
    world = World(
        on_exhausted=OnExhausted.PARK, behave=lambda r: answer(400 if r.offset == 1 else 204)
    )
    member = world.members[0]
    member.parking.error = "not enough replicas"
    world.produce(4)
    world.run(20.0)
    assert world.committed().offset == 1
    assert member.route.parker.failures > 2
    member.parking.error = None
    world.run_until(lambda: world.lag() == 0)


def test_drop_settles_and_counts() -> None:
    """DLQ-9: nine delivered, one counted."""
    world = World(
        on_exhausted=OnExhausted.DROP,
        retry=QUICK,
        behave=lambda r: answer(500 if r.offset == 3 else 204),
    )
    world.produce(10)
    world.run_until(lambda: world.lag() == 0)
    counters = world.members[0].route.counters
    assert (counters.delivered, counters.dropped) == (9, 1)


def test_halt_stops_the_route_until_it_is_resumed() -> None:
    """DLQ-9: no commit passes the record."""
    world = World(
        on_exhausted=OnExhausted.HALT,
        retry=QUICK,
        executors=2,
        behave=lambda r: answer(500 if r.offset == 3 else 204),
    )
    member = world.members[0]
    world.produce(10)
    world.run_until(lambda: bool(member.route.failures.halted))
    world.run(1.0)
    world.produce(10)
    before = len(member.app.requests)
    world.run(30.0)
    assert len(member.app.requests) == before
    assert world.committed().offset == 3
    world.behaviour = lambda request: answer()
    member.route.resume()
    world.run_until(lambda: world.lag() == 0)


def test_retry_forever_goes_on_with_longest_waits() -> None:
    world = World(
        on_exhausted=OnExhausted.RETRY_FOREVER,
        retry=QUICK,
        behave=lambda r: answer(500 if r.offset == 0 and r.attempt < 20 else 204),
    )
    world.produce(3)
    world.run_until(lambda: world.lag() == 0)
    at = [request.at for request in world.requests if request.offset == 0]
    assert len(at) == 20
    assert at[-1] - at[-2] >= 0.2


def test_pause_and_resume() -> None:
    world = World()
    world.run(1.0)
    member = world.members[0]
    member.route.pause()
    world.produce(10)
    world.run(20.0)
    assert member.app.requests == []
    member.route.resume()
    world.run_until(lambda: world.lag() == 0)


def test_an_outage_longer_than_the_greatest_age_parks_nothing() -> None:
    """The age counts for what the record does, not for an application that is away."""
    world = World(
        on_exhausted=OnExhausted.PARK,
        retry=QUICK.model_copy(update={"max_age_seconds": 10.0}),
        behave=lambda request: answer(503),
    )
    world.produce(5)
    world.run(30.0)
    assert world.members[0].parking.writes == 0
    world.behaviour = lambda request: answer(500 if request.offset == 0 else 204)
    world.run_until(lambda: world.lag() == 0)
    assert [record.offset for record in world.members[0].parking.records] == [0]
