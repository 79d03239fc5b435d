"""Dead letters as they lie in their topic: the headers that tell their story, what to pick, and
what to do with it.

Pure. A letter is a record of a dead-letter topic. Its own headers came first and are in their
order; behind them stands one set of ours (Told). What lacks ours was written by somebody else: it
has no origin, and its reason reads UNKNOWN.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from sidecar.core.retry_mark import MOST, RetryMark
from sidecar.model import Header

PREFIX: Final = "sidecar-dlq-"
UNKNOWN: Final = "unknown"

# Of a record that was sent back to its original topic: the coordinates it had there before.
REDRIVEN: Final = "sidecar-redriven"


class Told(Enum):
    """The headers a parked record gets; absent where there is nothing to tell.

    Numbers are decimal ASCII, times Unix milliseconds. They replace those of an earlier parking.
    """

    TOPIC = PREFIX + "topic"
    PARTITION = PREFIX + "partition"
    OFFSET = PREFIX + "offset"
    TIMESTAMP = PREFIX + "timestamp"  # of the record; the parked one has the time of parking
    GROUP = PREFIX + "group"
    REASON = PREFIX + "reason"
    DETAIL = PREFIX + "detail"
    STATUS = PREFIX + "status"
    ATTEMPTS = PREFIX + "attempts"
    FIRST_ATTEMPT = PREFIX + "first-attempt"
    LAST_ATTEMPT = PREFIX + "last-attempt"
    ANSWER = PREFIX + "answer"  # the beginning of the answer's body, byte for byte


class Origin(NamedTuple):
    """What the application knows the record by. timestamp_ms -1: it had none."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}"


@dataclass(frozen=True, slots=True)
class Letter:
    """A record of a dead-letter topic. headers are its own, without those that tell its story.

    origin is None, and reason UNKNOWN, where the headers do not say where it came from. Times are
    Unix milliseconds, -1 where unknown. redriven: it was sent back already.
    """

    topic: str
    partition: int
    offset: int
    parked_ms: int
    key: bytes | None
    value: bytes | None
    headers: list[Header]
    origin: Origin | None
    group: str
    reason: str
    detail: str
    status: int | None
    attempts: int
    first_attempt_ms: int
    last_attempt_ms: int
    answer: bytes
    redriven: bool = False

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}"

    @property
    def size(self) -> int:
        named = sum(len(name) + len(value or b"") for name, value in self.headers)
        return len(self.key or b"") + len(self.value or b"") + named

    def mark(self) -> RetryMark:
        """For a retry topic: the same record, to be delivered at once."""
        assert self.origin is not None
        return RetryMark(*self.origin, self.attempts, self.first_attempt_ms, 0)


def own_headers(headers: Sequence[Header] | None) -> list[Header]:
    """Those that the record had before it was parked."""
    return [each for each in headers or () if not each[0].startswith(PREFIX)]


def read_letter(
    topic: str,
    partition: int,
    offset: int,
    parked_ms: int,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[Header] | None,
    *,
    redriven: bool = False,
) -> Letter:
    """A record of a dead-letter topic as a letter, whoever wrote it."""
    told = {name: told_value or b"" for name, told_value in headers or ()}

    def text(name: Told) -> str:
        return told.get(name.value, b"").decode("utf-8", "replace")

    def number(name: Told) -> int:
        digits = told.get(name.value, b"")
        known = digits.isdigit() and len(digits) < 20
        return found if known and (found := int(digits)) <= MOST else -1

    where = Origin(
        text(Told.TOPIC), number(Told.PARTITION), number(Told.OFFSET), number(Told.TIMESTAMP)
    )
    known = bool(where.topic) and where.partition >= 0 and where.offset >= 0
    status = number(Told.STATUS)
    return Letter(
        topic=topic,
        partition=partition,
        offset=offset,
        parked_ms=parked_ms,
        key=key,
        value=value,
        headers=own_headers(headers),
        origin=where if known else None,
        group=text(Told.GROUP),
        reason=(text(Told.REASON) if known else "") or UNKNOWN,
        detail=text(Told.DETAIL),
        status=status if status >= 0 else None,
        attempts=max(0, number(Told.ATTEMPTS)),
        first_attempt_ms=number(Told.FIRST_ATTEMPT),
        last_attempt_ms=number(Told.LAST_ATTEMPT),
        answer=told.get(Told.ANSWER.value, b""),
        redriven=redriven,
    )


Value = str | int | bytes | None
OTHERS: Final = "(others)"
ROOM_BYTES: Final = 8_388_608
_ENTRY_BYTES: Final = 150


class By(Enum):
    """What letters are counted by."""

    REASON = "reason"
    STATUS = "status"
    KEY = "key"
    TOPIC = "topic"

    def of(self, letter: Letter) -> Value:
        """The value that the letter is counted under; None where it has none."""
        match self:
            case By.REASON:
                return letter.reason
            case By.STATUS:
                return letter.status
            case By.KEY:
                return letter.key
            case By.TOPIC:
                return None if letter.origin is None else letter.origin.topic


def counted(letters: Iterable[Letter], by: By) -> Counter[Value]:
    """How many letters there are under each value, and under OTHERS once those known fill ROOM."""
    counts: Counter[Value] = Counter()
    room = ROOM_BYTES
    for letter in letters:
        value = by.of(letter)
        if value not in counts:
            room -= _ENTRY_BYTES + (len(value) if isinstance(value, str | bytes) else 0)
            if room < 0:
                value = OTHERS
        counts[value] += 1
    return counts


@dataclass(frozen=True, slots=True)
class Selection:
    """Which letters are meant: those that fit everything that is given; nothing given: all.

    since_ms and until_ms are compared with the time of parking; until_ms itself is outside.
    redriven: those that were sent back already are meant as well.
    """

    reasons: frozenset[str] = frozenset()
    statuses: tuple[range, ...] = ()
    keys: frozenset[bytes] = frozenset()
    topics: frozenset[str] = frozenset()
    since_ms: int | None = None
    until_ms: int | None = None
    redriven: bool = False

    def takes(self, letter: Letter) -> bool:
        if letter.redriven and not self.redriven:
            return False
        if self.reasons and letter.reason not in self.reasons:
            return False
        if self.statuses and not any(letter.status in each for each in self.statuses):
            return False
        if self.keys and letter.key not in self.keys:
            return False
        if self.topics and (letter.origin is None or letter.origin.topic not in self.topics):
            return False
        if self.since_ms is not None and letter.parked_ms < self.since_ms:
            return False
        return self.until_ms is None or letter.parked_ms < self.until_ms


@dataclass(frozen=True, slots=True)
class RedriveOrder:
    """What a redrive is to send, and how; see kafka.redrive. rate: letters a second."""

    selection: Selection = Selection()
    to_origin: bool = False
    rate: float | None = None
    limit: int | None = None
    old: bool = False
    dry_run: bool = False
