"""The schedule of short retries: tenacity's wait and stop objects behind our own words.

The wait is exponential with full jitter: anywhere between nothing and an exponentially growing
bound that never exceeds the maximum.
"""

from __future__ import annotations

from random import Random
from typing import Final

from tenacity import RetryCallState, Retrying, stop_after_attempt, stop_never, wait_exponential
from tenacity.stop import stop_base

_UNUSED_RETRYING: Final = Retrying()
_MOST_TRIES: Final = 1000  # no wait grows after so many, and two to their power is still a float


class RetrySchedule:
    """When to try again, and when to stop trying.

    max_attempts includes the first; max_age_seconds counts from the first try.
    """

    __slots__ = ("_max_age", "_random", "_stop", "_wait")

    def __init__(
        self,
        *,
        max_attempts: int,
        initial_backoff_seconds: float,
        max_backoff_seconds: float,
        max_age_seconds: float | None,
        random: Random,
    ) -> None:
        self._wait = wait_exponential(multiplier=initial_backoff_seconds, max=max_backoff_seconds)
        self._stop: stop_base = stop_after_attempt(max_attempts) if max_attempts else stop_never
        self._max_age = max_age_seconds
        self._random = random

    def backoff_bound(self, tries: int) -> float:
        """The longest wait in seconds after so many tries."""
        return float(self._wait(_state(min(max(1, tries), _MOST_TRIES))))

    def backoff(self, tries: int) -> float:
        """The wait in seconds after so many tries, by chance within its bound."""
        return self.backoff_bound(tries) * self._random.random()

    def exhausted(self, attempts: int, age_seconds: float) -> bool:
        if self._max_age is not None and age_seconds >= self._max_age:
            return True
        return bool(self._stop(_state(attempts)))


def _state(attempt_number: int) -> RetryCallState:
    state = RetryCallState(_UNUSED_RETRYING, None, (), {})
    state.attempt_number = attempt_number
    return state
