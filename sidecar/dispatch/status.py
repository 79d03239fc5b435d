"""What a route says about itself: numbers, and in words why it is slow or stopped.

Reads a route on the loop and changes nothing. Moments are kept in scheduler time inside and
shown as times of day, so every function takes both clocks' reading of now.
"""

from __future__ import annotations

import base64
import heapq
from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime
from itertools import islice
from typing import Final, NamedTuple

from sidecar.core.breaker import State
from sidecar.dispatch.offsets import PartitionState
from sidecar.dispatch.route import Phase, Route
from sidecar.model import UNREADABLE_HEADERS, Assignment, Guarantee, Partition, Record
from sidecar.status import (
    AppState,
    AvailabilityStatus,
    Cause,
    CauseName,
    CountersStatus,
    ExecutingRecord,
    ExecutorsStatus,
    ExposureStatus,
    HeaderStatus,
    PartitionStatus,
    PayloadStatus,
    RateLimitStatus,
    RouteState,
    RouteStatus,
    ThresholdStatus,
)

TROUBLE_LASTS_SECONDS: Final = 30.0  # the client repeats what goes on within this time
HELD_LONG_SECONDS: Final = 10.0
PAYLOAD_BYTES: Final = 1024  # of each part of a record that are shown
HEADERS_SHOWN: Final = 100

_STATES: Final = {
    Phase.WAITING: RouteState.WAITING,
    Phase.RUNNING: RouteState.RUNNING,
    Phase.DRAINING: RouteState.DRAINING,
    Phase.LEAVING: RouteState.LEAVING,
    Phase.ENDED: RouteState.ENDED,
}


class Now(NamedTuple):
    """One moment by both clocks: the scheduler's, and Unix seconds."""

    scheduler: float
    wall: float

    def date(self, moment: float) -> datetime:
        """The time of day of a moment in scheduler time."""
        unix = self.wall - (self.scheduler - moment)
        return datetime.fromtimestamp(round(unix, 3), UTC)

    def age(self, moment: float) -> float:
        return max(0.0, round(self.scheduler - moment, 3))


def route_status(route: Route, now: Now) -> RouteStatus:
    settings, pool = route.settings, route.executors
    exposure = route.offsets.exposure(route.executing, route.delayed)
    oldest = route.oldest
    thresholds = _thresholds(route)
    return RouteStatus(
        name=settings.name,
        target=settings.target,
        guarantee=settings.guarantee,
        state=route_state(route),
        threshold=thresholds.effective,
        threshold_bytes=settings.threshold_bytes,
        buffered=route.buffered,
        executing=route.executing,
        delayed=route.delayed,
        parking=len(route.parker),
        in_flight=route.in_flight,
        in_flight_bytes=route.in_flight_bytes,
        oldest_age_seconds=None if oldest is None else now.age(oldest),
        executors=ExecutorsStatus(
            settings.executors, pool.wanted, pool.effective, pool.running, pool.busy
        ),
        thresholds=thresholds,
        rate_limit=RateLimitStatus(settings.max_records_per_second, route.pace.rate),
        exposure=ExposureStatus(exposure.would_lose, exposure.would_repeat),
        availability=AvailabilityStatus(
            AppState(route.breaker.state.value),
            now.date(route.breaker.since),
            route.breaker.last_error,
        ),
        causes=list(causes(route, now)),
        counters=_counters(route),
        last_failure=route.failures.last,
        generation=route.generation,
    )


def route_state(route: Route) -> RouteState:
    if route.phase is Phase.RUNNING and route.failures.halted:
        return RouteState.HALTED
    if route.phase in (Phase.WAITING, Phase.RUNNING) and route.paused:
        return RouteState.PAUSED
    if route.phase is Phase.RUNNING and route.membership.left_at is not None:
        return RouteState.LEFT_GROUP
    return _STATES[route.phase]


def partition_statuses(
    route: Route,
    now: Now,
    ends: Mapping[Partition, int],
    paused: Collection[Assignment] | None,
) -> list[PartitionStatus]:
    """ends: the end offsets that are known; paused: None where that is not known."""
    delays = {topic.name: topic.delay_seconds for topic in route.retry_topics}
    return [
        _partition(route.settings.name, state, now, ends, paused, delays)
        for state in route.offsets.partitions()
    ]


