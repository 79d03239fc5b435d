"""From the fetch thread to the loop: messages become records, and go over a batch at a time.

Owner: the fetcher, on its thread.

Invariants:
* Every message is handed over under the assignment it was fetched under, or dropped unread.
* What is handed over has its places taken before the loop hears of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Final

from sidecar.core.commands import Clear
from sidecar.core.intake import Intake
from sidecar.core.places import Places
from sidecar.kafka.retry_reader import Due, RetryReader
from sidecar.model import Assignment, Partition, Record
from sidecar.ports import FetchSink, Message

_PARTITION_OF: Final[Callable[[Message], Partition]] = itemgetter(0)


class HandOver:
    """clears: the loop answers each batch with a Clear.

    unanswered: a batch was handed over, and the loop has not cleared it yet.
    """

    __slots__ = (
        "_batches",
        "_clears",
        "_intake",
        "_owned",
        "_places",
        "_retries",
        "_sink",
        "_tell",
        "unanswered",
    )

    def __init__(
        self,
        owned: Mapping[Partition, Assignment],
        *,
        retries: RetryReader,
        intake: Intake,
        places: Places,
        sink: FetchSink,
        tell: Callable[..., object],
        clears: bool,
    ) -> None:
        self._owned = owned
        self._retries = retries
        self._intake = intake
        self._places = places
        self._sink = sink
        self._tell = tell
        self._clears = clears
        self._batches = 0
        self.unanswered = False

    def give(self, messages: Sequence[Message], returned: Sequence[Due] = ()) -> None:
        """returned: those of retry topics, which are due."""
        records: list[Record] = []
        size_of_all = largest = 0
        owned = self._owned
        for partition, run in groupby(messages, _PARTITION_OF):
            assignment = owned.get(partition)
            if assignment is None:
                continue  # revoked inside this poll
            before = len(records)
            for _, offset, timestamp_ms, key, value, headers in run:
                size = (len(key) if key else 0) + (len(value) if value else 0)
                if headers:
                    for name, content in headers:
                        size += len(name) + (len(content) if content else 0)
                size_of_all += size
                if size > largest:  # noqa: PLR1730 - runs for every record
                    largest = size
                records.append(Record(assignment, offset, timestamp_ms, key, value, headers, size))
            assignment.fetched += len(records) - before
            assignment.next_offset = offset + 1
        for due in returned:
            record = self._retries.record(owned[due.message.partition], due)
            record.assignment.fetched += 1
            record.assignment.next_offset = record.offset + 1
            size_of_all += record.size
            largest = max(largest, record.size)
            records.append(record)
        self._intake.note_size(largest)
        self._places.taken_bytes += size_of_all
        self._places.taken += len(records)
        if records:
            self._batches += 1
            self.unanswered = self._clears
            self._tell(self._sink.received, records)

    def answered(self, answer: Clear) -> None:
        """It may be the answer to a batch before the last."""
        self.unanswered = answer.more or answer.batches < self._batches

    def given_back(self) -> None:
        """The loop has nothing of ours any more that it could answer."""
        self.unanswered = False
