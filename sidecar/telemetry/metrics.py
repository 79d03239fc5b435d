"""The metrics: one table of names, and the text a scraper gets.

Computed from the status when somebody asks: between two scrapes they cost nothing, and a partition
that was given up has no series any more. Labels come from closed sets, but for topic and partition.

Owner: whoever asks, on the loop. Names, units and labels are public (docs/operations.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from sidecar.core.histogram import Histogram
from sidecar.model import Outcome
from sidecar.status import AppState, CauseName, PartitionStatus, RouteState, RouteStatus

PREFIX: Final = "kafka_sidecar_"


class RouteGauge(NamedTuple):
    """One number of a route; None: there is none now."""

    name: str
    help: str
    read: Callable[[RouteStatus], float | None]


class RouteCounter(NamedTuple):
    """One number of a route that only rises; its series gets the suffix _total."""

    name: str
    help: str
    read: Callable[[RouteStatus], float]


class PartitionGauge(NamedTuple):
    """One number of a partition this member owns; None: there is none now."""

    name: str
    help: str
    read: Callable[[PartitionStatus], float | None]


class LabelledGauge(NamedTuple):
    """Numbers of a route by one more label, of a closed set."""

    name: str
    help: str
    label: str
    read: Callable[[RouteStatus], Iterable[tuple[str, float]]]


class RouteTimes(NamedTuple):
    """How long the attempts of a route took, by what they came to, and how late records arrived."""

    route: str
    attempts: Mapping[Outcome, Histogram]
    delays: Histogram


ROUTE_GAUGES: Final = (
    RouteGauge("threshold_records", "Records in flight at most, in force", lambda r: r.threshold),
    RouteGauge("threshold_bytes", "Bytes in flight at most", lambda r: r.threshold_bytes),
    RouteGauge("buffered_records", "Fetched and not yet taken", lambda r: r.buffered),
    RouteGauge("executing_records", "Held by an executor", lambda r: r.executing),
    RouteGauge("delayed_records", "Waiting without an executor", lambda r: r.delayed),
    RouteGauge("parking_records", "Being written to another topic", lambda r: r.parking),
    RouteGauge("in_flight_records", "Fetched and not settled", lambda r: r.in_flight),
    RouteGauge("in_flight_bytes", "Bytes of what is in flight", lambda r: r.in_flight_bytes),
    RouteGauge(
        "oldest_age_seconds", "How long the oldest is in flight", lambda r: r.oldest_age_seconds
    ),
    RouteGauge(
        "would_lose_records", "What a crash now would lose", lambda r: r.exposure.would_lose
    ),
    RouteGauge(
        "would_repeat_records", "What a crash now would repeat", lambda r: r.exposure.would_repeat
    ),
)
ROUTE_COUNTERS: Final = (
    RouteCounter("received_records", "Fetched", lambda r: r.counters.received),
    RouteCounter("delivered_records", "Taken by the app", lambda r: r.counters.delivered),
    RouteCounter("parked_records", "In the dead-letter topic", lambda r: r.counters.parked),
    RouteCounter(
        "retried_later_records", "Moved to a retry topic", lambda r: r.counters.retried_later
    ),
    RouteCounter(
        "already_done_records",
        "Fetched again, and known as done by an earlier owner",
        lambda r: r.counters.already_done,
    ),
    RouteCounter("dropped_records", "Given up for good", lambda r: r.counters.dropped),
    RouteCounter("lost_records", "Cut at the end of a drain", lambda r: r.counters.lost),
    RouteCounter(
        "relieved_records", "Moved off the watermark they held", lambda r: r.counters.relieved
    ),
    RouteCounter("retries", "Attempts put off to later", lambda r: r.counters.retries),
    RouteCounter(
        "late_results", "Of records whose partition had left", lambda r: r.counters.late_results
    ),
    RouteCounter("rebalances", "Partitions revoked or lost", lambda r: r.counters.rebalances),
    RouteCounter("commit_failures", "Commits refused", lambda r: r.counters.commit_failures),
    RouteCounter(
        "park_failures", "Writes of parked records that failed", lambda r: r.counters.park_failures
    ),
    RouteCounter(
        "out_of_range", "Positions that did not exist any more", lambda r: r.counters.out_of_range
    ),
)
LABELLED_GAUGES: Final = (
    LabelledGauge(
        "executors",
        "Concurrent delivery slots",
        "kind",
        lambda r: (
            ("configured", r.executors.configured),
            ("wanted", r.executors.wanted),
            ("effective", r.executors.effective),
            ("running", r.executors.running),
            ("busy", r.executors.busy),
        ),
    ),
    LabelledGauge(
        "availability",
        "1 for what is known of the app",
        "state",
        lambda r: ((each.value, each is r.availability.state) for each in AppState),
    ),
    LabelledGauge(
        "state",
        "1 for where the route is in its life",
        "state",
        lambda r: ((each.value, each is r.state) for each in RouteState),
    ),
    LabelledGauge(
        "cause",
        "1 for each reason why the route is slow or stopped",
        "cause",
        lambda r: ((each.value, each in {c.cause for c in r.causes}) for each in CauseName),
    ),
)
PARTITION_GAUGES: Final = (
    PartitionGauge("partition_lag", "End offset minus watermark", lambda p: p.lag),
    PartitionGauge("partition_span", "Highest received offset minus watermark", lambda p: p.span),
    PartitionGauge(
        "partition_outstanding_records", "Received, not settled", lambda p: p.outstanding
    ),
    PartitionGauge("partition_paused", "1 while fetching is paused", lambda p: p.paused),
    PartitionGauge(
        "partition_oldest_age_seconds",
        "How long the oldest is in flight",
        lambda p: p.oldest_age_seconds,
    ),
)
FAILED_ATTEMPTS: Final = "failed_attempts"
BACKLOG: Final = "backlog_records"
ASSIGNED: Final = "assigned_partitions"
ATTEMPT_SECONDS: Final = "attempt_seconds"
DELIVERY_DELAY: Final = "delivery_delay_seconds"
# Of the finer ones that are kept; their number is paid for by whoever stores them.
ATTEMPT_BUCKETS: Final = (
    *(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5),
    *(1.0, 2.0, 5.0, 10.0, 20.0, 50.0),
)
NAMES: Final = frozenset(
    PREFIX + name
    for name in (
        *(each.name for each in (*ROUTE_GAUGES, *LABELLED_GAUGES, *PARTITION_GAUGES)),
        *(f"{each.name}_total" for each in ROUTE_COUNTERS),
        f"{FAILED_ATTEMPTS}_total",
        BACKLOG,
        ASSIGNED,
        ATTEMPT_SECONDS,
        DELIVERY_DELAY,
    )
)
# Every name that a query may use.
SERIES: Final = NAMES | {
    PREFIX + name + suffix
    for name in (ATTEMPT_SECONDS, DELIVERY_DELAY)
    for suffix in ("_bucket", "_count", "_sum")
}


def exposition(
    routes: Sequence[RouteStatus],
    partitions: Sequence[PartitionStatus],
    times: Sequence[RouteTimes] = (),
    *,
    by_partition: bool = True,
) -> bytes:
    """What a scraper gets: the text format of Prometheus, version 0.0.4, in UTF-8.

    by_partition: whether there are series for each partition.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Snapshot(routes, partitions, times, by_partition))
    return generate_latest(registry)


