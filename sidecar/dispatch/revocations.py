"""Revocations that wait for what executes or is being parked of their partitions.

Owner: one route, on the loop. Invariant: each is answered once, when nothing of it is in
somebody's hands any more, or when its time is over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from sidecar.core.ledger import InFlight
from sidecar.logs import WithFields
from sidecar.model import Assignment
from sidecar.ports import Scheduler, Timer

RESERVE: Final = 0.1  # of the time for a revocation: for its commit


class Revocation:
    """answer is called with it once it has ended."""

    __slots__ = ("answer", "assignments", "request", "timer", "waiting")

    def __init__(
        self,
        request: int,
        assignments: Sequence[Assignment],
        waiting: set[InFlight],
        answer: Callable[[Revocation], None],
    ) -> None:
        self.request = request
        self.assignments = assignments
        self.waiting = waiting
        self.answer = answer
        self.timer: Timer | None = None


class Revocations:
    """open: those that wait, by their request; leaving: the partitions that are about to go."""

    __slots__ = ("_log", "_scheduler", "leaving", "open")

    def __init__(self, scheduler: Scheduler, log: WithFields) -> None:
        self._scheduler = scheduler
        self._log = log
        self.open: Final[dict[int, Revocation]] = {}
        self.leaving: Final[set[Assignment]] = set()

    @property
    def waited_for(self) -> int:
        """Records that a revocation waits for."""
        return sum(len(each.waiting) for each in self.open.values())

    def covers(self, assignment: Assignment) -> bool:
        """Whether the partition is being given up, or has been."""
        return assignment in self.leaving or not assignment.live

    def begin(
        self,
        request: int,
        assignments: Sequence[Assignment],
        held: Iterable[InFlight],
        timeout: float,
        answer: Callable[[Revocation], None],
    ) -> None:
        """held: records in somebody's hands, whosever they are."""
        leaving = set(assignments)
        waiting = {entry for entry in held if entry.record.assignment in leaving}
        revocation = self.open[request] = Revocation(request, assignments, waiting, answer)
        if not waiting:
            self._end(revocation)
            return
        revocation.timer = self._scheduler.call_later(
            timeout * (1 - RESERVE), self._end, revocation
        )

    def left(self, entry: InFlight) -> None:
        """A record left; called while any is open."""
        for revocation in list(self.open.values()):
            revocation.waiting.discard(entry)
            if not revocation.waiting:
                self._end(revocation)

    def _end(self, revocation: Revocation) -> None:
        if self.open.pop(revocation.request, None) is None:
            return
        if revocation.timer is not None:
            revocation.timer.cancel()
        if revocation.waiting:
            self._log.info(
                "%d records of revoked partitions are still executing; the next owner repeats them",
                len(revocation.waiting),
            )
        revocation.answer(revocation)
