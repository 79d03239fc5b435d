"""The words of the domain, shared by every stage. Nothing here does anything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

Header = tuple[str, bytes | None]

# In place of a record's headers where the client library cannot read them (a name that is not
# UTF-8); told by identity. Such a record cannot be sent.
UNREADABLE_HEADERS: Final[list[Header]] = [("", None)]


class Partition(NamedTuple):
    """A partition of a topic."""

    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.number}"


class Assignment:
    """One ownership of a partition by this member, from assignment to revocation.

    Compared by identity: a partition that leaves and returns gets a new one with a higher
    epoch, so a result that carries the old one cannot be mistaken for the new. It is the one
    object that the fetch thread and the loop share; every field has a single writer.
    """

    __slots__ = ("epoch", "fetched", "freed", "live", "next_offset", "number", "partition", "topic")

    def __init__(self, partition: Partition, epoch: int) -> None:
        self.partition: Final = partition
        self.topic: Final = partition.topic
        self.number: Final = partition.number
        self.epoch: Final = epoch
        self.fetched = 0  # records handed over; written by the fetch thread
        self.next_offset = -1  # where the next record is due, -1 unknown; fetch thread
        self.freed = 0  # records that left in flight; written by the loop
        self.live = True  # False once revoked or lost; written by the loop

    @property
    def in_flight(self) -> int:
        return self.fetched - self.freed

    def __repr__(self) -> str:
        return f"{self.partition}@{self.epoch}"


class Record:
    """One Kafka message as fetched. Never changed after it was made.

    timestamp_ms is -1 where the message has none; size is key + value + headers in bytes.
    """

    __slots__ = ("assignment", "headers", "key", "offset", "size", "timestamp_ms", "value")

    def __init__(
        self,
        assignment: Assignment,
        offset: int,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: list[Header] | None,
        size: int,
    ) -> None:
        self.assignment = assignment
        self.offset = offset
        self.timestamp_ms = timestamp_ms
        self.key = key
        self.value = value
        self.headers = headers
        self.size = size

    @property
    def topic(self) -> str:
        return self.assignment.topic

    @property
    def partition(self) -> int:
        return self.assignment.number

    # What a ReturnedRecord tells, said of a record at its first stay.

    @property
    def original(self) -> Record:
        """What the application knows it as."""
        return self

    @property
    def attempts(self) -> int:
        """Requests sent before it came here."""
        return 0

    @property
    def first_attempt_ms(self) -> int:
        """Unix time of the first of them; 0 if there was none."""
        return 0

    @property
    def tier(self) -> int:
        """The index of the retry topic it came by; 0 also for one that came by none."""
        return 0

    def __repr__(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}"


class ReturnedRecord(Record):
    """A record of a retry topic: the fields say where it lies now, original what it is.

    original is as the application knows it: topic, partition, offset and timestamp of its first
    fetch, and its own headers. Its assignment is nobody's. tier is the index of the retry topic it
    came by, 0 for the one without a delay (a redrive). attempts and first_attempt_ms (Unix) tell
    of the requests before.
    """

    __slots__ = ("attempts", "first_attempt_ms", "original", "tier")

    # Slots in place of what the plain record computes.
    original: Record
    attempts: int
    first_attempt_ms: int
    tier: int

    def __repr__(self) -> str:
        return f"{self.original} (by {self.topic}/{self.partition}/{self.offset})"


class TracedRecord(Record):
    """A record as one attempt sends it, whose request goes out in a trace of ours.

    trace is what the request carries of it, by header name, in place of what the record brought.
    """

    __slots__ = ("attempts", "original", "trace")

    # Slots in place of what the plain record computes.
    original: Record
    attempts: int

    def __init__(self, record: Record, trace: Mapping[str, str]) -> None:
        super().__init__(
            record.assignment,
            record.offset,
            record.timestamp_ms,
            record.key,
            record.value,
            record.headers,
            record.size,
        )
        self.original = record.original
        self.attempts = record.attempts
        self.trace: Final = trace


class Guarantee(Enum):
    AT_LEAST_ONCE = "at_least_once"
    AT_MOST_ONCE = "at_most_once"


class Outcome(Enum):
    """What an attempt came to. A closed set: every place that looks at it handles all."""

    DELIVERED = "delivered"
    DEFERRED = "deferred"
    RETRY = "retry"
    REJECTED = "rejected"
    APP_DOWN = "app_down"
    CANCELLED = "cancelled"


class Answer:
    """An answer of the application that was received whole.

    retry_after is the header as received; body holds at most the first 1 024 bytes. That of a
    2xx is empty, unless the route reads it: then up to 64 KiB.
    """

    __slots__ = ("body", "retry_after", "status")

    def __init__(self, status: int, retry_after: str | None = None, body: bytes = b"") -> None:
        self.status = status
        self.retry_after = retry_after
        self.body = body

    def __repr__(self) -> str:
        return f"status {self.status}"


class FailureKind(Enum):
    """Why there is no answer."""

    UNREACHABLE = "unreachable"  # refused, no such host or socket, TLS failure
    TIMEOUT = "timeout"  # the attempt's total deadline passed
    BROKEN = "broken"  # reset or closed before the answer was whole
    MALFORMED = "malformed"  # what came back is not HTTP, or breaks its framing or size limits
    UNSENDABLE = "unsendable"  # the record cannot be put into a request


@dataclass(frozen=True, slots=True)
class Failed:
    """An attempt without an answer. sent is False only if certainly no byte reached the app."""

    kind: FailureKind
    detail: str
    sent: bool = True

    def __repr__(self) -> str:
        return f"{self.kind.value}: {self.detail}"


Result = Answer | Failed


class Position(NamedTuple):
    """What is to be committed for one assignment: the next offset to read, and the done-map."""

    assignment: Assignment
    offset: int
    metadata: str = ""


class RetryTopic(NamedTuple):
    """A topic of this group alone, whose records are delivered delay_seconds after their write."""

    name: str
    delay_seconds: float


class Start(NamedTuple):
    """Where a new assignment starts: the offset, and the done-map found with the commit.

    offset is -1 while it is not known (the broker did not answer): the first record tells it.
    committed says whether the group has committed exactly this offset. metadata is "" where
    nothing was committed or it could not be read; topic_id is "" where the broker gives none.
    """

    assignment: Assignment
    offset: int
    committed: bool = True
    metadata: str = ""
    topic_id: str = ""


class OnExhausted(Enum):
    """What happens to a record whose attempts are used up, or that is rejected."""

    PARK = "park"
    DROP = "drop"
    HALT = "halt"
    RETRY_FOREVER = "retry_forever"


class RelieveBy(Enum):
    """Where a record goes that has held the watermark for too long."""

    RETRY = "retry"
    PARK = "park"
