"""Histograms: what is counted where, and what can be read from them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.core.histogram import Histogram, quantile

BOUNDS = (0.001, 0.01, 0.1, 1.0)


@given(
    values=st.lists(st.integers(0, 5000)),  # milliseconds
    shift=st.sampled_from([0.0, -1_700_000_000.0, 1_700_000_000.0]),
)
def test_counting_in_bulk_counts_as_one_by_one(values: list[int], shift: float) -> None:
    histogram = Histogram(BOUNDS)
    histogram.add_sorted(sorted(value / 1000 - shift for value in values), shift)
    expected = [sum(value <= bound * 1000 for value in values) for bound in BOUNDS]
    assert histogram.up_to(BOUNDS) == list(zip(BOUNDS, expected, strict=True))
    assert histogram.count == len(values)
    assert histogram.sum == pytest.approx(sum(values) / 1000, abs=1e-4)


def test_a_record_from_the_future_is_as_old_as_zero_and_one_without_a_time_is_none() -> None:
    histogram = Histogram(BOUNDS)
    histogram.add_sorted([-5.0, 0.05, 1_700_000_000.0])
    assert histogram.counts == [1, 0, 1, 0, 0]
    assert histogram.sum == 0.05


@given(st.lists(st.floats(0.0, 1.0), min_size=1), st.sampled_from([0.5, 0.95, 0.99]))
def test_a_quantile_lies_in_the_bucket_of_the_value_it_stands_for(
    values: list[float], share: float
) -> None:
    histogram = Histogram(BOUNDS)
    histogram.add_sorted(sorted(values))
    exact = Histogram(BOUNDS)
    exact.add(sorted(values)[math.ceil(share * len(values)) - 1])
    bucket = exact.counts.index(1)
    found = quantile(share, BOUNDS, histogram.counts)
    assert found is not None
    assert (0.0, *BOUNDS)[bucket] <= found <= BOUNDS[bucket]


def test_a_quantile_is_not_rounded_out_of_its_bucket() -> None:
    """By 2e-18: within a bucket it is a sum of floats."""
    assert quantile(1.0, BOUNDS, [0, 3, 0, 0, 0]) == 0.01


def test_nothing_has_no_quantile_and_what_is_beyond_all_bounds_the_last() -> None:
    assert quantile(0.5, BOUNDS, [0, 0, 0, 0, 0]) is None
    assert quantile(0.5, BOUNDS, [0, 0, 0, 0, 9]) == 1.0
