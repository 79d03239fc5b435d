"""Every way out: where records stop being in flight.

Owner: one route, on the loop. Who is done with a record says so here, whatever came of it.

Invariants:
* Every record that was handed over leaves exactly once, by leave or unwanted; in flight is what
  has not.
* A record that settles leaves at once; one that is parked or moved settles when the broker has
  confirmed the write.
* Whoever waits for records to leave (the fetch thread, a revocation, a drain) hears of each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from sidecar.core.commands import Wake
from sidecar.core.ledger import InFlight
from sidecar.dispatch.context import Context
from sidecar.dispatch.offsets import Offsets
from sidecar.dispatch.revocations import Revocations
from sidecar.model import Record


class Exits:
    """given_back: how many failed since the drain began, and were left to the next start."""

    __slots__ = (
        "_counters",
        "_keeps",
        "_mailbox",
        "_offsets",
        "_open_revocations",
        "_places",
        "_revocations",
        "_scheduler",
        "_watch",
        "given_back",
    )

    def __init__(self, context: Context, offsets: Offsets, revocations: Revocations) -> None:
        self._keeps = context.keeps
        self._places = context.places
        self._mailbox = context.mailbox
        self._scheduler = context.scheduler
        self._counters = context.counters
        self._offsets = offsets
        self._revocations = revocations
        self._open_revocations = revocations.open
        self._watch: Callable[[], None] | None = None  # the drain, once it has begun
        self.given_back = 0

    def settle(self, entry: InFlight) -> None:
        """The record is done for good."""
        self._offsets.settled(entry)
        self.leave(entry)

    def parked(self, entry: InFlight) -> None:
        """The dead-letter topic has it."""
        self._counters.parked += 1
        self.settle(entry)

    def moved(self, entry: InFlight) -> None:
        """A retry topic has it."""
        self._counters.retried_later += 1
        self.settle(entry)

    def leave(self, entry: InFlight) -> None:
        """The record is not in flight any more."""
        record = entry.record
        record.assignment.freed += 1
        places = self._places
        places.freed_bytes += record.size
        places.freed += 1
        if 0 < places.wake_at <= places.freed:
            places.wake_at = 0
            self._mailbox.post(Wake())
        if self._open_revocations:
            self._revocations.left(entry)
        if self._watch is not None:
            self._scheduler.call_soon(self._watch)  # the executor is not free yet

    def leave_all(self, entries: Iterable[InFlight]) -> None:
        for entry in entries:
            self.leave(entry)

    def unwanted(self, records: Iterable[Record]) -> None:
        """Records that never became an entry leave."""
        places = self._places
        for record in records:
            record.assignment.freed += 1
            places.freed_bytes += record.size
            places.freed += 1

    # --- what is left to others -----------------------------------------------------------------

    def goes_back(self, entry: InFlight) -> bool:
        """Whether what fails of the record now is left to another owner, or to the next start."""
        if not self._keeps:
            return False
        return entry.record.assignment in self._revocations.leaving or self._watch is not None

    def give_back(self, entry: InFlight) -> None:
        """The record leaves and is not done: whoever is next repeats it."""
        self.given_back += self._watch is not None
        self.leave(entry)

    # --- the drain ------------------------------------------------------------------------------

    def watch(self, check: Callable[[], None]) -> None:
        """The drain has begun: check is called soon after each record that leaves."""
        self._watch = check

    def stays(self) -> None:
        """A record that failed is buffered again: the drain may not have to wait for it."""
        if self._watch is not None:
            self._scheduler.call_soon(self._watch)  # its batch is not all buffered yet
