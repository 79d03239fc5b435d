"""Reads retry topics: what is due is handed over, what is not stays with the broker.

Owner: the fetcher, on its thread. Of each partition of a retry topic the first message that is not
due ends the reading: the partition is paused, set back to that message, and asleep until it is due.
Polling goes on meanwhile, so waiting costs no membership; nothing that waits is kept in memory or
holds a place.

Invariants:
* A message is due by the reader's own clock, never earlier than its mark says.
* A partition that leaves is forgotten, asleep or not: its next owner finds out for itself.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable, Collection, Sequence
from typing import Final, NamedTuple

from sidecar.core.retry_mark import RetryMark, read_mark
from sidecar.logs import RateLimited
from sidecar.model import Assignment, Partition, Record, RetryTopic, ReturnedRecord
from sidecar.ports import Message, RecordSource

log = logging.getLogger(__name__)

# Partitions wake together, a few times a second: each time costs a fetch, and what was prefetched
# behind the first that is not due is fetched again.
GRAIN_MS: Final = 250
ORIGINS_KEPT: Final = 1024


class Due(NamedTuple):
    """A message of a retry topic whose time has come; without a mark it was written by hand."""

    message: Message
    mark: RetryMark | None


class RetryReader:
    """See the module. topics are those that the route reads, by tier; wall_clock: Unix seconds."""

    def __init__(
        self,
        source: RecordSource,
        topics: Sequence[RetryTopic],
        wall_clock: Callable[[], float],
        repeating: RateLimited,
    ) -> None:
        self._source: Final = source
        self._wall_clock: Final = wall_clock
        self._tiers: Final = {topic.name: tier for tier, topic in enumerate(topics)}
        self._repeating: Final = repeating
        self._origins: Final[dict[Partition, Assignment]] = {}
        self._owned: set[Partition] = set()
        self._asleep: dict[Partition, int] = {}  # until when, Unix milliseconds
        self._alarms: list[tuple[int, Partition]] = []  # a heap; one that is outdated says nothing

    @property
    def topics(self) -> Collection[str]:
        return self._tiers.keys()

    @property
    def asleep(self) -> Collection[Partition]:
        return self._asleep.keys()

    def adopt(self, partition: Partition) -> None:
        if partition.topic in self._tiers:
            self._owned.add(partition)

    def forget(self, partition: Partition) -> None:
        self._owned.discard(partition)
        self._asleep.pop(partition, None)

    def sort_out(self, messages: Sequence[Message]) -> tuple[Sequence[Message], Sequence[Due]]:
        """Those of other topics, and those of retry topics that are due; the rest goes back."""
        if not self._owned or not self._concerns(messages):
            return messages, ()
        others: list[Message] = []
        due: list[Due] = []
        now_ms = self._wall_clock() * 1000
        for message in messages:
            partition = message.partition
            if partition not in self._owned:
                others.append(message)
            elif partition not in self._asleep:
                mark = read_mark(message.headers)
                if mark is None or mark.due_ms <= now_ms:
                    due.append(Due(message, mark))
                else:
                    self._sleep(message, mark.due_ms)
        return others, due

    def wake(self) -> list[Partition]:
        """The partitions whose first message has become due since the last call."""
        alarms = self._alarms
        if not alarms:
            return []
        now_ms = self._wall_clock() * 1000
        woken = []
        while alarms and alarms[0][0] <= now_ms:
            until, partition = heapq.heappop(alarms)
            if self._asleep.get(partition) == until:
                del self._asleep[partition]
                woken.append(partition)
        return woken

    def record(self, assignment: Assignment, due: Due) -> Record:
        """What the route gets."""
        (_, offset, timestamp_ms, key, value, headers), mark = due
        size = len(key or b"") + len(value or b"")
        size += sum(len(name) + len(content or b"") for name, content in headers or ())
        if mark is None:
            self._repeating.limited(
                ("unmarked", assignment.partition),
                logging.WARNING,
                "%s/%d has no readable mark, somebody else wrote it: it is delivered as a record"
                " of this topic",
                assignment.partition,
                offset,
            )
            return Record(assignment, offset, timestamp_ms, key, value, headers, size)
        own = (headers or [])[:-1] or None
        # As old as the original: what counts is how long the application has waited for it.
        record = ReturnedRecord(assignment, offset, mark.timestamp_ms, key, value, headers, size)
        first = self._origin(Partition(mark.topic, mark.partition))
        record.original = Record(first, mark.offset, mark.timestamp_ms, key, value, own, size)
        record.attempts = max(0, mark.attempts)
        record.first_attempt_ms = mark.first_attempt_ms
        record.tier = self._tiers[assignment.topic]
        return record

    def _origin(self, partition: Partition) -> Assignment:
        """One for all records of a partition, as requests are begun alike by it."""
        origin = self._origins.get(partition)
        if origin is None:
            if len(self._origins) >= ORIGINS_KEPT:
                self._origins.clear()
            origin = self._origins[partition] = Assignment(partition, 0)
        return origin

    def _concerns(self, messages: Sequence[Message]) -> bool:
        last: Partition | None = None
        for message in messages:
            partition = message[0]
            if partition is not last:  # they come in runs, and a source gives equal ones as one
                if partition in self._owned:
                    return True
                last = partition
        return False

    def _sleep(self, message: Message, due_ms: int) -> None:
        partition = message.partition
        until = -(-due_ms // GRAIN_MS) * GRAIN_MS
        self._asleep[partition] = until
        heapq.heappush(self._alarms, (until, partition))
        self._source.pause([partition])
        self._source.seek(partition, message.offset)
