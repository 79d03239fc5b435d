"""What attempts came to: a delivery, a failure, or something that comes too late.

Owner: one route, on the loop. The executors tell every result here; a batch's is told for each
part of it that came to one thing.

Invariants:
* Each record of an attempt is handled once: it settles here, or failures says what becomes of it.
* A result that comes after its assignment ended moves no offset: it tells of the application only.
* A delivery in calm weather costs no more than to be counted, settled and to leave.
"""

from __future__ import annotations

from collections.abc import Sequence

from sidecar.core.answers import Verdict
from sidecar.core.classify import classify
from sidecar.core.ledger import InFlight
from sidecar.dispatch.context import Context
from sidecar.dispatch.exits import Exits
from sidecar.dispatch.failures import Failures
from sidecar.dispatch.offsets import Offsets
from sidecar.dispatch.timings import Timings
from sidecar.model import Outcome, Result


class Results:
    """See the module."""

    __slots__ = (
        "_accepted",
        "_answers",
        "_counters",
        "_exits",
        "_failures",
        "_keeps",
        "_offsets",
        "_scheduler",
        "_timings",
    )

    def __init__(
        self,
        context: Context,
        timings: Timings,
        offsets: Offsets,
        exits: Exits,
        failures: Failures,
    ) -> None:
        self._keeps = context.keeps
        self._answers = context.settings.answer_table
        self._scheduler = context.scheduler
        self._counters = context.counters
        self._timings = timings
        self._offsets = offsets
        self._exits = exits
        self._failures = failures
        self._accepted: Result | None = None  # the last that meant delivered: most are alike

    def finished(self, entry: InFlight, result: Result, started_at: float, now: float) -> None:
        """An attempt came to something."""
        live = not self._keeps or entry.record.assignment.live
        if result is not self._accepted or not live:
            verdict = classify(result, self._answers, answered_before=self._counters.delivered > 0)
            if not live:
                self._timings.attempted(verdict.outcome, now - started_at)
                self._late([entry], result, verdict)
                return
            if verdict.outcome is not Outcome.DELIVERED:
                self._timings.attempted(verdict.outcome, now - started_at)
                self._failures.failed([entry], result, verdict)
                return
            self._accepted = result
        counters = self._counters
        counters.delivered += 1
        if not counters.delivered % self._timings.every:
            self._timings.took(entry.record, started_at, now)
        if not self._failures.calm:
            self._failures.delivered([entry])
        self._offsets.settled(entry)  # as exits.settle: one call less for every record
        self._exits.leave(entry)

    def batch_finished(
        self, entries: Sequence[InFlight], result: Result, verdict: Verdict, batch: int
    ) -> None:
        """An attempt came to one thing for all these; batch: for how many."""
        if self._keeps:
            late = [entry for entry in entries if not entry.record.assignment.live]
            if late:
                self._late(late, result, verdict)
                entries = [entry for entry in entries if entry.record.assignment.live]
        if not entries:
            return
        if verdict.outcome is not Outcome.DELIVERED:
            self._failures.failed(entries, result, verdict, batch)
            return
        self._arrived(entries)
        if not self._failures.calm:
            self._failures.delivered(entries)
        for entry in entries:
            self._exits.settle(entry)

    def _arrived(self, entries: Sequence[InFlight]) -> None:
        self._counters.delivered += len(entries)
        self._timings.arrived(entries, self._scheduler.time())

    def _late(self, entries: Sequence[InFlight], result: Result, verdict: Verdict) -> None:
        """Their partition has left."""
        self._counters.late_results += len(entries)
        if verdict.outcome is Outcome.DELIVERED:
            self._arrived(entries)
            self._failures.delivered(entries)
        else:
            self._failures.late(entries, result, verdict)
        self._exits.leave_all(entries)
