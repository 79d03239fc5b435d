"""What a route says about itself: its numbers, and the records and partitions it has.

Reads a route on the loop and changes nothing. Why it is slow or stopped is told by causes.
"""

from __future__ import annotations

import base64
import heapq
from collections.abc import Collection, Mapping
from itertools import islice
from typing import Final

from sidecar.dispatch.causes import Now, causes
from sidecar.dispatch.offsets import PartitionState
from sidecar.dispatch.route import Phase, Route
from sidecar.model import UNREADABLE_HEADERS, Assignment, Guarantee, Partition, Record
from sidecar.status import (
    AppState,
    AvailabilityStatus,
    CountersStatus,
    ExecutingRecord,
    ExecutorsStatus,
    ExposureStatus,
    HeaderStatus,
    PartitionStatus,
    PayloadStatus,
    PercentilesStatus,
    RateLimitStatus,
    RatesStatus,
    RouteState,
    RouteStatus,
    ThresholdStatus,
)

PAYLOAD_BYTES: Final = 1024  # of each part of a record that are shown
HEADERS_SHOWN: Final = 100

_STATES: Final = {
    Phase.WAITING: RouteState.WAITING,
    Phase.RUNNING: RouteState.RUNNING,
    Phase.DRAINING: RouteState.DRAINING,
    Phase.LEAVING: RouteState.LEAVING,
    Phase.ENDED: RouteState.ENDED,
}


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
            now.date(route.breaker.told_since),
            route.breaker.last_error,
        ),
        causes=list(causes(route, now)),
        rates=_rates(route),
        attempt_seconds=_percentiles(route),
        counters=_counters(route),
        last_failure=route.failures.last,
        generation=route.generation,
    )


def _rates(route: Route) -> RatesStatus:
    received, delivered, failed, throttled = route.timings.rates()
    return RatesStatus(
        received_per_second=round(received, 3),
        delivered_per_second=round(delivered, 3),
        failed_per_second=round(failed, 3),
        throttled_share=None if throttled is None else round(throttled, 4),
    )


def _percentiles(route: Route) -> PercentilesStatus:
    found = route.timings.percentiles()
    return PercentilesStatus(*(None if each is None else round(each, 4) for each in found))


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