def executing_records(
    route: Route, now: Now, limit: int, *, payload: bool = False
) -> list[ExecutingRecord]:
    """The records whose requests run, the oldest request first."""
    holders = heapq.nsmallest(limit, route.executors.executing(), key=lambda each: each.started_at)
    return [
        ExecutingRecord(
            route=route.settings.name,
            topic=original.topic,
            partition=original.partition,
            offset=original.offset,
            attempt=entry.tries + entry.record.attempts,
            age_seconds=now.age(entry.received_at),
            executing_seconds=now.age(holder.started_at),
            payload=_payload(entry.record) if payload else None,
        )
        for holder, entry in islice(
            ((holder, entry) for holder in holders for entry in holder.entries), limit
        )
        for original in (entry.record.original,)
    ]


def _payload(record: Record) -> PayloadStatus:
    headers = record.headers or []
    if headers is UNREADABLE_HEADERS:
        headers = []
    shown = headers[:HEADERS_SHOWN]
    parts = (record.key, record.value, *(value for _, value in shown))
    return PayloadStatus(
        key=_shown(record.key),
        value=_shown(record.value),
        headers=[HeaderStatus(name[:PAYLOAD_BYTES], _shown(value)) for name, value in shown],
        truncated=len(shown) < len(headers)
        or any(part is not None and len(part) > PAYLOAD_BYTES for part in parts),
    )


def _shown(part: bytes | None) -> str | None:
    return None if part is None else base64.b64encode(part[:PAYLOAD_BYTES]).decode("ascii")


def _thresholds(route: Route) -> ThresholdStatus:
    wanted, in_flight = route.threshold, route.in_flight
    return ThresholdStatus(
        configured=route.settings.threshold,
        wanted=wanted,
        effective=max(wanted, in_flight),
        in_flight=in_flight,
        the_loss_budget=route.settings.guarantee is Guarantee.AT_MOST_ONCE,
    )


def causes(route: Route, now: Now) -> Iterator[Cause]:
    """Why the route is slow or stopped, what stops it first; nothing while all is well."""
    if route.phase in (Phase.LEAVING, Phase.ENDED):
        return
    yield from _stopped_by_app(route, now)
    if route.failures.halted:
        yield Cause(
            CauseName.HALTED,
            None,
            route.failures.halted,
            "mend the app or the record, then resume the route",
        )
    if route.paused:
        yield Cause(CauseName.PAUSED, None, "an operator paused the dispatch", "resume the route")
    if route.phase is Phase.DRAINING:
        yield Cause(
            CauseName.DRAINING,
            None,
            f"{route.in_flight} records in flight are being finished",
            "wait; what is not finished in time is cut",
        )
    yield from _executors(route)
    yield from _retrying(route, now)
    if route.parker.failures:
        yield Cause(
            CauseName.DEAD_LETTER_WRITES_FAILING,
            None,
            f"{len(route.parker)} records wait to be parked or to be moved to a retry topic;"
            f" {route.parker.last_error}",
            "see that the topic exists and may be written; the writes are repeated by themselves",
        )
    elif route.without_dead_letter_topic:
        yield Cause(
            CauseName.DEAD_LETTER_WRITES_FAILING,
            None,
            "the dead-letter topic does not exist; nothing waits to be parked yet",
            "create it, as sidecar check says; it is looked for every ten seconds",
        )
    if route.trouble and now.scheduler - route.trouble_at < TROUBLE_LASTS_SECONDS:
        yield Cause(
            CauseName.KAFKA_TROUBLE,
            now.date(route.trouble_at),
            route.trouble,
            "see that the brokers are reachable; the client tries again by itself",
        )
    yield from _watermark(route, now)


def _stopped_by_app(route: Route, now: Now) -> Iterator[Cause]:
    breaker = route.breaker
    since, error = now.date(breaker.since), breaker.last_error or "no answer yet"
    if breaker.state is State.WAITING:
        step = "start the app, or see that it listens at the target; nothing is fetched until then"
        yield Cause(CauseName.WAITING_FOR_APP, since, error, step)
    elif breaker.state is State.HELD or (breaker.state is State.TRIAL and route.in_flight):
        yield _held(route, now)  # reachable and with nothing to try, it is not stopped
    if (left_at := route.membership.left_at) is not None:
        yield Cause(
            CauseName.LEFT_GROUP,
            now.date(left_at),
            f"the app was not there for {route.settings.leave_after_held_seconds:g} s: this member"
            " has left the group, and others have its partitions",
            "bring the app back; the group is joined again by itself",
        )


