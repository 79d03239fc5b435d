"""Parks records: writes them to the dead-letter topic until the broker has confirmed it.

Owner: one route, on the loop. A record that is being parked is in flight and holds no executor;
a write that fails is tried again with backoff, for as long as the record is ours.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

from sidecar.core.classify import describe
from sidecar.core.ledger import InFlight
from sidecar.core.retry import RetrySchedule
from sidecar.logs import RateLimited, gist
from sidecar.model import Answer, Assignment, Result
from sidecar.ports import Parking, Scheduler, Story, Timer


class Parker:
    """parked is called once the broker has confirmed the write."""

    __slots__ = (
        "_entries",
        "_parked",
        "_parking",
        "_repeating",
        "_schedule",
        "_scheduler",
        "_wall_clock",
        "failures",
        "last_error",
    )

    def __init__(
        self,
        scheduler: Scheduler,
        wall_clock: Callable[[], float],
        schedule: RetrySchedule,
        parking: Parking | None,
        parked: Callable[[InFlight], None],
        repeating: RateLimited,
    ) -> None:
        self._scheduler = scheduler
        self._wall_clock = wall_clock
        self._schedule = schedule
        self._parking = parking
        self._parked = parked
        self._repeating = repeating
        self._entries: dict[InFlight, Timer | None] = {}  # the timer of the next write, if any
        self.failures = 0  # writes that failed since the last one that was confirmed
        self.last_error = ""

    def __len__(self) -> int:
        return len(self._entries)

    def entries(self) -> Iterator[InFlight]:
        return iter(self._entries)

    def park(self, entry: InFlight, result: Result, reason: str) -> None:
        ago = self._scheduler.time() - entry.first_try_at
        now = self._wall_clock()
        story = Story(
            reason=reason,
            detail=describe(result),
            status=result.status if isinstance(result, Answer) else None,
            attempts=entry.tries,
            first_attempt_at=now - ago,
            last_attempt_at=now,
            answer=result.body if isinstance(result, Answer) else b"",
        )
        self.write(entry, story)

    def write(self, entry: InFlight, story: Story) -> None:
        self._write(entry, story, 1)

    def is_writing(self, entry: InFlight) -> bool:
        """Whether an answer of the broker is due, so that it may lie in the topic already."""
        return self._entries[entry] is None

    def remove(self, entry: InFlight) -> None:
        """Forget one record that waits for its next write."""
        self._forget([entry])
        if not self._entries:
            self.failures = 0
            self.last_error = ""

    def discard(self, assignment: Assignment) -> list[InFlight]:
        """Forget what is not confirmed of one assignment: its next owner parks it."""
        return self._forget([e for e in self._entries if e.record.assignment is assignment])

    def give_up(self) -> list[InFlight]:
        """Forget everything that is not confirmed."""
        return self._forget(list(self._entries))

    def _forget(self, entries: list[InFlight]) -> list[InFlight]:
        for entry in entries:
            timer = self._entries.pop(entry)
            if timer is not None:
                timer.cancel()
        return entries

    def _write(self, entry: InFlight, story: Story, tries: int) -> None:
        assert self._parking is not None, "parking without a dead-letter topic"
        self._entries[entry] = None
        self._parking.park(
            entry.record, story, lambda error: self._written(entry, story, tries, error)
        )

    def _written(self, entry: InFlight, story: Story, tries: int, error: str | None) -> None:
        if entry not in self._entries:
            return  # given up meanwhile
        if error is None:
            del self._entries[entry]
            self.failures = 0
            self.last_error = ""
            self._parked(entry)
            return
        self.failures += 1
        self.last_error = error
        self._repeating.limited(
            ("park", gist(error)), logging.WARNING, "cannot park %s yet: %s", entry.record, error
        )
        self._entries[entry] = self._scheduler.call_later(
            self._schedule.backoff_bound(tries), self._write, entry, story, tries + 1
        )
