"""What a route says about itself, over a real route with fake edges and a simulated clock."""

from __future__ import annotations

import asyncio
import threading
import time
from datetime import UTC, datetime
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from sidecar.core.commands import Command
from sidecar.core.places import Places
from sidecar.core.trouble import LASTS_SECONDS
from sidecar.dispatch.causes import HELD_LONG_SECONDS, Now
from sidecar.dispatch.route import Route
from sidecar.dispatch.status import executing_records, partition_statuses, route_status
from sidecar.model import Answer, Failed, FailureKind, Guarantee, OnExhausted, Outcome, Start
from sidecar.overview import Overview, Vertical
from sidecar.settings import DeadLetterSettings, RetrySettings, RouteSettings
from sidecar.status import AppState, Cause, CauseName, RouteState, RouteStatus
from tests.fakes.clock import SimulatedScheduler
from tests.fakes.delivery import ManualDelivery
from tests.fakes.parking import FakeParking
from tests.fakes.records import assignment, record

UNIX = 1_700_000_000.0
DOWN = Failed(FailureKind.UNREACHABLE, "connection refused", sent=False)


class Commands:
    """A mailbox that nobody reads."""

    def post(self, command: Command) -> None:
        pass

    def receive(self, timeout: float) -> Command | None:
        return None


class Rig:
    """One route; the test is the application, the fetch thread and the clock."""

    def __init__(self, *, executors: int = 2, **settings: Any) -> None:
        self.scheduler = SimulatedScheduler()
        self.born = self.scheduler.time()
        self.delivery = ManualDelivery()
        self.parking = FakeParking(self.scheduler.call_soon)
        self.places = Places(100, 10_000)
        self.orders = assignment()
        self.route = Route(
            RouteSettings(
                topics=("orders",),
                target="http://127.0.0.1:8080/",
                executors=executors,
                dead_letter=DeadLetterSettings(topic="dead"),
                **settings,
            ),
            commit_interval_seconds=1.0,
            scheduler=self.scheduler,
            wall_clock=lambda: self.now.wall,
            random=Random(0),
            delivery=self.delivery,
            parking=self.parking,
            mailbox=Commands(),
            places=self.places,
            start_fetching=lambda: None,
            failed=lambda route, error: None,
            ended=lambda route, error: None,
        )
        self.route.start()

    @property
    def now(self) -> Now:
        moment = self.scheduler.time()
        return Now(moment, UNIX + moment - self.born)

    @property
    def status(self) -> RouteStatus:
        return route_status(self.route, self.now)

    @property
    def causes(self) -> list[CauseName]:
        return [each.cause for each in self.status.causes]

    @property
    def cause(self) -> Cause:
        """The only one."""
        (cause,) = self.status.causes
        return cause

    def receive(self, *offsets: int) -> None:
        records = [record(self.orders, offset, size=10) for offset in offsets]
        self.places.taken += len(records)
        self.places.taken_bytes += 10 * len(records)
        self.orders.fetched += len(records)
        self.route.received(records)

    def answer(self, offset: int, result: Answer | Failed | None = None) -> None:
        (slot,) = [
            each
            for each in self.delivery.running
            if each.record is not None and each.record.offset == offset
        ]
        slot.answer(result)
        self.scheduler.advance(0.0)


def running(**more: Any) -> Rig:
    rig = Rig(**more)
    rig.delivery.answer_probe(None)
    rig.route.assigned([Start(rig.orders, 0)])
    return rig


def test_numbers_add_up() -> None:
    rig = running()
    rig.receive(0, 1, 2, 3, 4)
    rig.scheduler.advance(1.0)
    rig.answer(0, Answer(500))
    rig.answer(1)
    status = rig.status
    assert (status.buffered, status.executing, status.delayed) == (1, 2, 1)
    assert (status.in_flight, status.in_flight_bytes) == (4, 40)
    assert status.oldest_age_seconds == 1.0
    assert (status.executors.configured, status.executors.running) == (2, 2)
    assert (status.exposure.would_lose, status.exposure.would_repeat) == (0, 3)
    assert (status.counters.received, status.counters.delivered) == (5, 1)
    assert status.counters.failures == {"status_retry": 1}


