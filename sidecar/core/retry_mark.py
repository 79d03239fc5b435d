"""The mark of a record in a retry topic: where it came from, its attempts, when it is due.

Pure. The mark is the value of one header, RETRY_MARK, that stands behind all headers of the record
itself. Retry topics are private to a group: only there is the last header looked at, so a header of
that name that a producer wrote elsewhere is carried like any other and believed nowhere.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from sidecar.model import Header

RETRY_MARK: Final = "sidecar-retry"
MOST: Final = 2**63 - 1  # that Kafka has an offset or a time for


class RetryMark(NamedTuple):
    """topic, partition, offset and timestamp_ms are those of the original record.

    attempts: requests sent so far. first_attempt_ms and due_ms are Unix milliseconds;
    due_ms 0: at once.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    attempts: int
    first_attempt_ms: int
    due_ms: int


def marked(headers: Sequence[Header], mark: RetryMark) -> list[Header]:
    """The record's own headers, and the mark behind them."""
    return [*headers, (RETRY_MARK, json.dumps(mark._asdict(), separators=(",", ":")).encode())]


def read_mark(headers: Sequence[Header] | None) -> RetryMark | None:
    """The mark of a record of a retry topic; None where the last header is no readable mark."""
    if not headers or headers[-1][0] != RETRY_MARK:
        return None
    try:
        told: Any = json.loads(headers[-1][1] or b"")
        mark = RetryMark(**told)
    except (ValueError, TypeError, RecursionError):
        return None
    numbers = mark[1:]
    if any(type(number) is not int or not -1 <= number <= MOST for number in numbers):
        return None
    if type(mark.topic) is not str or not mark.topic or -1 in (mark.partition, mark.offset):
        return None
    return mark
