"""Head-of-line relief: one record that keeps a partition's watermark back is moved out of the way.

Owner: one route that keeps its records, on the loop; it looks with every commit tick. A watermark
that is held costs no delivery. But a crash repeats what lies behind it and has no room in the
done-map, and whoever watches the group's lag sees a backlog that is none.

Invariants:
* Only a record that is executing or waits out a backoff is moved; its request is cancelled first.
* The time counts only while the application is there: an outage is nobody's fault.
* No more than MOST_SHARE of the records received are moved. More are no stragglers, but the rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from sidecar.core.ledger import InFlight
from sidecar.dispatch.counters import Counters
from sidecar.dispatch.offsets import PartitionState
from sidecar.model import Assignment

LEAST_SPAN: Final = 100
MOST_OUTSTANDING: Final = 0.05  # of the span
MOST_SHARE: Final = 0.02


class Relief:
    """move is asked to move a record and says whether it could."""

    __slots__ = ("_after_seconds", "_counters", "_holders", "_move")

    def __init__(
        self, after_seconds: float, counters: Counters, move: Callable[[InFlight], bool]
    ) -> None:
        self._after_seconds: Final = after_seconds
        self._counters: Final = counters
        self._move: Final = move
        # Who holds the watermark, and since when.
        self._holders: dict[Assignment, tuple[InFlight, float]] = {}

    def forget(self) -> None:
        """The application is away, or dispatch is stopped: the time begins anew."""
        self._holders.clear()

    def look(self, partitions: Iterable[PartitionState], now: float) -> None:
        before, self._holders = self._holders, {}
        for state in partitions:
            entry = state.oldest
            if entry is None:
                continue
            holder, since = before.get(state.assignment, (None, now))
            if holder is not entry:
                since = now
            if now - since < self._after_seconds or not (
                self._alone(state) and self._relieve(entry)
            ):
                self._holders[state.assignment] = entry, since

    def _alone(self, state: PartitionState) -> bool:
        """Nearly all behind it is done."""
        return state.span >= LEAST_SPAN and state.outstanding <= state.span * MOST_OUTSTANDING

    def _relieve(self, entry: InFlight) -> bool:
        counters = self._counters
        if counters.relieved + 1 > counters.received * MOST_SHARE or not self._move(entry):
            return False
        counters.relieved += 1
        return True