def test_well_is_told_without_causes() -> None:
    rig = running()
    rig.receive(0)
    status = rig.status
    assert (status.state, status.availability.state) == (RouteState.RUNNING, AppState.UP)
    assert status.causes == []
    rig.answer(0)
    assert rig.status.oldest_age_seconds is None


def test_waiting_for_the_app_is_told_with_its_error() -> None:
    rig = Rig()
    rig.delivery.answer_probe("connection refused")
    rig.scheduler.advance(0.3)
    assert rig.status.state is RouteState.WAITING
    assert rig.cause.cause is CauseName.WAITING_FOR_APP
    assert rig.cause.detail == "connection refused"
    assert rig.cause.since == datetime.fromtimestamp(UNIX, UTC)


def test_held_is_told_since_when() -> None:
    rig = running()
    rig.receive(0)
    rig.scheduler.advance(5.0)
    rig.answer(0, DOWN)
    rig.scheduler.advance(0.1)
    assert rig.cause.cause is CauseName.HELD
    assert "connection refused" in rig.cause.detail
    assert rig.cause.since == datetime.fromtimestamp(UNIX + 5, UTC)
    assert rig.status.availability.state is AppState.HELD


def test_held_is_told_since_the_first_time_and_not_since_the_last_trial() -> None:
    rig = running()
    rig.receive(0)
    rig.scheduler.advance(5.0)
    rig.answer(0, DOWN)
    for _ in range(3):
        rig.scheduler.advance(1.0)
        rig.delivery.answer_probe(None)
        rig.answer(0, Answer(401))
    assert rig.cause.cause is CauseName.HELD
    began = datetime.fromtimestamp(UNIX + 5, UTC)
    assert (rig.cause.since, rig.status.availability.since) == (began, began)
    assert "the route's auth" in rig.cause.next_step, "what a 401 or 403 is about"


def test_a_reachable_app_with_nothing_to_try_is_no_cause() -> None:
    """After an outage a route without records waits for the next one, which tells."""
    rig = running()
    rig.receive(0)
    rig.answer(0, DOWN)
    assert rig.causes == [CauseName.HELD]
    rig.route.lost([rig.orders])
    rig.scheduler.advance(1.0)
    rig.delivery.answer_probe(None)
    assert (rig.status.in_flight, rig.status.availability.state) == (0, AppState.TRIAL)
    assert rig.causes == [CauseName.REBALANCING]  # it has nothing to fetch from


def test_busy_executors_are_a_cause_only_when_records_wait() -> None:
    rig = running()
    rig.receive(0, 1)
    assert rig.causes == []
    rig.receive(2)
    assert rig.cause.cause is CauseName.EXECUTORS_BUSY
    assert "1 records wait" in rig.cause.detail


def test_busy_executors_are_no_cause_of_a_pause() -> None:
    rig = running()
    rig.receive(0, 1, 2)
    rig.route.pause()
    assert rig.causes == [CauseName.PAUSED]


def test_an_app_that_hangs_is_told_however_few_records_there_are() -> None:
    """And more executors are not what it needs."""
    rig = running(executors=2, timeout_seconds=60)
    rig.receive(0, 1)
    rig.scheduler.advance(HELD_LONG_SECONDS - 1)
    assert rig.causes == []
    rig.receive(2)
    rig.scheduler.advance(1.0)
    assert rig.cause.cause is CauseName.UNANSWERED
    assert rig.cause.since == datetime.fromtimestamp(UNIX, UTC)
    assert "2 requests are out" in rig.cause.detail
    assert "after 60 s" in rig.cause.next_step
    rig.answer(0)
    assert rig.causes == []


def test_no_executors() -> None:
    rig = running()
    rig.route.set_executors(0)
    assert rig.causes == [CauseName.NO_EXECUTORS]
    assert (rig.status.executors.configured, rig.status.executors.wanted) == (2, 0)