def _held(route: Route, now: Now) -> Cause:
    breaker, failures = route.breaker, route.failures
    error = breaker.last_error
    if breaker.until_delivered:
        waiting = f", {failures.waiting} wait to be parked" if failures.waiting else ""
        return Cause(
            CauseName.PARKED_IN_A_ROW,
            now.date(breaker.down_since or breaker.since),
            f"{failures.parked_in_a_row} records were parked or moved to a retry topic since"
            f" the last delivery{waiting};"
            f" the last failure: {failures.last}",
            "see why the app takes no record; delivery goes on once it takes one. If they are"
            " parked rightly, resume the route to park as many again",
        )
    step = "see why the app is away or misrouted; delivery goes on once it answers"
    return Cause(CauseName.HELD, now.date(breaker.since), error or "no answer yet", step)


def _executors(route: Route) -> Iterator[Cause]:
    pool = route.executors
    if pool.wanted == 0:
        yield Cause(
            CauseName.NO_EXECUTORS,
            None,
            "the number of executors is 0: nothing is dispatched",
            "set it to what the app can take",
        )
        return
    waiting = route.startable + route.offsets.waiting
    if route.pace.rate is not None and waiting and pool.busy < pool.wanted:
        yield Cause(
            CauseName.RATE_LIMITED,
            None,
            f"no more than {route.pace.rate:g} records start per second, {waiting} wait",
            "raise or remove the rate limit if the app can take more",
        )
    elif pool.effective < pool.wanted:
        yield Cause(
            CauseName.APP_OVERLOADED,
            None,
            f"{route.failures.concurrency.rate:.0%} of the recent answers were 429 or 503:"
            f" {pool.effective} of {pool.wanted} executors are used",
            "give the app more room, or lower the number of executors; it is raised by itself as"
            " records are delivered",
        )
    elif pool.busy >= pool.effective and waiting:
        yield Cause(
            CauseName.EXECUTORS_BUSY,
            None,
            f"all {pool.busy} executors have a request out, {waiting} records wait for one",
            "raise the number of executors if the app has room, else make the app faster",
        )


def _retrying(route: Route, now: Now) -> Iterator[Cause]:
    """Records that wait to be tried again, once they are many or one has waited long."""
    waiting, oldest = len(route.delays), route.delays.oldest
    if oldest is None:
        return
    if waiting * 10 >= route.threshold or now.scheduler - oldest >= HELD_LONG_SECONDS:
        yield Cause(
            CauseName.RETRYING,
            now.date(oldest),
            f"{waiting} records wait to be tried again; the last failure: {route.failures.last}",
            "see why the app fails; the records are tried again by themselves",
        )


def _watermark(route: Route, now: Now) -> Iterator[Cause]:
    """The record that keeps the most settled ones from being committed, once it does so long."""
    held = [
        (state.span - state.outstanding, state.oldest)
        for state in route.offsets.partitions()
        if state.oldest is not None
        and state.span > state.outstanding
        and now.scheduler - state.oldest.received_at >= HELD_LONG_SECONDS
    ]
    if held:
        done, entry = max(held, key=lambda each: each[0])
        yield Cause(
            CauseName.WATERMARK_HELD,
            now.date(entry.received_at),
            f"{entry.record} is not settled; {done} offsets behind it are done or hold no record",
            "see what keeps the app from answering this record",
        )


def _counters(route: Route) -> CountersStatus:
    counters, offsets = route.counters, route.offsets
    return CountersStatus(
        received=counters.received,
        delivered=counters.delivered,
        retries=counters.retries,
        parked=counters.parked,
        retried_later=counters.retried_later,
        relieved=counters.relieved,
        dropped=counters.dropped,
        already_done=counters.already_done,
        lost=counters.lost + offsets.maybe_lost,
        late_results=counters.late_results,
        rebalances=counters.rebalances,
        commit_failures=counters.commit_failures,
        park_failures=route.parker.failed_writes,
        out_of_range=counters.out_of_range,
        failures=dict(counters.failures),
    )


def _partition(
    route: str,
    state: PartitionState,
    now: Now,
    ends: Mapping[Partition, int],
    paused: Collection[Assignment] | None,
    delays: Mapping[str, float],
) -> PartitionStatus:
    assignment, oldest = state.assignment, state.oldest
    watermark = state.watermark if state.watermark >= 0 else None
    end = ends.get(assignment.partition)
    return PartitionStatus(
        route=route,
        topic=assignment.topic,
        partition=assignment.number,
        epoch=assignment.epoch,
        committed=state.committed if state.committed >= 0 else None,
        watermark=watermark,
        span=state.span,
        outstanding=state.outstanding,
        lag=None if end is None or watermark is None else max(0, end - watermark),
        paused=None if paused is None else assignment in paused,
        oldest_offset=None if oldest is None else oldest.record.offset,
        oldest_age_seconds=None if oldest is None else now.age(oldest.received_at),
        delay_seconds=delays.get(assignment.topic),
    )
