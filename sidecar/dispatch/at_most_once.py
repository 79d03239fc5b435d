"""at_most_once: records are committed, a run at a time, just before they may start.

Invariants:
* A record is put before the executors only when its offset is known to be committed.
* What is committed and not settled never exceeds the loss budget: the budget is the threshold,
  and every such record is in flight.
* What is not committed is given back at a rebalance and at a drain; it is not lost.
* Every commit carries the mark of its assignment: who reads it back can tell that it is not one
  that another owner made at the same offset.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain

from sidecar.core.buffer import Buffer
from sidecar.core.commands import Clear
from sidecar.core.ledger import InFlight
from sidecar.dispatch.offsets import Exposure, PartitionState
from sidecar.model import Assignment, Position, Record, Start
from sidecar.ports import CommitResult, Mailbox


class _Lane:
    """One assignment: what was received, and up to where it is cleared (committed)."""

    __slots__ = ("cleared", "mark", "position")

    def __init__(self, start: Start, mark: str) -> None:
        self.mark = mark
        self.position = start.offset
        self.cleared = start.offset if start.committed else -1


class _Run:
    """Records whose commit is under way, and the positions that cover them."""

    __slots__ = ("entries", "positions")

    def __init__(self, entries: list[InFlight], positions: dict[Assignment, int]) -> None:
        self.entries = entries
        self.positions = positions


class AtMostOnce:
    """See offsets.Offsets. ready is the route's buffer of records that may start.

    allowance says how many more records the executors could use now; committed is told of each run
    that was: how many records before it are left, and how many more wait. later runs a function
    after a while: a commit that failed is not tried again at once. mark gives a text that nobody
    else has.
    """

    __slots__ = (
        "_allowance",
        "_batches",
        "_committed",
        "_lanes",
        "_later",
        "_mailbox",
        "_mark",
        "_ready",
        "_resting",
        "_run",
        "_uncommitted",
        "maybe_lost",
    )

    def __init__(
        self,
        ready: Buffer,
        mailbox: Mailbox,
        allowance: Callable[[], int],
        committed: Callable[[int, int], None],
        later: Callable[[Callable[[], None]], None],
        mark: Callable[[], str],
    ) -> None:
        self._ready = ready
        self._mailbox = mailbox
        self._allowance = allowance
        self._committed = committed
        self._later = later
        self._mark = mark
        self._resting = False  # after a commit that failed
        self._uncommitted = Buffer()
        self._lanes: dict[Assignment, _Lane] = {}
        self._run: _Run | None = None
        self._batches = 0
        self.maybe_lost = 0  # their commit was never answered and the partition is gone

    def assigned(self, starts: Sequence[Start]) -> None:
        for start in starts:
            self._lanes[start.assignment] = _Lane(start, self._mark())

    def received(self, records: Iterable[Record], now: float) -> list[Record]:
        self._batches += 1
        unwanted = []
        for record in records:
            lane = self._lanes.get(record.assignment)
            if lane is None or record.offset < lane.position:
                unwanted.append(record)
                continue
            lane.position = record.offset + 1
            self._uncommitted.add(InFlight(record, now))
        self.refill()
        return unwanted

    def positions(self, positions: Mapping[Assignment, int]) -> None:
        for assignment, position in positions.items():
            lane = self._lanes.get(assignment)
            if lane is not None and position > lane.position:
                lane.position = position

    def settled(self, entry: InFlight) -> None:
        pass  # its offset was committed before it started

    def refill(self) -> None:
        if self._run is not None or self._resting or not self._uncommitted:
            return
        allowance = self._allowance()
        if allowance <= 0:
            return
        entries: list[InFlight] = []
        positions: dict[Assignment, int] = {}
        while len(entries) < allowance and (entry := self._uncommitted.take()) is not None:
            entries.append(entry)
            positions[entry.record.assignment] = entry.record.offset + 1
        self._post(_Run(entries, positions))

    def uncommitted(self) -> Iterable[InFlight]:
        committing = () if self._run is None else self._run.entries
        return chain(committing, self._uncommitted.entries())

    def commit(self) -> None:
        """Positions past what holds no record: only where nothing waits before them."""
        if self._run is not None:
            return
        positions = {
            assignment: lane.position
            for assignment, lane in self._lanes.items()
            if lane.position > lane.cleared and not self._uncommitted.waiting(assignment)
        }
        if positions:
            self._post(_Run([], positions))

    def commit_done(self, result: CommitResult) -> list[InFlight]:
        run, self._run = self._run, None
        if run is None:  # abandoned meanwhile
            return []
        applied = {position.assignment for position in result.applied}
        unknown = {position.assignment for position in result.unknown}
        for position in result.applied:
            lane = self._lanes.get(position.assignment)
            if lane is not None:
                lane.cleared = position.offset
        if run.entries and applied:
            self._committed(len(self._ready), len(self._uncommitted))
        given_up: list[InFlight] = []
        back: list[InFlight] = []
        for entry in run.entries:
            assignment = entry.record.assignment
            if assignment in applied:
                self._ready.add(entry)
            elif assignment in self._lanes and assignment not in unknown:
                back.append(entry)
            else:
                given_up.append(entry)
        self._uncommitted.put_back(back)
        self.maybe_lost += sum(entry.record.assignment in unknown for entry in given_up)
        if back or result.error is not None:
            self._resting = True
            self._later(self._try_again)
        else:
            self.refill()
        return given_up

    def withdraw(self, assignments: Sequence[Assignment]) -> list[InFlight]:
        return [e for assignment in assignments for e in self._uncommitted.discard(assignment)]

    def release(self, assignments: Sequence[Assignment]) -> list[Position]:
        for assignment in assignments:
            self._lanes.pop(assignment, None)
        return []

    def stop(self) -> list[InFlight]:
        self._lanes.clear()
        return self._uncommitted.discard_all()

    def abandon(self) -> list[InFlight]:
        run, self._run = self._run, None
        return [] if run is None else run.entries

    def final(self) -> list[Position]:
        return []

    @property
    def waiting(self) -> int:
        return len(self._uncommitted)

    @property
    def pending(self) -> bool:
        return self._run is not None

    @property
    def oldest(self) -> float | None:
        committing = () if self._run is None else self._run.entries
        times = [entry.received_at for entry in committing]
        if self._uncommitted.oldest is not None:
            times.append(self._uncommitted.oldest)
        return min(times, default=None)

    def exposure(self, executing: int, delayed: int) -> Exposure:
        run = 0 if self._run is None else len(self._run.entries)
        return Exposure(run + len(self._ready) + executing + delayed, 0)

    def partitions(self) -> list[PartitionState]:
        return [
            PartitionState(
                assignment,
                lane.cleared,
                lane.cleared,
                max(0, lane.position - lane.cleared),
                self._uncommitted.waiting(assignment),
                None,
            )
            for assignment, lane in self._lanes.items()
        ]

    def _try_again(self) -> None:
        self._resting = False
        self.refill()

    def _post(self, run: _Run) -> None:
        self._run = run
        positions = [
            Position(assignment, offset, self._lanes[assignment].mark)
            for assignment, offset in run.positions.items()
        ]
        more = len(self._uncommitted) > 0
        self._mailbox.post(Clear(positions, more=more, batches=self._batches))