def test_a_rate_limit_is_a_cause_only_while_records_wait_for_it() -> None:
    rig = running(max_records_per_second=10)
    rig.receive(0)
    assert rig.causes == []
    rig.receive(1, 2)
    assert rig.cause.cause is CauseName.RATE_LIMITED
    assert "10 records start per second, 2 wait" in rig.cause.detail
    rig.route.pause()
    rig.scheduler.advance(1.0)
    assert rig.causes == [CauseName.PAUSED]


def test_paused() -> None:
    rig = running()
    rig.route.pause()
    assert (rig.status.state, rig.causes) == (RouteState.PAUSED, [CauseName.PAUSED])
    rig.route.resume()
    assert (rig.status.state, rig.causes) == (RouteState.RUNNING, [])


def test_halted_names_the_record() -> None:
    rig = running(on_exhausted=OnExhausted.HALT)
    rig.receive(0)
    rig.answer(0, Answer(422))
    assert rig.status.state is RouteState.HALTED
    assert rig.cause.cause is CauseName.HALTED
    assert "orders/0/0" in rig.cause.detail


def test_draining_and_after() -> None:
    rig = running()
    rig.receive(0)
    rig.route.drain()
    assert (rig.status.state, rig.causes) == (RouteState.DRAINING, [CauseName.DRAINING])
    rig.answer(0)
    assert (rig.status.state, rig.causes) == (RouteState.LEAVING, [])


def test_failing_dead_letter_writes_are_told_until_one_succeeds() -> None:
    rig = running()
    rig.parking.error = "dead: no such topic"
    rig.receive(0)
    rig.answer(0, Answer(422))
    assert rig.cause.cause is CauseName.DEAD_LETTER_WRITES_FAILING
    assert "no such topic" in rig.cause.detail
    assert (rig.status.parking, rig.status.delayed, rig.route.waits_to_be_parked) == (1, 1, 1)
    rig.parking.error = None
    rig.scheduler.advance(60.0)
    assert (rig.causes, rig.status.parking) == ([], 0)


def test_a_missing_dead_letter_topic_is_told_before_anything_is_parked() -> None:
    rig = running()
    rig.route.dead_letter_topic_missing(missing=True)
    assert rig.cause.cause is CauseName.DEAD_LETTER_WRITES_FAILING
    assert "topic dead does not exist" in rig.cause.detail
    rig.route.dead_letter_topic_missing(missing=False)
    assert rig.causes == []


def test_kafka_trouble_is_told_while_it_is_news() -> None:
    rig = running()
    rig.route.fetch_trouble("all brokers are down")
    rig.scheduler.advance(LASTS_SECONDS - 1)
    assert rig.cause.cause is CauseName.KAFKA_TROUBLE
    assert rig.cause.detail == "all brokers are down"
    assert rig.cause.since == datetime.fromtimestamp(UNIX, UTC)
    rig.scheduler.advance(1.0)
    assert rig.causes == []


def test_brokers_out_of_reach_are_told_before_what_comes_of_it() -> None:
    rig = Rig()
    rig.delivery.answer_probe(None)
    rig.route.fetch_trouble("all brokers are down")
    assert rig.causes == [CauseName.KAFKA_TROUBLE, CauseName.REBALANCING]


def test_kafka_trouble_is_told_since_it_began() -> None:
    """The client repeats it every moment."""
    rig = running()
    for _ in range(5):
        rig.route.fetch_trouble("all brokers are down")
        rig.scheduler.advance(LASTS_SECONDS - 1)
    assert rig.cause.since == datetime.fromtimestamp(UNIX, UTC)
    rig.scheduler.advance(1.0)
    assert rig.causes == []
    rig.route.fetch_trouble("all brokers are down")
    assert rig.cause.since == datetime.fromtimestamp(rig.now.wall, UTC)


def test_a_topic_that_does_not_exist_is_told_until_something_is_assigned() -> None:
    """The client tells it once; to wait, as in any other rebalance, does not help."""
    rig = Rig()
    rig.delivery.answer_probe(None)
    rig.route.fetch_trouble("orders: unknown topic")
    rig.scheduler.advance(10 * LASTS_SECONDS)
    assert rig.causes == [CauseName.KAFKA_TROUBLE, CauseName.REBALANCING]
    rig.route.assigned([Start(rig.orders, 0)])
    assert rig.causes == []


