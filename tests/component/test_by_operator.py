"""What an operator changes on a running route, in a simulated world that judges every step."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from sidecar.control import Operations
from sidecar.core.breaker import State
from sidecar.dispatch.by_hand import ByHand, Coordinates
from sidecar.errors import Conflict, NotFound
from sidecar.model import Guarantee, OnExhausted, Partition
from sidecar.overview import Vertical
from sidecar.settings import BatchSettings, RetrySettings
from sidecar.status import RecordAction, RecordPlace
from tests.fakes.application import HANG, Reply, Request, answer
from tests.fakes.engine import TOPIC, Member, World

ORDERS = Partition(TOPIC, 0)
SLOWLY = RetrySettings(initial_backoff_seconds=1000, max_backoff_seconds=1000)
PARK, DROP, RETRY = RecordAction.PARK, RecordAction.DROP, RecordAction.RETRY


def only(member: World) -> Member:
    (found,) = member.members
    return found


def do(world: World, action: RecordAction, offset: int) -> RecordPlace:
    """As an operator asks for it; the judge knows that he did."""
    member = only(world)
    (entry,) = (each for each in member.in_flight() if each.record.offset == offset)
    place = member.treat_by_hand(action, entry.record)
    assert place is not None
    return place


def refused(world: World, action: RecordAction, offset: int) -> str:
    member = only(world)
    before = member.route.in_flight
    by_hand = ByHand(member.route)
    with pytest.raises((Conflict, NotFound)) as error:
        by_hand.do(action, Coordinates(TOPIC, 0, offset))
    assert member.route.in_flight == before
    return str(error.value)


def stuck_at(offset: int, reply: Reply, times: int = 1) -> Callable[[Request], Reply]:
    """The record gets this reply so many times; all others are fine."""
    left = times

    def behave(request: Request) -> Reply:
        nonlocal left
        if request.offset == offset and left:
            left -= 1
            return reply
        return answer()

    return behave


def place_of(world: World, offset: int) -> RecordPlace | None:
    route = only(world).route
    places = {
        RecordPlace.EXECUTING: route.executors.entries(),
        RecordPlace.DELAYED: route.delays.entries(),
        RecordPlace.PARKING: route.parker.entries(),
        RecordPlace.BUFFERED: route.ready.entries(),
    }
    for place, entries in places.items():
        if any(entry.record.offset == offset for entry in entries):
            return place
    return None


def stuck(place: RecordPlace, **more: Any) -> World:
    """Ten records, of which number 3 is there; the others are done but for the buffered."""
    settings: dict[str, Any] = {"on_exhausted": OnExhausted.PARK, "retry": SLOWLY, **more}
    reply = {RecordPlace.EXECUTING: HANG, RecordPlace.PARKING: answer(400)}
    world = World(behave=stuck_at(3, reply.get(place, answer(500)), 99), executors=4, **settings)
    only(world).parking.error = "no such topic" if place is RecordPlace.PARKING else None
    if place is RecordPlace.BUFFERED:
        only(world).route.pause()
    world.produce(10)
    rest = 9 if place is not RecordPlace.BUFFERED else 0
    world.run_until(lambda: place_of(world, 3) is place and len(world.judge.done[ORDERS]) == rest)
    return world


def ends_clean(world: World) -> None:
    """Everything is settled once, every place is free, the group is at the end."""
    route = only(world).route
    # at_most_once commits what still executes.
    world.run_until(lambda: world.lag() == 0 and not route.in_flight)
    assert (route.in_flight, route.in_flight_bytes, route.executors.busy) == (0, 0, 0)
    assert world.judge.open() == []
    world.produce(5)
    world.run_until(lambda: world.lag() == 0)
    assert max(world.judge.delivered.values()) == 1


@pytest.mark.parametrize("place", RecordPlace)
@pytest.mark.parametrize("guarantee", Guarantee)
def test_a_record_is_dropped_wherever_it_is(place: RecordPlace, guarantee: Guarantee) -> None:
    if guarantee is Guarantee.AT_MOST_ONCE and place is RecordPlace.DELAYED:
        pytest.skip("only what was certainly not processed waits there")
    if guarantee is Guarantee.AT_MOST_ONCE and place is RecordPlace.BUFFERED:
        pytest.skip("nothing is committed while paused: see below")
    world = stuck(place, guarantee=guarantee)
    assert do(world, DROP, 3) is place
    assert only(world).route.counters.dropped == 1
    only(world).route.resume()
    ends_clean(world)
    assert world.judge.delivered[ORDERS, 3] == 0


@pytest.mark.parametrize(
    "place", [RecordPlace.EXECUTING, RecordPlace.DELAYED, RecordPlace.BUFFERED]
)
def test_a_record_is_parked_wherever_it_is(place: RecordPlace) -> None:
    world = stuck(place)
    assert do(world, PARK, 3) is place
    only(world).route.resume()
    ends_clean(world)
    assert world.judge.parked[ORDERS, 3] == 1
    (story,) = only(world).parking.stories
    assert (story.reason, story.attempts) == ("by_hand", int(place is not RecordPlace.BUFFERED))
    assert story.first_attempt_at <= story.last_attempt_at


@pytest.mark.parametrize("place", RecordPlace)
def test_a_record_is_tried_now_wherever_it_is(place: RecordPlace) -> None:
    world = stuck(place)
    world.behaviour = lambda _: answer()
    began = world.now
    assert do(world, RETRY, 3) is place
    if place is RecordPlace.BUFFERED:
        only(world).route.resume()
    ends_clean(world)
    assert world.judge.delivered[ORDERS, 3] == 1
    assert world.now - began < 900, "it did not wait out its backoff"


def test_the_trial_that_is_cancelled_is_followed_by_another() -> None:
    """Else the route would be held for good."""
    world = World(on_exhausted=OnExhausted.PARK, retry=SLOWLY, executors=2)
    member = only(world)
    world.produce(1)
    world.run_until(lambda: world.lag() == 0)
    member.app.up = False
    world.produce(5)
    world.run_until(lambda: member.route.breaker.state is State.HELD)
    world.behaviour = lambda _: HANG
    member.app.up = True
    world.run_until(
        lambda: member.route.breaker.state is State.TRIAL and bool(member.app.executing)
    )
    world.behaviour = lambda _: answer()
    (entry,) = member.route.executors.entries()
    do(world, PARK, entry.record.offset)
    ends_clean(world)


def test_a_halted_route_goes_on_without_the_record() -> None:
    world = World(behave=stuck_at(3, answer(400), 99), on_exhausted=OnExhausted.HALT)
    world.produce(10)
    world.run_until(lambda: bool(only(world).route.failures.halted))
    do(world, DROP, 3)
    only(world).route.resume()
    ends_clean(world)


def test_what_travelled_in_the_same_batch_goes_again() -> None:
    batch = BatchSettings(max_records=5, max_wait_seconds=0)
    world = World(
        behave=stuck_at(3, HANG, 99), batch=batch, executors=1, on_exhausted=OnExhausted.PARK
    )
    only(world).route.pause()
    world.produce(5)
    world.run_until(lambda: only(world).route.startable == 5)
    only(world).route.resume()
    world.run_until(lambda: place_of(world, 3) is RecordPlace.EXECUTING)
    do(world, PARK, 3)
    ends_clean(world)
    assert sum(world.judge.delivered[ORDERS, n] for n in (0, 1, 2, 4)) == 4


def test_what_travelled_with_it_and_has_left_meanwhile_goes_back() -> None:
    """Its partition is another member's: it is not sent again here."""
    world = World(
        partitions=2,
        executors=1,
        timeout_seconds=1000.0,
        revoke_seconds=1.0,
        batch=BatchSettings(max_records=4, max_wait_seconds=0.2),
        behave=lambda r: HANG,
    )
    first = world.members[0]
    for number in range(2):
        world.produce(2, number)
    world.run_until(lambda: first.route.executing == 4)
    world.join()
    world.run_until(lambda: len(first.owned) == 1)
    world.run(2.0)
    (kept,) = first.owned
    entry = next(e for e in first.in_flight() if e.record.assignment.partition == kept)
    assert first.treat_by_hand(DROP, entry.record) is RecordPlace.EXECUTING
    world.behaviour = lambda r: answer()
    world.run_until(lambda: first.route.executing == 1)
    assert first.places.in_flight == 1
    member = world.members[1]
    world.run_until(lambda: len(member.app.executing) == 0 or member.route.executing == 2)


