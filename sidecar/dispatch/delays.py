"""Records that wait out a backoff: they hold a place under the threshold but no executor.

Owner: one route, on the loop. One timer stands at the earliest due time.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterator
from typing import Final

from sidecar.core.ledger import InFlight
from sidecar.model import Assignment
from sidecar.ports import Scheduler, Timer

# uvloop's timers count whole milliseconds and may be half of one early. Without this a timer
# would be set for the rest of it, and fire at once, and be set again, for all of that time.
GRAIN_SECONDS: Final = 0.001


class Delays:
    """due is called with each record whose time has come."""

    __slots__ = ("_due", "_heap", "_number", "_scheduler", "_timer", "_timer_at")

    def __init__(self, scheduler: Scheduler, due: Callable[[list[InFlight]], None]) -> None:
        self._scheduler = scheduler
        self._due = due
        self._heap: list[tuple[float, int, InFlight]] = []
        self._number = 0  # breaks ties in the order of arrival
        self._timer: Timer | None = None
        self._timer_at = 0.0

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def oldest(self) -> float | None:
        """When the record that is longest in flight was received; looks at every one."""
        return min((entry.received_at for _, _, entry in self._heap), default=None)

    def entries(self) -> Iterator[InFlight]:
        return (entry for _, _, entry in self._heap)

    def add(self, entry: InFlight, when: float) -> None:
        self._number += 1
        heapq.heappush(self._heap, (when, self._number, entry))
        self._arm()

    def discard(self, assignments: Collection[Assignment]) -> list[InFlight]:
        """Remove everything of these assignments, in one pass."""
        return self._remove(lambda entry: entry.record.assignment in assignments)

    def remove(self, entry: InFlight) -> bool:
        """Take one record out; False if it does not wait here."""
        return bool(self._remove(lambda each: each is entry))

    def discard_all(self) -> list[InFlight]:
        return self._remove(lambda entry: True)

    def _remove(self, chosen: Callable[[InFlight], bool]) -> list[InFlight]:
        removed = [entry for _, _, entry in self._heap if chosen(entry)]
        if removed:
            self._heap = [item for item in self._heap if not chosen(item[2])]
            heapq.heapify(self._heap)
            self._arm()
        return removed

    def _arm(self) -> None:
        if not self._heap:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            return
        earliest = self._heap[0][0]
        if self._timer is not None:
            if self._timer_at == earliest:
                return
            self._timer.cancel()
        self._timer_at = earliest
        self._timer = self._scheduler.call_at(earliest, self._fire)

    def _fire(self) -> None:
        self._timer = None
        due = self._scheduler.time() + GRAIN_SECONDS
        entries = []
        while self._heap and self._heap[0][0] <= due:
            entries.append(heapq.heappop(self._heap)[2])
        self._arm()
        if entries:
            self._due(entries)
