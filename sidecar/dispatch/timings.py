"""How long attempts took, how late records arrived, and what happened lately.

Owner: one route, on the loop. What is delivered is noted in two lists and counted in bulk, every
other second and when somebody asks.

Invariants:
* A request counts once, under what it came to; a record counts once as late, when it is delivered.
* Of many deliveries a second only some are timed, and stand for the others: to time each would cost
  a twentieth of what a record costs. Whatever was not delivered is always timed.
* Numbers of lately come from moments that are kept: a bounded number, all of running totals.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from sidecar.core.histogram import Histogram, quantile
from sidecar.core.ledger import InFlight
from sidecar.dispatch.counters import Counters
from sidecar.model import Outcome, Record
from sidecar.ports import Scheduler, Timer

MOMENT_SECONDS: Final = 2.0
RATE_MOMENTS: Final = 5  # rates are those of ten seconds
PERCENTILE_MOMENTS: Final = 30  # percentiles those of a minute
MANY_PER_SECOND: Final = 1000
ONE_IN: Final = 13  # no divisor of what usually repeats, like the number of executors

_STEPS: Final = (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0)
ATTEMPT_BOUNDS: Final = (
    *(float(f"{step}e{power}") for power in range(-3, 2) for step in _STEPS),
    100.0,
)
DELAY_BOUNDS: Final = (
    *(0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0),
    *(60.0, 300.0, 900.0, 3600.0, 14_400.0, 86_400.0),
)
# What an attempt that was sent and not cut can come to.
OUTCOMES: Final = tuple(outcome for outcome in Outcome if outcome is not Outcome.CANCELLED)


class Rates(NamedTuple):
    """throttled_share: of the attempts, None where there was none."""

    received_per_second: float
    delivered_per_second: float
    failed_per_second: float
    throttled_share: float | None


class Percentiles(NamedTuple):
    """Of attempts that reached the application, in seconds; None where there was none."""

    p50: float | None
    p95: float | None
    p99: float | None


class _Moment(NamedTuple):
    at: float
    received: int
    delivered: int
    failed: int
    attempts: int
    deferred: int
    counts: tuple[int, ...]  # of the attempts that reached the application, by duration


class Timings:
    """every: one in so many deliveries is to be noted."""

    __slots__ = (
        "_clock_apart",
        "_counters",
        "_moments",
        "_produced",
        "_scheduler",
        "_timer",
        "_took",
        "_wall_clock",
        "attempts",
        "delays",
        "every",
    )

    def __init__(
        self, scheduler: Scheduler, wall_clock: Callable[[], float], counters: Counters
    ) -> None:
        self._scheduler: Final = scheduler
        self._wall_clock: Final = wall_clock
        self._counters: Final = counters
        self._took: Final[list[float]] = []
        self._produced: Final[list[float]] = []
        self.every = 1
        self.attempts: Final[Mapping[Outcome, Histogram]] = {
            outcome: Histogram(ATTEMPT_BOUNDS) for outcome in OUTCOMES
        }
        self.delays: Final = Histogram(DELAY_BOUNDS)
        self._moments: Final[deque[_Moment]] = deque(maxlen=PERCENTILE_MOMENTS)
        self._clock_apart = wall_clock() - scheduler.time()
        self._timer: Timer | None = None

    def start(self) -> None:
        self._remember()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def attempted(self, outcome: Outcome, seconds: float) -> None:
        """A request came to this."""
        self.attempts[outcome].add(seconds)

    def took(self, record: Record, started_at: float, now: float) -> None:
        """One delivery that stands for as many as every says."""
        self._took.append(now - started_at)
        self._produced.append(now - record.timestamp_ms * 0.001)

    def arrived(self, entries: Sequence[InFlight], now: float) -> None:
        """These were delivered together, and are counted already."""
        every = self.every
        counted_before = self._counters.delivered - len(entries)
        for entry in entries[-(counted_before + 1) % every :: every]:
            self._produced.append(now - entry.record.timestamp_ms * 0.001)

    def fold(self) -> None:
        """Count what was noted."""
        took, produced = self._took, self._produced
        if took:
            took.sort()
            self.attempts[Outcome.DELIVERED].add_sorted(took, weight=self.every)
            took.clear()
        if produced:
            produced.sort()
            self.delays.add_sorted(produced, self._clock_apart, self.every)
            produced.clear()

    def rates(self) -> Rates:
        """Of the last ten seconds, or of the time there was."""
        now = self._now()
        then = self._moments[-RATE_MOMENTS] if len(self._moments) >= RATE_MOMENTS else self._first
        seconds = max(now.at - then.at, 1.0)
        attempts = now.attempts - then.attempts
        return Rates(
            (now.received - then.received) / seconds,
            (now.delivered - then.delivered) / seconds,
            (now.failed - then.failed) / seconds,
            (now.deferred - then.deferred) / attempts if attempts else None,
        )

    def percentiles(self) -> Percentiles:
        """Of the last minute, or of the time there was."""
        now, then = self._now(), self._first
        counts = [after - before for before, after in zip(then.counts, now.counts, strict=True)]
        found = (quantile(share, ATTEMPT_BOUNDS, counts) for share in (0.5, 0.95, 0.99))
        return Percentiles(*found)

    @property
    def _first(self) -> _Moment:
        """The oldest moment that is kept; before the first all was zero."""
        if self._moments:
            return self._moments[0]
        return _Moment(self._scheduler.time(), 0, 0, 0, 0, 0, (0,) * (len(ATTEMPT_BOUNDS) + 1))

    def _remember(self) -> None:
        # The loop's time is that of the beginning of its turn, and a timer runs then.
        self._clock_apart = self._wall_clock() - self._scheduler.time()
        now = self._now()
        before = self._moments[-1] if self._moments else now
        self._moments.append(now)
        many = now.delivered - before.delivered > MANY_PER_SECOND * MOMENT_SECONDS
        self.every = ONE_IN if many else 1
        self._timer = self._scheduler.call_later(MOMENT_SECONDS, self._remember)

    def _now(self) -> _Moment:
        self.fold()
        attempts, counters = self.attempts, self._counters
        reached = [attempts[each].counts for each in OUTCOMES if each is not Outcome.APP_DOWN]
        return _Moment(
            self._scheduler.time(),
            counters.received,
            counters.delivered,
            sum(counters.failures.values()),
            sum(histogram.count for histogram in attempts.values()),
            attempts[Outcome.DEFERRED].count,
            tuple(map(sum, zip(*reached, strict=True))),
        )
