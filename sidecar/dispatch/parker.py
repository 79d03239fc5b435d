"""Parks records, or moves them to a retry topic: writes them until the broker has confirmed it.

Owner: one route, on the loop. A record that is being written is in flight and holds no executor;
a write that fails is tried again with backoff, for as long as the record is ours.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from sidecar.core.classify import describe
from sidecar.core.ledger import InFlight
from sidecar.core.retry import RetrySchedule
from sidecar.core.retry_mark import RetryMark
from sidecar.logs import RateLimited, gist
from sidecar.model import Answer, Assignment, Result, RetryTopic
from sidecar.ports import Parking, Scheduler, Story, Timer

_Done = Callable[[InFlight], None]


class _Write(NamedTuple):
    """What is to be written: send does it once, done hears of its confirmation."""

    send: Callable[[Callable[[str | None], None]], None]
    done: _Done


class Parker:
    """parked and retried are called once the broker has confirmed the write."""

    __slots__ = (
        "_entries",
        "_parked",
        "_parking",
        "_repeating",
        "_retried",
        "_schedule",
        "_scheduler",
        "_wall_clock",
        "failed_writes",
        "failures",
        "last_error",
    )

    def __init__(
        self,
        scheduler: Scheduler,
        wall_clock: Callable[[], float],
        schedule: RetrySchedule,
        parking: Parking | None,
        parked: _Done,
        repeating: RateLimited,
        retried: _Done = lambda entry: None,
    ) -> None:
        self._scheduler = scheduler
        self._wall_clock = wall_clock
        self._schedule = schedule
        self._parking = parking
        self._parked: Final = parked
        self._retried: Final = retried
        self._repeating = repeating
        self._entries: dict[InFlight, Timer | None] = {}  # the timer of the next write, if any
        self.failures = 0  # writes that failed since none had
        self.failed_writes = 0  # since the start
        self.last_error = ""

    def __len__(self) -> int:
        return len(self._entries)

    def entries(self) -> Iterator[InFlight]:
        return iter(self._entries)

    def park(self, entry: InFlight, result: Result, reason: str) -> None:
        answer = result if isinstance(result, Answer) else None
        self._park(entry, reason, describe(result), answer)

    def park_by_hand(self, entry: InFlight, reason: str, detail: str) -> None:
        """Whatever came of its attempts, if there were any."""
        self._park(entry, reason, detail, None)

    def _park(self, entry: InFlight, reason: str, detail: str, answer: Answer | None) -> None:
        parking, record = self._the_parking, entry.record
        story = Story(
            reason=reason,
            detail=detail,
            status=None if answer is None else answer.status,
            attempts=record.attempts + entry.tries,
            first_attempt_at=self._first_attempt_at(entry),
            last_attempt_at=self._wall_clock(),
            answer=b"" if answer is None else answer.body,
        )
        self._write(entry, _Write(lambda told: parking.park(record, story, told), self._parked), 1)

    def retry(self, entry: InFlight, topic: RetryTopic) -> None:
        """Move the record to a retry topic; its delay counts from the write that succeeds."""
        parking, record, original = self._the_parking, entry.record, entry.record.original
        attempts = record.attempts + entry.tries
        first_attempt_ms = round(self._first_attempt_at(entry) * 1000)

        def send(told: Callable[[str | None], None]) -> None:
            due = self._wall_clock() + topic.delay_seconds
            mark = RetryMark(
                original.topic,
                original.partition,
                original.offset,
                original.timestamp_ms,
                attempts,
                first_attempt_ms,
                math.ceil(due * 1000),
            )
            parking.retry(record, mark, topic.name, told)

        self._write(entry, _Write(send, self._retried), 1)

    def is_writing(self, entry: InFlight) -> bool:
        """Whether an answer of the broker is due, so that it may lie in the topic already."""
        return self._entries[entry] is None

    def remove(self, entry: InFlight) -> None:
        """Forget one record that waits for its next write."""
        self._forget([entry])

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
        if not self._entries:
            self.failures = 0
            self.last_error = ""
        return entries

    @property
    def _the_parking(self) -> Parking:
        assert self._parking is not None, "parking without a topic for it"
        return self._parking

    def _first_attempt_at(self, entry: InFlight) -> float:
        """Unix seconds; now where there was none."""
        if entry.record.attempts > 0:
            return entry.record.first_attempt_ms / 1000
        if not entry.tries:
            return self._wall_clock()
        return self._wall_clock() - (self._scheduler.time() - entry.first_try_at)

    def _write(self, entry: InFlight, write: _Write, tries: int) -> None:
        self._entries[entry] = None
        write.send(lambda error: self._written(entry, write, tries, error))

    def _written(self, entry: InFlight, write: _Write, tries: int, error: str | None) -> None:
        if entry not in self._entries:
            return  # given up meanwhile
        if error is None:
            del self._entries[entry]
            if self.failures and not any(self._entries.values()):
                self.failures = 0
                self.last_error = ""
            write.done(entry)
            return
        self.failures += 1
        self.failed_writes += 1
        self.last_error = error
        self._repeating.limited(
            ("park", gist(error)), logging.WARNING, "cannot move %s yet: %s", entry.record, error
        )
        self._entries[entry] = self._scheduler.call_later(
            self._schedule.backoff_bound(tries), self._write, entry, write, tries + 1
        )
