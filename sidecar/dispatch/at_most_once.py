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
from itertools import chain, groupby
from typing import Final

from sidecar.core.buffer import Buffer
from sidecar.core.commands import Clear
from sidecar.core.ledger import InFlight
from sidecar.core.run_ahead import RunAhead
from sidecar.dispatch.context import Context
from sidecar.dispatch.offsets import ASSIGNMENT_OF, Exposure, PartitionState
from sidecar.model import Assignment, Position, Record, Start
from sidecar.ports import CommitResult

CLEAR_AGAIN_SECONDS: Final = 0.2  # after a commit that failed


class _Lane:
    """One assignment: what was received, and up to where it is cleared (committed)."""

    __slots__ = ("cleared", "mark", "position")

    def __init__(self, start: Start, mark: str) -> None:
        self.mark = mark
        self.position = start.offset
        self.cleared = start.offset if start.committed else -1

    def receive(
        self, records: Iterable[Record], now: float, unwanted: list[Record]
    ) -> list[InFlight]:
        """As Ledger.receive."""
        entries = []
        position = self.position
        for record in records:
            offset = record.offset
            if offset < position:
                unwanted.append(record)
            else:
                position = offset + 1
                entries.append(InFlight(record, now))
        self.position = position
        return entries


class _Run:
    """Records whose commit is under way, and the positions that cover them."""

    __slots__ = ("positions", "shares")

    def __init__(
        self, shares: dict[Assignment, list[InFlight]], positions: dict[Assignment, int]
    ) -> None:
        self.shares = shares
        self.positions = positions

    @property
    def entries(self) -> list[InFlight]:
        return [entry for share in self.shares.values() for entry in share]


class AtMostOnce:
    """See offsets.Offsets. ready is the route's buffer of records that may start.

    allowance says how many more records the executors could use now. refill has nothing to do while
    more than `low` records are ready.
    """

    __slots__ = (
        "_allowance",
        "_batches",
        "_lanes",
        "_mailbox",
        "_random",
        "_ready",
        "_resting",
        "_run",
        "_run_ahead",
        "_scheduler",
        "_uncommitted",
        "low",
        "maybe_lost",
    )

    def __init__(
        self,
        context: Context,
        ready: Buffer,
        allowance: Callable[[RunAhead], int],
    ) -> None:
        self._mailbox = context.mailbox
        self._scheduler = context.scheduler
        self._random = context.random
        self._ready = ready
        self._allowance = allowance
        self._run_ahead = RunAhead()
        self._resting = False  # after a commit that failed
        self._uncommitted = Buffer()
        self._lanes: dict[Assignment, _Lane] = {}
        self._run: _Run | None = None
        self._batches = 0
        self.low = -1
        self.maybe_lost = 0  # their commit was never answered and the partition is gone

    def assigned(self, starts: Sequence[Start]) -> None:
        for start in starts:
            mark = f"{self._random.getrandbits(64):016x}"  # that nobody else has
            self._lanes[start.assignment] = _Lane(start, mark)

    def received(self, records: Iterable[Record], now: float) -> list[Record]:
        self._batches += 1
        unwanted: list[Record] = []
        for assignment, run in groupby(records, ASSIGNMENT_OF):
            lane = self._lanes.get(assignment)
            if lane is None:
                unwanted.extend(run)
            else:
                self._uncommitted.extend(assignment, lane.receive(run, now, unwanted))
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
        self.low = -1
        if self._run is not None or self._resting or not self._uncommitted.count:
            return
        allowance = self._allowance(self._run_ahead)
        if allowance <= 0:
            self.low = self._run_ahead.low
            return
        shares = self._uncommitted.take_evenly(allowance)
        positions = {each: share[-1].record.offset + 1 for each, share in shares.items()}
        self._post(_Run(shares, positions))

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
            self._post(_Run({}, positions))

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
        if run.shares and applied:
            now = self._scheduler.time()
            self._run_ahead.committed(self._ready.count, self._uncommitted.count, now)
        given_up: list[InFlight] = []
        back: list[InFlight] = []
        for assignment, share in run.shares.items():
            if assignment in applied:
                self._ready.extend(assignment, share)
            elif assignment in self._lanes and assignment not in unknown:
                back += share
            else:
                given_up += share
        self._uncommitted.put_back(back)
        self.maybe_lost += sum(entry.record.assignment in unknown for entry in given_up)
        if back or result.error is not None:
            self._resting = True
            self._scheduler.call_later(CLEAR_AGAIN_SECONDS, self._try_again)
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
