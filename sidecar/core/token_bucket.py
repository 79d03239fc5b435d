"""How many records per second may start: a token bucket. Time is an argument.

Invariants:
* In any stretch of t seconds no more start than rate × t, and a burst of BURST_SECONDS' worth
  (at least one record).
* What is taken at once may be more than there is (a batch): the debt is waited for.
"""

from __future__ import annotations

from typing import Final

BURST_SECONDS: Final = 0.1
_WHOLE: Final = 1.0 - 1e-9  # sums of fractions do not quite reach a whole record


class TokenBucket:
    """rate: records per second, above 0. It starts full."""

    __slots__ = ("_burst", "_left", "_seen_at", "rate")

    def __init__(self, rate: float, now: float) -> None:
        self.rate: Final = rate
        self._burst = max(1.0, rate * BURST_SECONDS)
        self._left = self._burst
        self._seen_at = now

    def wait(self, now: float) -> float:
        """Seconds until one more may start; 0: now."""
        self._left = min(self._burst, self._left + (now - self._seen_at) * self.rate)
        self._seen_at = now
        return 0.0 if self._left >= _WHOLE else (1.0 - self._left) / self.rate

    def spend(self, count: int) -> None:
        self._left -= count