class _Snapshot(Collector):
    """The metrics of one moment."""

    def __init__(
        self,
        routes: Sequence[RouteStatus],
        partitions: Sequence[PartitionStatus],
        times: Sequence[RouteTimes],
        by_partition: bool,
    ) -> None:
        self._routes = routes
        self._partitions = partitions
        self._times = times
        self._by_partition = by_partition

    def collect(self) -> Iterator[Metric]:
        for gauge in ROUTE_GAUGES:
            yield self._gauge(gauge.name, gauge.help, gauge.read)
        for counter in ROUTE_COUNTERS:
            rising = CounterMetricFamily(PREFIX + counter.name, counter.help, labels=["route"])
            for route in self._routes:
                rising.add_metric([route.name], counter.read(route))
            yield rising
        for labelled in LABELLED_GAUGES:
            several = GaugeMetricFamily(
                PREFIX + labelled.name, labelled.help, labels=["route", labelled.label]
            )
            for route in self._routes:
                for value, number in labelled.read(route):
                    several.add_metric([route.name, value], number)
            yield several
        yield self._failed_attempts()
        yield self._gauge(
            BACKLOG, "Records that are not settled, in flight or not fetched yet", self._backlog
        )
        yield self._gauge(
            ASSIGNED,
            "Partitions this member owns",
            lambda route: sum(each.route == route.name for each in self._partitions),
        )
        yield from self._histograms()
        for one in PARTITION_GAUGES if self._by_partition else ():
            of_partitions = GaugeMetricFamily(
                PREFIX + one.name, one.help, labels=["route", "topic", "partition"]
            )
            for partition in self._partitions:
                found = one.read(partition)
                if found is not None:
                    where = [partition.route, partition.topic, str(partition.partition)]
                    of_partitions.add_metric(where, found)
            yield of_partitions

    def _gauge(
        self, name: str, text: str, read: Callable[[RouteStatus], float | None]
    ) -> GaugeMetricFamily:
        gauge = GaugeMetricFamily(PREFIX + name, text, labels=["route"])
        for route in self._routes:
            value = read(route)
            if value is not None:
                gauge.add_metric([route.name], value)
        return gauge

    def _failed_attempts(self) -> CounterMetricFamily:
        failed = CounterMetricFamily(
            PREFIX + FAILED_ATTEMPTS, "Attempts that failed, by reason", labels=["route", "reason"]
        )
        for route in self._routes:
            for reason, count in sorted(route.counters.failures.items()):
                failed.add_metric([route.name, reason], count)
        return failed

    def _histograms(self) -> Iterator[Metric]:
        attempts = HistogramMetricFamily(
            PREFIX + ATTEMPT_SECONDS,
            "From the start of a request to its outcome",
            labels=["route", "outcome"],
        )
        delays = HistogramMetricFamily(
            PREFIX + DELIVERY_DELAY,
            "From the timestamp of a record to its delivery",
            labels=["route"],
        )
        for times in self._times:
            for outcome, histogram in times.attempts.items():
                attempts.add_metric(
                    [times.route, outcome.value],
                    _cumulated(histogram, ATTEMPT_BUCKETS),
                    histogram.sum,
                )
            delays.add_metric(
                [times.route], _cumulated(times.delays, times.delays.bounds), times.delays.sum
            )
        yield attempts
        yield delays

    def _backlog(self, route: RouteStatus) -> float:
        """What is not due yet in a retry topic is none."""
        return route.in_flight + sum(
            partition.unfetched or 0
            for partition in self._partitions
            if partition.route == route.name
        )


def _cumulated(histogram: Histogram, bounds: Sequence[float]) -> list[tuple[str, float]]:
    told: list[tuple[str, float]] = [
        (f"{bound:g}", count) for bound, count in histogram.up_to(bounds)
    ]
    return [*told, ("+Inf", histogram.count)]