def test_joining_and_being_left_without_a_partition_are_told() -> None:
    rig = Rig()
    rig.delivery.answer_probe(None)
    rig.scheduler.advance(3.0)
    assert rig.causes == [CauseName.REBALANCING]
    assert rig.cause.since == datetime.fromtimestamp(UNIX, UTC)
    rig.route.assigned([])
    assert rig.causes == [CauseName.NO_PARTITIONS]
    rig.route.assigned([Start(rig.orders, 0)])
    assert rig.causes == []


def test_a_rebalance_that_waits_for_records_is_told() -> None:
    rig = running()
    rig.receive(0)
    rig.route.revoke(1, [rig.orders], 5.0)
    assert rig.cause.cause is CauseName.REBALANCING
    assert rig.cause.detail.startswith("1 records")
    rig.answer(0)
    assert rig.causes == [CauseName.REBALANCING]
    assert "no partition yet" in rig.cause.detail
    rig.route.assigned([Start(assignment(epoch=2), 1)])
    assert rig.causes == []


def test_answers_of_too_much_are_told_though_there_is_nothing_to_lower() -> None:
    rig = running(executors=1)
    for offset in range(10):
        rig.receive(offset)
        rig.answer(offset, Answer(429) if offset % 5 == 0 else None)
    assert rig.status.rates.throttled_share == 0.2
    assert rig.causes[0] is CauseName.APP_OVERLOADED
    assert rig.status.causes[0].detail.startswith("20% ")


def test_record_that_holds_the_watermark_is_named() -> None:
    rig = running(timeout_seconds=60)
    rig.receive(0, 1, 2)
    rig.answer(1)
    rig.answer(2)
    rig.scheduler.advance(HELD_LONG_SECONDS - 1)
    assert rig.causes == []
    rig.scheduler.advance(1.0)
    assert rig.cause.cause is CauseName.WATERMARK_HELD
    assert rig.cause.detail.startswith("orders/0/0 ")
    assert "2 offsets behind it" in rig.cause.detail


def test_what_gets_the_record_settled_depends_on_where_it_is() -> None:
    """Waiting for the dead-letter topic, for the application, or for its next attempt."""
    rig = running(timeout_seconds=60, executors=3, retry=RetrySettings(max_attempts=9))

    def step() -> str:
        (found,) = [each for each in rig.status.causes if each.cause is CauseName.WATERMARK_HELD]
        return found.next_step

    rig.receive(0, 1, 2)
    rig.answer(1)
    rig.answer(2)
    rig.scheduler.advance(HELD_LONG_SECONDS)
    assert "its request is out" in step()
    assert "sidecar record park orders/0/0" in step()
    rig.answer(0, Answer(500))
    assert "waits for its next attempt" in step()
    assert "the application answered 500" in step()
    rig.scheduler.advance(30.0)
    rig.parking.error = "dead: no such topic"
    rig.answer(0, Answer(422))
    assert "see that the topic exists" in step()


def test_a_record_that_waits_for_the_app_is_not_to_be_moved() -> None:
    rig = running()
    rig.receive(0, 1, 2)
    rig.answer(1)
    rig.answer(0, DOWN)
    rig.scheduler.advance(HELD_LONG_SECONDS)
    assert rig.causes == [CauseName.HELD, CauseName.WATERMARK_HELD]
    assert "see why it is away" in rig.status.causes[1].next_step
    assert "sidecar record" not in rig.status.causes[1].next_step


def test_records_that_keep_failing_are_told_though_nothing_is_settled_behind_them() -> None:
    rig = running(retry=RetrySettings(max_attempts=1000, initial_backoff_seconds=30))
    rig.receive(0)
    rig.answer(0, Answer(500))
    assert rig.causes == []  # one failure now and then is no trouble: see below
    until = rig.scheduler.time() + HELD_LONG_SECONDS
    while rig.scheduler.time() < until or rig.delivery.running:
        rig.scheduler.advance(0.1)
        if rig.delivery.running:
            rig.answer(0, Answer(500))
    assert rig.cause.cause is CauseName.RETRYING
    assert rig.cause.detail.startswith("1 records wait")
    assert "the application answered 500" in rig.cause.detail


