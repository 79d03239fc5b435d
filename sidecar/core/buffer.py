"""The buffer: records that were fetched and not yet taken, in turn over the partitions.

Owner: one route, on the loop. Which record may start next is decided in take and nowhere
else; an order by key would be decided there too.

Invariants:
* Within one assignment, records are taken in the order they were added, but for those that
  were put back.
* An assignment is known here only while a record of it is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence

from sidecar.core.ledger import InFlight
from sidecar.model import Assignment


class Buffer:
    """count: how many records it holds; to be read."""

    __slots__ = ("_lanes", "_turns", "count")

    def __init__(self) -> None:
        self._lanes: dict[Assignment, deque[InFlight]] = {}
        self._turns: deque[deque[InFlight]] = deque()
        self.count = 0

    def __len__(self) -> int:
        return self.count

    def waiting(self, assignment: Assignment) -> int:
        """How many records of one assignment are buffered."""
        lane = self._lanes.get(assignment)
        return 0 if lane is None else len(lane)

    @property
    def oldest(self) -> float | None:
        """When the record that waits longest was received."""
        return min((lane[0].received_at for lane in self._turns), default=None)

    def add(self, entry: InFlight) -> None:
        self.extend(entry.record.assignment, (entry,))

    def extend(self, assignment: Assignment, entries: Sequence[InFlight]) -> None:
        """Add records of one assignment."""
        if entries:
            (self._lanes.get(assignment) or self._open(assignment)).extend(entries)
            self.count += len(entries)

    def put_back(self, entries: Sequence[InFlight]) -> None:
        """Return records that were taken and not started, oldest first, to the front."""
        for entry in reversed(entries):
            assignment = entry.record.assignment
            (self._lanes.get(assignment) or self._open(assignment)).appendleft(entry)
        self.count += len(entries)

    def take(self) -> InFlight | None:
        """The record that may start next: the oldest of the partition whose turn it is."""
        turns = self._turns
        if not turns:
            return None
        lane = turns[0]
        entry = lane.popleft()
        self.count -= 1
        if not lane:
            turns.popleft()
            del self._lanes[entry.record.assignment]
        elif len(turns) > 1:
            turns.rotate(-1)
        return entry

    def take_evenly(self, most: int) -> dict[Assignment, list[InFlight]]:
        """Up to so many records, each partition's share by assignment, oldest first."""
        taken: dict[Assignment, list[InFlight]] = {}
        turns = self._turns
        while most > 0 and turns:
            share = max(1, most // len(turns))
            for _ in range(min(len(turns), most)):
                lane = turns[0]
                count = min(share, len(lane))
                assignment = lane[0].record.assignment
                taken.setdefault(assignment, []).extend([lane.popleft() for _ in range(count)])
                most -= count
                self.count -= count
                if lane:
                    turns.rotate(-1)
                else:
                    turns.popleft()
                    del self._lanes[assignment]
        return taken

    def peek(self) -> InFlight | None:
        """The record that take would give."""
        return self._turns[0][0] if self._turns else None

    def take_fitting(self, fits: Callable[[InFlight], bool]) -> InFlight | None:
        """As take, but of the first partition in turn whose oldest record fits."""
        turns = self._turns
        for _ in range(len(turns)):
            if fits(turns[0][0]):
                return self.take()
            turns.rotate(-1)
        return None

    def entries(self) -> Iterator[InFlight]:
        return (entry for lane in self._turns for entry in lane)

    def remove(self, entry: InFlight) -> None:
        """Take out one record that is buffered, wherever it stands."""
        assignment = entry.record.assignment
        lane = self._lanes[assignment]
        lane.remove(entry)
        self.count -= 1
        if not lane:
            del self._lanes[assignment]
            self._turns = deque(other for other in self._turns if other is not lane)

    def discard(self, assignment: Assignment) -> list[InFlight]:
        """Remove everything of one assignment."""
        lane = self._lanes.pop(assignment, None)
        if lane is None:
            return []
        # By identity: two lanes are never compared by what they hold.
        self._turns = deque(other for other in self._turns if other is not lane)
        self.count -= len(lane)
        return list(lane)

    def discard_all(self) -> list[InFlight]:
        entries = [entry for lane in self._lanes.values() for entry in lane]
        self._lanes.clear()
        self._turns.clear()
        self.count = 0
        return entries

    def _open(self, assignment: Assignment) -> deque[InFlight]:
        """The lane of a record that is about to enter it."""
        lane: deque[InFlight] = deque()
        self._lanes[assignment] = lane
        self._turns.append(lane)
        return lane