def test_what_cannot_be_done_is_told_and_changes_nothing() -> None:
    assert "not in flight" in refused(stuck(RecordPlace.EXECUTING), PARK, 99)
    world = stuck(RecordPlace.EXECUTING, on_exhausted=OnExhausted.RETRY_FOREVER)
    assert "no dead-letter topic" in refused(world, PARK, 3)
    world = stuck(RecordPlace.PARKING, retry=RetrySettings())
    assert "parked already" in refused(world, PARK, 3)
    only(world).parking.error, only(world).parking.holding = None, True
    world.run_until(lambda: bool(only(world).parking._held))
    for action in (DROP, RETRY):
        assert "at this moment" in refused(world, action, 3)
    only(world).parking.release()
    ends_clean(world)


def test_at_most_once_sends_nothing_again_that_may_have_been_processed() -> None:
    once = Guarantee.AT_MOST_ONCE
    for place in (RecordPlace.EXECUTING, RecordPlace.PARKING):
        world = stuck(place, guarantee=once)
        assert "may have been processed" in refused(world, RETRY, 3)
    world = stuck(RecordPlace.EXECUTING, guarantee=once)
    only(world).route.pause()
    world.produce(3)
    world.run_until(lambda: only(world).route.offsets.waiting == 3)
    assert "not committed yet" in refused(world, DROP, 11)


