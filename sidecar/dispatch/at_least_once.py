"""at_least_once: records start at once, and what is settled in a row is committed.

Invariant: a committed offset never passes a record that is not settled, and a result that
comes after its assignment ended moves nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Final

from sidecar.core.buffer import Buffer
from sidecar.core.commands import Commit
from sidecar.core.ledger import InFlight, Ledger, Snapshot
from sidecar.dispatch.offsets import ASSIGNMENT_OF, Exposure, PartitionState
from sidecar.model import Assignment, Position, Record, Start
from sidecar.ports import CommitResult, Mailbox

COMMIT_AFTER_SETTLED: Final = 5000


class AtLeastOnce:
    """See offsets.Offsets. ready is the route's buffer of records that may start."""

    __slots__ = (
        "_ledgers",
        "_mailbox",
        "_posted",
        "_ready",
        "_settled",
        "low",
        "maybe_lost",
    )

    def __init__(self, ready: Buffer, mailbox: Mailbox) -> None:
        self._ready = ready
        self._mailbox = mailbox
        self._ledgers: dict[Assignment, Ledger] = {}
        self._posted: dict[Assignment, Snapshot] | None = None  # the commit under way
        self._settled = 0  # since the last commit was posted
        self.low = -1
        self.maybe_lost = 0

    def assigned(self, starts: Sequence[Start]) -> None:
        for start in starts:
            self._ledgers[start.assignment] = Ledger(start)

    def received(self, records: Iterable[Record], now: float) -> list[Record]:
        unwanted: list[Record] = []
        for assignment, run in groupby(records, ASSIGNMENT_OF):
            ledger = self._ledgers.get(assignment)
            if ledger is None:
                unwanted.extend(run)
            else:
                self._ready.extend(assignment, ledger.receive(run, now, unwanted))
        return unwanted

    def positions(self, positions: Mapping[Assignment, int]) -> None:
        for assignment, position in positions.items():
            ledger = self._ledgers.get(assignment)
            if ledger is not None:
                ledger.advance(position)

    def settled(self, entry: InFlight) -> None:
        ledger = entry.ledger
        assert ledger is not None, f"settled twice: {entry.record}"
        ledger.settle(entry)
        self._settled += 1
        if self._settled >= COMMIT_AFTER_SETTLED and self._posted is None:
            self.commit()

    def uncommitted(self) -> Iterable[InFlight]:
        return ()

    def commit(self) -> None:
        if self._posted is not None:
            return
        self._settled = 0
        snapshots = self._snapshots(self._ledgers.values())
        if snapshots:
            self._posted = {snapshot.position.assignment: snapshot for snapshot in snapshots}
            self._mailbox.post(Commit([snapshot.position for snapshot in snapshots]))

    def commit_done(self, result: CommitResult) -> list[InFlight]:
        posted, self._posted = self._posted or {}, None
        for position in result.applied:
            snapshot = posted.get(position.assignment)
            ledger = self._ledgers.get(position.assignment)
            if ledger is not None and snapshot is not None:
                ledger.confirm(snapshot)
        return []

    def refill(self) -> None:
        pass

    def withdraw(self, assignments: Sequence[Assignment]) -> list[InFlight]:
        return [entry for assignment in assignments for entry in self._ready.discard(assignment)]

    def release(self, assignments: Sequence[Assignment]) -> list[Position]:
        ledgers = [self._ledgers.pop(a) for a in assignments if a in self._ledgers]
        return [snapshot.position for snapshot in self._snapshots(ledgers)]

    def stop(self) -> list[InFlight]:
        return self._ready.discard_all()

    def abandon(self) -> list[InFlight]:
        return []

    def final(self) -> list[Position]:
        return [snapshot.position for snapshot in self._snapshots(self._ledgers.values())]

    @property
    def waiting(self) -> int:
        return 0

    @property
    def pending(self) -> bool:
        return False

    @property
    def oldest(self) -> float | None:
        held = (ledger.oldest for ledger in self._ledgers.values())
        return min((entry.received_at for entry in held if entry is not None), default=None)

    def exposure(self, executing: int, delayed: int) -> Exposure:
        return Exposure(0, executing + sum(ledger.uncovered for ledger in self._ledgers.values()))

    def partitions(self) -> list[PartitionState]:
        return [
            PartitionState(
                assignment,
                -1 if ledger.committed is None else ledger.committed,
                ledger.watermark,
                ledger.span,
                ledger.outstanding,
                ledger.oldest,
            )
            for assignment, ledger in self._ledgers.items()
        ]

    @staticmethod
    def _snapshots(ledgers: Iterable[Ledger]) -> list[Snapshot]:
        return [s for ledger in ledgers if (s := ledger.snapshot()) is not None]