def test_an_app_that_fails_everything_is_told_at_once() -> None:
    rig = running(executors=3)
    rig.receive(0, 1, 2, 3)
    rig.answer(0)
    rig.answer(1, Answer(500))
    rig.answer(2, Answer(500))
    assert rig.causes == []
    rig.answer(3, Answer(500))
    assert rig.cause.cause is CauseName.RETRYING
    assert "the application answered 500" in rig.cause.detail
    rig.receive(4)
    rig.answer(4)
    assert rig.causes == []


def test_an_app_that_goes_on_hanging_is_told_while_its_records_are_tried_again() -> None:
    """Each attempt begins anew; more executors are still not what it needs."""
    rig = running(executors=3, timeout_seconds=20)
    rig.receive(0, 1, 2, 3)
    until = rig.scheduler.time() + 25.0  # the delivery keeps the deadline
    while rig.scheduler.time() < until:
        rig.scheduler.advance(0.1)
    assert len(rig.delivery.running) == 3
    assert rig.causes == [CauseName.RETRYING]
    assert "3 are being tried" in rig.cause.detail
    assert "; the last failure: " in rig.cause.detail
    assert rig.cause.since == datetime.fromtimestamp(UNIX, UTC)


def test_every_cause_says_what_to_do() -> None:
    rig = running(timeout_seconds=60)
    rig.receive(0, 1, 2, 3)
    rig.answer(1)
    rig.route.pause()
    rig.route.fetch_trouble("down")
    rig.scheduler.advance(HELD_LONG_SECONDS + 2)
    causes = rig.status.causes
    assert len({each.cause for each in causes}) == len(causes) == 4
    for each in causes:
        assert each.detail
        assert each.next_step


@pytest.mark.parametrize("known", [False, True])
def test_partitions_tell_how_far_they_are(known: bool) -> None:
    """The end offset and the pause are the fetch thread's to know."""
    rig = running()
    rig.receive(0, 1, 2)
    rig.answer(1)
    rig.scheduler.advance(2.0)
    ends = {rig.orders.partition: 12} if known else {}
    paused = {rig.orders} if known else None
    (status,) = partition_statuses(rig.route, rig.now, ends, paused)
    assert (status.committed, status.watermark, status.span, status.outstanding) == (0, 0, 3, 2)
    assert (status.oldest_offset, status.oldest_age_seconds) == (0, 2.0)
    assert (status.lag, status.paused) == ((12, True) if known else (None, None))


def test_executing_records_come_oldest_first() -> None:
    rig = running(executors=3, timeout_seconds=60)
    rig.receive(0)
    rig.scheduler.advance(1.0)
    rig.receive(1, 2)
    rig.scheduler.advance(1.0)
    found = executing_records(rig.route, rig.now, 2)
    assert (found[0].offset, found[0].executing_seconds, found[0].attempt) == (0, 2.0, 1)
    assert [each.age_seconds for each in found] == [2.0, 1.0]


@pytest.mark.parametrize("executors", [0, 2])
def test_at_most_once_tells_the_age_of_what_is_not_committed_yet(executors: int) -> None:
    """Whether its commit is under way or not."""
    rig = running(executors=executors, guarantee=Guarantee.AT_MOST_ONCE, loss_budget=100)
    rig.receive(0, 1)
    rig.scheduler.advance(3.0)
    status = rig.status
    assert (status.buffered, status.executing, status.oldest_age_seconds) == (2, 0, 3.0)
    assert status.exposure.would_repeat == 0
    (partition,) = partition_statuses(rig.route, rig.now, {}, None)
    assert (partition.committed, partition.span) == (0, 2)