def test_a_partition_that_leaves_and_a_route_that_drains_are_left_alone() -> None:
    world = stuck(RecordPlace.EXECUTING)
    member = only(world)
    (assignment,) = world.assignments(member).values()
    member.route.revoke(7, [assignment], 5.0)
    assert "leaving" in refused(world, PARK, 3)
    world = stuck(RecordPlace.EXECUTING)
    only(world).drain()
    assert "draining" in refused(world, PARK, 3)


# --- threshold and rate ---------------------------------------------------------------------------


@pytest.mark.parametrize("guarantee", Guarantee)
def test_the_threshold_takes_effect_as_records_settle(guarantee: Guarantee) -> None:
    """Never below what is in flight; raised again it is filled again."""
    world = World(guarantee=guarantee, threshold=100, executors=4)
    route = only(world).route
    route.pause()
    world.produce(300)
    world.run_until(lambda: route.in_flight == 100)
    route.set_threshold(10)
    route.resume()
    most = 100
    while route.in_flight > 10:
        world.turn()
        assert route.in_flight <= most
        most = max(10, route.in_flight)
    world.judge._budget = 10
    route.pause()
    world.run(5)
    assert 0 < route.in_flight <= 10
    route.set_threshold(50)
    world.run_until(lambda: route.in_flight == 50)
    world.judge._budget = 50
    route.resume()
    ends_clean(world)


def test_a_threshold_below_a_batch_is_refused() -> None:
    member = only(World(batch=BatchSettings(max_records=50)))
    vertical = Vertical(member.route, member.fetcher, threading.current_thread())
    operations = Operations([vertical], lambda: None)
    with pytest.raises(Conflict, match="no batch is ever full"):
        operations.set_threshold(TOPIC, 49)
    assert member.route.threshold == 100
    operations.set_threshold(TOPIC, 50)
    assert member.route.threshold == 50


@pytest.mark.parametrize("batch", [None, BatchSettings(max_records=5, max_wait_seconds=0)])
@pytest.mark.parametrize("guarantee", Guarantee)
def test_no_more_records_start_than_the_rate_allows(
    guarantee: Guarantee, batch: BatchSettings | None
) -> None:
    world = World(guarantee=guarantee, executors=20, max_records_per_second=10, batch=batch)
    world.produce(100)
    world.run_until(lambda: len(world.requests) > 0)
    began = world.now
    world.run_until(lambda: world.judge.delivered.total() == 100)
    took = world.now - began
    assert 9 < took < 13
    only(world).route.set_rate(None)
    world.produce(1000)
    began = world.now
    world.run_until(lambda: world.lag() == 0)
    assert world.now - began < 10


@pytest.mark.parametrize("guarantee", Guarantee)
def test_a_drain_does_not_wait_long_for_the_rate(guarantee: Guarantee) -> None:
    world = World(guarantee=guarantee, executors=20, max_records_per_second=5)
    world.produce(100)
    world.run_until(lambda: len(world.requests) > 10)
    began = world.now
    only(world).drain()
    world.run_until(lambda: only(world).route_ended)
    assert world.now - began < 3
    assert only(world).route.lost_records == []


def test_a_record_that_waits_out_its_backoff_starts_at_once_when_asked_to() -> None:
    """Nothing else would have the executors ask: no record arrives, none is finished."""
    world = stuck(RecordPlace.DELAYED)
    sent = len(world.requests)
    do(world, RETRY, 3)
    assert len(world.requests) == sent + 1
