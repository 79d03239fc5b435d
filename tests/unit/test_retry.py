"""The retry schedule: jitter within a bound that grows to the cap; when attempts are used up."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.core.retry import RetrySchedule


class Highest(Random):
    """Chance at its worst."""

    def random(self) -> float:
        return 1.0 - 2**-53


def schedule(
    *,
    max_attempts: int = 5,
    initial: float = 1.0,
    longest: float = 30.0,
    max_age: float | None = None,
    random: Random | None = None,
) -> RetrySchedule:
    return RetrySchedule(
        max_attempts=max_attempts,
        initial_backoff_seconds=initial,
        max_backoff_seconds=longest,
        max_age_seconds=max_age,
        random=random or Random(1),
    )


def test_the_bound_doubles_from_the_initial_backoff_to_the_cap() -> None:
    bounds = [schedule(initial=0.2).backoff_bound(tries) for tries in range(1, 11)]
    assert bounds == pytest.approx([0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30, 30])


@pytest.mark.parametrize("tries", [70, 1_025, 5_000, 10**9])
def test_a_record_that_failed_very_often_waits_exactly_up_to_the_cap(tries: int) -> None:
    """RSP-5."""
    assert schedule().backoff_bound(tries) == 30.0


@given(
    tries=st.integers(0, 10**6),
    initial=st.floats(0, 100),
    longest=st.floats(0, 3600),
    seed=st.integers(),
)
def test_a_wait_never_leaves_its_bounds(
    tries: int, initial: float, longest: float, seed: int
) -> None:
    plan = schedule(initial=initial, longest=longest, random=Random(seed))
    bound = plan.backoff_bound(tries)
    assert 0.0 <= bound <= longest
    assert bound == 0.0 or initial > 0.0
    assert 0.0 <= plan.backoff(tries) <= bound


def test_jitter_is_full() -> None:
    """Waits lie anywhere from nothing to the bound, so that those who failed together part."""
    plan = schedule()
    waits = [plan.backoff(4) for _ in range(1_000)]
    assert min(waits) < 0.2
    assert max(waits) > 7.8
    assert 3.5 < sum(waits) / len(waits) < 4.5
    assert schedule(random=Highest()).backoff(4) <= 8.0


def test_max_attempts_includes_the_first() -> None:
    assert [schedule(max_attempts=3).exhausted(n, 0.0) for n in range(5)] == [
        False,
        False,
        False,
        True,
        True,
    ]


def test_a_record_that_was_not_charged_an_attempt_has_not_used_up_its_only_one() -> None:
    plan = schedule(max_attempts=1)
    assert not plan.exhausted(0, 0.0)
    assert plan.exhausted(1, 0.0)


def test_no_maximum_of_attempts_means_for_ever() -> None:
    assert not schedule(max_attempts=0).exhausted(10**9, 1e9)


def test_a_record_may_also_be_too_old_to_be_tried_again() -> None:
    plan = schedule(max_attempts=0, max_age=60.0)
    assert not plan.exhausted(100, 59.9)
    assert plan.exhausted(1, 60.0)
