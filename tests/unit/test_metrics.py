"""The metrics, as a scraper reads them."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from sidecar.core.histogram import Histogram
from sidecar.dispatch.timings import ATTEMPT_BOUNDS, DELAY_BOUNDS, OUTCOMES
from sidecar.model import Outcome
from sidecar.status import CauseName, PartitionStatus
from sidecar.telemetry.metrics import NAMES, PREFIX, SERIES, RouteTimes, exposition
from tests.fakes.admin import ORDERS, PARTITION
from tests.rig.prometheus import promtool

TIMES = RouteTimes(
    "orders", {each: Histogram(ATTEMPT_BOUNDS) for each in OUTCOMES}, Histogram(DELAY_BOUNDS)
)
TIMES.attempts[Outcome.DELIVERED].add(0.03)
OPERATIONS = Path(__file__).parents[2] / "docs" / "operations.md"


def series(*partitions: PartitionStatus) -> dict[tuple[str, ...], float]:
    """By name and the values of the labels, in the order of the labels' names."""
    text = exposition([ORDERS], partitions, [TIMES]).decode()
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_numbers_are_those_of_the_status() -> None:
    found = series()
    assert found[f"{PREFIX}in_flight_records", "orders"] == ORDERS.in_flight
    assert found[f"{PREFIX}delivered_records_total", "orders"] == ORDERS.counters.delivered
    assert found[f"{PREFIX}park_failures_total", "orders"] == ORDERS.counters.park_failures == 5
    assert found[f"{PREFIX}executors", "busy", "orders"] == ORDERS.executors.busy
    assert found[f"{PREFIX}failed_attempts_total", "status_retry", "orders"] == 4


def test_every_cause_has_a_series_and_those_that_hold_are_1() -> None:
    found = series()
    causes = {name: found[f"{PREFIX}cause", name.value, "orders"] for name in CauseName}
    assert [name for name, value in causes.items() if value] == [CauseName.EXECUTORS_BUSY]


def test_the_series_of_a_partition_end_with_its_assignment() -> None:
    owned = replace(PARTITION, lag=20)
    assert series(owned)[f"{PREFIX}partition_lag", "0", "orders", "orders"] == 20
    assert not [name for name, *_ in series() if name.startswith(f"{PREFIX}partition_")]


def test_what_is_not_known_has_no_series() -> None:
    found = series(replace(PARTITION, lag=None, paused=None))
    assert (f"{PREFIX}partition_lag", "0", "orders", "orders") not in found
    assert (f"{PREFIX}partition_paused", "0", "orders", "orders") not in found


def test_backlog_is_what_is_in_flight_and_what_is_to_be_fetched_and_due() -> None:
    later = replace(PARTITION, topic="orders.retry", lag=500, delay_seconds=60.0)
    found = series(replace(PARTITION, lag=30, span=8), later)
    assert found[f"{PREFIX}backlog_records", "orders"] == ORDERS.in_flight + 22


def test_names_are_legal_documented_and_all_there() -> None:
    page = OPERATIONS.read_text(encoding="utf-8")
    documented = set(re.findall(rf"`({PREFIX}[a-z_]+)`", page))
    assert documented == NAMES
    told = {name for name, *_ in series(replace(PARTITION, lag=1, paused=True))}
    assert told | NAMES == SERIES


def test_a_histogram_has_few_buckets_and_all_of_them_from_the_start() -> None:
    found = series()
    bucket = f"{PREFIX}attempt_seconds_bucket"
    delivered = {le: found[bucket, le, "delivered", "orders"] for le in ("0.02", "0.05", "+Inf")}
    assert delivered == {"0.02": 0, "0.05": 1, "+Inf": 1}
    assert found[f"{PREFIX}attempt_seconds_count", "app_down", "orders"] == 0
    assert len([name for name, *_ in found if name == bucket]) == 16 * len(OUTCOMES)


def test_what_partitions_say_can_be_left_out_but_for_their_sums() -> None:
    """OBS-2."""
    many = [replace(PARTITION, partition=number, lag=30, span=8) for number in range(200)]
    text = exposition([ORDERS], many, by_partition=False).decode()
    assert "partition_lag{" not in text
    assert "partition=" not in text
    assert 'assigned_partitions{route="orders"} 200.0' in text
    assert f'backlog_records{{route="orders"}} {ORDERS.in_flight + 22 * 200}.0' in text
    assert len(exposition([ORDERS], many)) < 300_000


def test_promtool_finds_no_fault() -> None:
    promtool("check", "metrics", stdin=exposition([ORDERS], [PARTITION], [TIMES]))
