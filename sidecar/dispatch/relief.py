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

from collections.abc import Iterable, Sequence
from typing import Any, Final, Protocol

from sidecar.core.ledger import InFlight
from sidecar.dispatch.counters import Counters
from sidecar.dispatch.delays import Delays
from sidecar.dispatch.executors import ExecutorPool
from sidecar.dispatch.failures import Failures
from sidecar.dispatch.offsets import PartitionState
from sidecar.logs import WithFields
from sidecar.model import (
    Assignment,
    Failed,
    FailureKind,
    Guarantee,
    RelieveBy,
    Result,
    RetryTopic,
)
from sidecar.settings import RouteSettings

RELIEVED: Final = "relieved"  # why a record was parked
LEAST_SPAN: Final = 100
MOST_OUTSTANDING: Final = 0.05  # of the span
MOST_SHARE: Final = 0.02


class Owner(Protocol):
    """The route, as far as relief is concerned."""

    def park(self, entry: InFlight, result: Result, reason: str) -> None: ...

    def retry_later(self, entry: InFlight) -> RetryTopic:
        """Move it to its next retry topic, or to the last one again."""

    def cancel(self, entry: InFlight) -> bool:
        """Cut the request that carries this record, if there is one."""


def is_possible(settings: RouteSettings, retry_topics: Sequence[RetryTopic]) -> bool:
    if settings.guarantee is not Guarantee.AT_LEAST_ONCE or not settings.relieve_after_seconds:
        return False
    if settings.relieve_by is RelieveBy.PARK:
        return settings.dead_letter is not None
    return len(retry_topics) > 1


class Relief:
    """See the module."""

    __slots__ = (
        "_counters",
        "_delays",
        "_failures",
        "_holders",
        "_log",
        "_owner",
        "_pool",
        "_settings",
    )

    def __init__(
        self,
        owner: Owner,
        settings: RouteSettings,
        *,
        counters: Counters,
        failures: Failures,
        pool: ExecutorPool[Any],
        delays: Delays,
        log: WithFields,
    ) -> None:
        self._owner: Final = owner
        self._settings: Final = settings
        self._counters: Final = counters
        self._failures: Final = failures
        self._pool: Final = pool
        self._delays: Final = delays
        self._log: Final = log
        # Who holds the watermark, and since when.
        self._holders: dict[Assignment, tuple[InFlight, float]] = {}

    def forget(self) -> None:
        """The application is away, or dispatch is stopped: the time begins anew."""
        self._holders.clear()

    def look(self, partitions: Iterable[PartitionState], now: float) -> None:
        before, self._holders = self._holders, {}
        relieved = False
        for state in partitions:
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
            self._pool.kick()

    def _relieve(self, entry: InFlight) -> bool:
        """False if that would be one too many, or it neither executes nor waits."""
        counters = self._counters
        if counters.relieved + 1 > counters.received * MOST_SHARE or not self._failures.may_park():
            return False
        if not (self._owner.cancel(entry) or self._delays.remove(entry)):
            return False
        counters.relieved += 1
        self._failures.parked_in_a_row += 1
        seconds = self._settings.relieve_after_seconds
        told = f"it held the watermark for {seconds:g} s while what lies behind it is done"
        if self._settings.relieve_by is RelieveBy.PARK:
            self._log.warning("relieved %s: %s; it is parked", entry.record, told)
            self._owner.park(entry, Failed(FailureKind.TIMEOUT, told), RELIEVED)
        else:
            topic = self._owner.retry_later(entry)
            self._log.warning("relieved %s: %s; it goes to %s", entry.record, told, topic.name)
        return True


def _is_alone(state: PartitionState) -> bool:
    """Nearly all behind its oldest record is done."""
    return state.span >= LEAST_SPAN and state.outstanding <= state.span * MOST_OUTSTANDING
