"""When offsets are committed: the difference between the two guarantees, as one port.

Owner: one route, on the loop. Implemented by at_least_once and at_most_once; what both may rely
on: records of one assignment come in offset order, and everything here is called on the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Final, NamedTuple, Protocol

from sidecar.core.ledger import InFlight
from sidecar.model import Assignment, Position, Record, Start
from sidecar.ports import CommitResult

# What is received comes in runs of one assignment.
ASSIGNMENT_OF: Final[Callable[[Record], Assignment]] = attrgetter("assignment")


class Exposure(NamedTuple):
    """What a crash now would cost, in records."""

    would_lose: int
    would_repeat: int


class PartitionState(NamedTuple):
    """One assignment as the admin surface shows it. Offsets are next-to-read; -1: unknown."""

    assignment: Assignment
    committed: int
    watermark: int
    span: int
    outstanding: int
    oldest: InFlight | None


class Offsets(Protocol):
    low: int  # refill has nothing to do while more records are ready than this
    maybe_lost: int  # it was never known whether they were committed, and others may have them

    def assigned(self, starts: Sequence[Start]) -> None: ...

    def received(self, records: Iterable[Record], now: float) -> list[Record]:
        """Track and buffer the records; returns those that are not to be delivered."""

    def positions(self, positions: Mapping[Assignment, int]) -> None: ...

    def settled(self, entry: InFlight) -> None:
        """A record of an assignment that is live was delivered, parked or dropped."""

    def commit_done(self, result: CommitResult) -> list[InFlight]:
        """The answer to the commit that was posted; returns records to be given up."""

    def uncommitted(self) -> Iterable[InFlight]:
        """Records that may not start before their offset is committed."""

    def commit(self) -> None:
        """The commit interval has passed: post a commit if there is anything to say."""

    def refill(self) -> None:
        """Records were taken, or dispatch became possible again."""

    def withdraw(self, assignments: Sequence[Assignment]) -> list[InFlight]:
        """Take back what was not started and may go to another owner."""

    def release(self, assignments: Sequence[Assignment]) -> list[Position]:
        """Forget the assignments; returns what can be committed for them."""

    def stop(self) -> list[InFlight]:
        """A drain begins: take back everything that was not started and is not committed."""

    def abandon(self) -> list[InFlight]:
        """Records whose commit is under way and will not be waited for any longer."""

    def final(self) -> list[Position]:
        """What can be committed at the end."""

    @property
    def waiting(self) -> int:
        """Buffered records that may not start yet."""

    @property
    def pending(self) -> bool:
        """A commit is under way whose records will start once it is confirmed."""

    @property
    def oldest(self) -> float | None:
        """When the oldest record that is tracked here was received."""

    def exposure(self, executing: int, delayed: int) -> Exposure: ...

    def partitions(self) -> list[PartitionState]: ...
