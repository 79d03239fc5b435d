"""Partitions that come and go: what a rebalance means for the records of a route.

Owner: one route, on the loop. The fetch thread tells of each assignment that begins or ends.

Invariants:
* What was not started of a partition that goes is given back at once; what executes or is being
  parked is waited for (at_least_once), until the revocation is answered.
* An assignment that has ended is not live, and nothing that happens to its records moves an offset.
* Of a partition that was lost nothing is committed: others may own it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

from sidecar.core.commands import Revoked
from sidecar.core.membership import Membership
from sidecar.dispatch.context import Context
from sidecar.dispatch.delays import Delays
from sidecar.dispatch.executors import ExecutorPool
from sidecar.dispatch.exits import Exits
from sidecar.dispatch.offsets import Offsets
from sidecar.dispatch.parker import Parker
from sidecar.dispatch.revocations import Revocation, Revocations
from sidecar.dispatch.suspects import Suspects
from sidecar.model import Assignment, Start


class Rebalances:
    """See the module."""

    __slots__ = (
        "_counters",
        "_delays",
        "_exits",
        "_keeps",
        "_log",
        "_mailbox",
        "_membership",
        "_offsets",
        "_parker",
        "_pool",
        "_revocations",
        "_scheduler",
        "_suspects",
    )

    def __init__(
        self,
        context: Context,
        revocations: Revocations,
        membership: Membership,
        *,
        offsets: Offsets,
        delays: Delays,
        suspects: Suspects,
        pool: ExecutorPool[Any],
        parker: Parker,
        exits: Exits,
    ) -> None:
        self._keeps = context.keeps
        self._counters = context.counters
        self._mailbox = context.mailbox
        self._scheduler = context.scheduler
        self._log = context.log
        self._revocations = revocations
        self._membership = membership
        self._offsets = offsets
        self._delays = delays
        self._suspects = suspects
        self._pool = pool
        self._parker = parker
        self._exits = exits

    def assigned(self, starts: Sequence[Start]) -> None:
        self._membership.joining_since = None
        self._offsets.assigned(starts)
        if starts:  # a rebalance that changes nothing for this member is told as well
            self._log.info(
                "assigned %s", ", ".join(f"{s.assignment} at {s.offset}" for s in starts)
            )

    def revoked(self, request: int, assignments: Sequence[Assignment], timeout: float) -> None:
        """To be answered with Revoked."""
        self._counters.rebalances += 1
        self._log.info("revoked %s", ", ".join(map(str, assignments)))
        self._withdraw(assignments)
        held = chain(self._pool.entries(), self._parker.entries()) if self._keeps else ()
        self._revocations.begin(request, assignments, held, timeout, self._answer)

    def lost(self, assignments: Sequence[Assignment]) -> None:
        self._counters.rebalances += 1
        self._log.warning("lost %s: others may own them by now", ", ".join(map(str, assignments)))
        self._withdraw(assignments)
        self._offsets.release(assignments)
        self._end(assignments)

    def _withdraw(self, assignments: Sequence[Assignment]) -> None:
        """Give back what was not started: the next owner has it."""
        self._revocations.leaving.update(assignments)
        entries = self._offsets.withdraw(assignments)
        if self._keeps:
            entries += self._delays.discard(frozenset(assignments))
            entries += self._suspects.discard(assignments)
        self._exits.leave_all(entries)

    def _answer(self, revocation: Revocation) -> None:
        positions = self._offsets.release(revocation.assignments)
        self._mailbox.post(Revoked(revocation.request, positions))
        self._end(revocation.assignments)

    def _end(self, assignments: Iterable[Assignment]) -> None:
        self._membership.joining_since = self._scheduler.time()
        for assignment in assignments:
            assignment.live = False
            self._revocations.leaving.discard(assignment)
            if self._keeps:
                self._exits.leave_all(self._parker.discard(assignment))
