"""Head-of-line relief: one record that keeps a partition's watermark back is moved out of the way.

Owner: one route that keeps its records, on the loop; it looks with every commit tick. A watermark
that is held costs no delivery. But a crash repeats what lies behind it and has no room in the
done-map, and whoever watches the group's lag sees a backlog that is none.

Invariants:
* Only a record that is executing or waits out a backoff is moved; its request is cancelled first.
* The time counts only while the application is there: an outage is nobody's fault.
* No more than MOST_SHARE of the records received are moved. More are no stragglers, but the rule.
* What is moved counts among what was parked in a row, and waits where that is too much already.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sidecar.core.breaker import Breaker, State
from sidecar.core.ledger import InFlight
from sidecar.dispatch.context import Context
from sidecar.dispatch.delays import Delays
from sidecar.dispatch.failures import Failures
from sidecar.dispatch.feed import Feed
from sidecar.dispatch.offsets import Offsets, PartitionState
from sidecar.model import Assignment, Failed, FailureKind, Guarantee, RelieveBy, RetryTopic
from sidecar.settings import RouteSettings

RELIEVED: Final = "relieved"  # why a record was parked
LEAST_SPAN: Final = 100
MOST_OUTSTANDING: Final = 0.05  # of the span
MOST_SHARE: Final = 0.02


def is_possible(settings: RouteSettings, retry_topics: Sequence[RetryTopic]) -> bool:
    if settings.guarantee is not Guarantee.AT_LEAST_ONCE or not settings.relieve_after_seconds:
        return False
    if settings.relieve_by is RelieveBy.PARK:
        return settings.dead_letter is not None
    return len(retry_topics) > 1


class Relief:
    """See the module."""

    __slots__ = (
        "_breaker",
        "_counters",
        "_delays",
        "_failures",
        "_feed",
        "_holders",
        "_log",
        "_offsets",
        "_scheduler",
        "_settings",
    )

    def __init__(
        self,
        context: Context,
        breaker: Breaker,
        offsets: Offsets,
        delays: Delays,
        failures: Failures,
        feed: Feed,
    ) -> None:
        self._scheduler: Final = context.scheduler
        self._settings: Final = context.settings
        self._counters: Final = context.counters
        self._log: Final = context.log
        self._breaker: Final = breaker
        self._offsets: Final = offsets
        self._delays: Final = delays
        self._failures: Final = failures
        self._feed: Final = feed
        # Who holds the watermark, and since when.
        self._holders: dict[Assignment, tuple[InFlight, float]] = {}

    def look(self) -> None:
        """Called with every commit tick."""
        before, self._holders = self._holders, {}
        if self._breaker.state is not State.UP or not self._feed.may_go_on:
            return  # the time begins anew
        now = self._scheduler.time()
        relieved = False
        for state in self._offsets.partitions():
            entry = state.oldest
            if entry is None:
                continue
            holder, since = before.get(state.assignment, (None, now))
            if holder is not entry:
                since = now
            self._holders[state.assignment] = entry, since
            if now - since >= self._settings.relieve_after_seconds and _is_alone(state):
                relieved |= self._relieve(entry)
        if relieved:
            self._feed.executors.kick()

    def _relieve(self, entry: InFlight) -> bool:
        """False if that would be one too many, or it neither executes nor waits."""
        counters, failures = self._counters, self._failures
        most = counters.received * MOST_SHARE
        if counters.relieved + 1 > most or not failures.in_a_row.may_park():
            return False
        if not (self._feed.cancel(entry) or self._delays.remove(entry)):
            return False
        counters.relieved += 1
        seconds = self._settings.relieve_after_seconds
        told = f"it held the watermark for {seconds:g} s while what lies behind it is done"
        if self._settings.relieve_by is RelieveBy.PARK:
            self._log.warning("relieved %s: %s; it is parked", entry.record, told)
            failures.park(entry, Failed(FailureKind.TIMEOUT, told), RELIEVED)
        else:
            topic = failures.move(entry)
            self._log.warning("relieved %s: %s; it goes to %s", entry.record, told, topic.name)
        return True


def _is_alone(state: PartitionState) -> bool:
    """Nearly all behind its oldest record is done."""
    return state.span >= LEAST_SPAN and state.outstanding <= state.span * MOST_OUTSTANDING