def test_rates_and_percentiles_are_those_of_lately() -> None:
    rig = running(executors=100)
    assert rig.status.rates.throttled_share is None
    assert rig.status.attempt_seconds.p50 is None
    for second in range(20):
        rig.receive(*range(10 * second, 10 * second + 10))
        rig.scheduler.advance(0.5)
        for offset in range(10 * second, 10 * second + 10):
            rig.answer(offset)
        rig.scheduler.advance(0.5)
    rates = rig.status.rates
    assert rates.received_per_second == pytest.approx(10, rel=0.2)
    assert rates.delivered_per_second == pytest.approx(10, rel=0.2)
    assert (rates.failed_per_second, rates.throttled_share) == (0.0, 0.0)
    assert rig.status.attempt_seconds.p50 == pytest.approx(0.45, abs=0.051)
    rig.scheduler.advance(12.0)
    assert rig.status.rates.delivered_per_second == 0.0
    assert rig.status.attempt_seconds.p99 is not None
    rig.scheduler.advance(60.0)
    assert rig.status.attempt_seconds.p99 is None


def test_each_attempt_is_timed_under_what_it_came_to() -> None:
    rig = running(executors=4)
    rig.receive(0, 1, 2, 3)
    rig.scheduler.advance(0.25)
    rig.answer(0)
    rig.answer(1, Answer(500))
    rig.answer(2, Answer(429))
    rig.answer(3, Answer(422))
    timings = rig.route.timings
    timings.fold()
    counts = {outcome.value: each.count for outcome, each in timings.attempts.items()}
    assert counts == {"delivered": 1, "retry": 1, "deferred": 1, "rejected": 1, "app_down": 0}
    assert timings.attempts[Outcome.DELIVERED].sum == pytest.approx(0.25)


def test_how_late_a_record_was_is_told_from_its_own_timestamp() -> None:
    rig = running()
    written = record(rig.orders, 0, size=10, timestamp_ms=int(UNIX * 1000) - 7000)
    rig.places.taken += 1
    rig.orders.fetched += 1
    rig.route.received([written])
    rig.scheduler.advance(3.0)
    rig.answer(0)
    rig.route.timings.fold()
    assert rig.route.timings.delays.count == 1
    assert rig.route.timings.delays.sum == pytest.approx(10.0, abs=0.01)


def test_of_many_deliveries_some_are_timed_and_stand_for_the_others() -> None:
    rig = running(executors=300)

    def deliver(seconds: int, size: int) -> None:
        for _ in range(seconds * 10):
            first = rig.route.counters.received
            rig.receive(*range(first, first + size))
            rig.scheduler.advance(0.1)
            for slot in list(rig.delivery.running):
                slot.answer()
            rig.scheduler.advance(0.0)

    deliver(4, 100)
    timings, delivered = rig.route.timings, rig.route.counters
    assert timings.every == 1
    deliver(4, 250)
    assert timings.every > 1
    deliver(4, 250)
    deliver(4, 1)
    assert timings.every == 1
    timings.fold()
    counted = timings.attempts[Outcome.DELIVERED].count
    assert abs(counted - delivered.delivered) < 30
    assert timings.attempts[Outcome.DELIVERED].sum == pytest.approx(0.1 * counted, rel=0.01)


def test_readiness_is_lowered_by_the_application_only_where_that_was_chosen() -> None:
    rig = Rig()
    fetcher: Any = SimpleNamespace(last_step_at=time.monotonic())
    vertical = Vertical(rig.route, fetcher, threading.main_thread())
    loop: Any = rig.scheduler
    lenient, strict = (
        Overview([vertical], loop, asyncio.Event(), asyncio.Event(), strict_readiness=chosen)
        for chosen in (False, True)
    )
    assert (lenient.ready(), lenient.alive(), strict.alive()) == (None, None, None)
    assert "route orders: waiting_for_app" in str(strict.ready())
    rig.delivery.answer_probe(None)
    rig.route.assigned([Start(rig.orders, 0)])
    assert strict.ready() is None
    rig.route.fetch_trouble("all brokers are down")
    assert "kafka_trouble: all brokers are down" in str(strict.ready())
    assert lenient.ready() is None
