"""core/token_bucket: no more than the rate, whatever the pattern of asking."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.core.token_bucket import BURST_SECONDS, TokenBucket


@given(
    rate=st.floats(0.1, 10_000),
    steps=st.lists(st.tuples(st.floats(0, 2), st.integers(1, 5)), max_size=200),
)
def test_never_more_than_the_rate_and_one_burst(
    rate: float, steps: list[tuple[float, int]]
) -> None:
    now, started, largest = 1000.0, 0, 0
    bucket = TokenBucket(rate, now)
    for passed, size in steps:
        now += passed
        if bucket.wait(now) == 0:
            bucket.spend(size)
            started += size
            largest = max(largest, size)
        assert started <= rate * (now - 1000.0) + max(1.0, rate * BURST_SECONDS) + largest


@pytest.mark.parametrize("rate", [0.3, 1, 3, 7, 50, 1000])
def test_whoever_waits_as_told_gets_the_rate(rate: float) -> None:
    now, started = 0.0, 0
    bucket = TokenBucket(rate, now)
    while now < 100:
        wait = bucket.wait(now)
        if wait:
            now += wait
        else:
            bucket.spend(1)
            started += 1
    assert started == pytest.approx(rate * 100, rel=0.01, abs=1 + rate * BURST_SECONDS)


def test_what_a_batch_took_too_much_is_waited_for() -> None:
    bucket = TokenBucket(10, 0.0)
    bucket.spend(21)
    assert bucket.wait(0.0) == pytest.approx(2.1)
