"""What other members, and operators, leave in Kafka for the sidecar to read.

Commit metadata (done-maps, progress of redrives), the mark of records in retry topics, the headers
of dead letters, and the answer to a batch. Whatever stands there is read or is not: nothing else
is raised, and what was read can be written and is read again as the same.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from random import Random
from typing import Final, NamedTuple

from sidecar.core import done_map
from sidecar.core.batch_answers import BatchAnswerError, failures_of
from sidecar.core.classify import retry_after_seconds
from sidecar.core.done_map import Key
from sidecar.core.letters import By, Selection, Told, read_letter
from sidecar.core.redrive_progress import NoRoom, RedriveProgress, Unreadable
from sidecar.core.retry_mark import RETRY_MARK, RetryMark, marked, read_mark
from sidecar.delivery.request import RequestEncoder, Unsendable
from sidecar.model import Answer, Assignment, Partition, Record, ReturnedRecord
from tests.fuzz.corpus import kept
from tests.fuzz.spoiling import several

KEY: Final = Key("orders", 3, "u4WPq1x3T0mS8m0ShUMe8g")
OWNER: Final = Assignment(Partition("orders", 3), 1)
MOST_CHARACTERS: Final = 3072  # of a commit's metadata, by the contract
BASES: Final = (0, 1, 1000, 2**31, 2**62)
PIECES: Final = (
    b"\x00",
    b"\xff",
    b"-1",
    b"null",
    b"true",
    b"1e999",
    b"NaN",
    b"9223372036854775808",
    b"9" * 4300,
    b"9" * 5000,
    b"[" * 3000,
    b"{",
    b'"',
    b'"topic":',
    b"sc1:",
    b"~" * 300,
)


class Case(NamedTuple):
    """One thing to be read: by whom, and what else it depends on."""

    reader: str
    data: bytes
    base: int
    seed: int


def case(number: int) -> Case:
    random = Random(number)
    reader = random.choice(tuple(READERS))
    data = random.choice(_seeds(reader))
    base = random.choice(BASES)
    if reader in ("done_map", "redrive"):
        data = _text_of_map(random, base)
    return Case(reader, several(random, data, PIECES, _seeds(reader)), base, number)


def kept_case(name: str, data: bytes) -> Case:
    """An input of the corpus: its file's name begins with its reader's."""
    return Case(name.split("-", 1)[0], data, 0, 0)


@cache
def _seeds(reader: str) -> tuple[bytes, ...]:
    return tuple(data for name, data in kept("metadata").items() if name.startswith(reader))


def _text_of_map(random: Random, base: int) -> bytes:
    """A true one, or one of any content whose checksum vouches for it."""
    if random.random() < 0.5:
        outstanding, at = [], base - 1
        for _ in range(random.choice((0, 1, 30, 2000))):
            at += random.choice((1, 1, 2, 1000, 10**9))
            outstanding.append(at)
        return done_map.encode(KEY, base, outstanding, at + random.choice((0, 1, 10**6)))[
            0
        ].encode()
    length = random.choice((2, 3, 10, 40, 2000))
    content = b"\xff" * length if random.random() < 0.1 else random.randbytes(length)
    content = bytes([random.choice((0, 1, 2, 3, 255))]) + content
    bound = f"{KEY.topic}\0{KEY.partition}\0{KEY.topic_id if content[0] & 2 else ''}\0{base}\0"
    crc = zlib.crc32(content, zlib.crc32(bound.encode()))
    return b"sc1:" + base64.b85encode(content + crc.to_bytes(4, "big"))


def judge(case: Case) -> None:
    READERS[case.reader](case)


def _done_map(case: Case) -> None:
    text = case.data.decode("latin-1")
    found = done_map.decode(text, KEY, case.base)
    if found is None:
        return
    assert found.highest >= case.base
    assert all(each >= case.base for each in found.outstanding)
    assert not any(map(found.is_done, found.outstanding))
    left = sorted(each for each in found.outstanding if each <= found.highest)
    again, described = done_map.encode(KEY, case.base, left, found.highest)
    assert len(again) <= MOST_CHARACTERS
    reread = done_map.decode(again, KEY, case.base)
    assert reread is not None
    assert reread.highest == described <= found.highest
    assert reread.outstanding == {each for each in left if each <= described}


def _redrive(case: Case) -> None:
    random = Random(case.seed)
    end = case.base + random.choice((0, 5, 10**6))
    try:
        progress = RedriveProgress(KEY, end, case.base, case.data.decode("latin-1"))
    except Unreadable:
        return
    sent: set[int] = set()
    for offset in sorted(random.randrange(case.base, end + 1) for _ in range(20)):
        if progress.is_sent(offset) or random.random() < 0.3:
            continue
        if random.random() < 0.5:
            progress.leave(offset)
            assert not progress.is_sent(offset)
        else:
            progress.send(offset)
            sent.add(offset)
    with suppress(NoRoom):
        committed, metadata = progress.position()
        if committed <= end:
            again = RedriveProgress(KEY, end, committed, metadata)
            assert all(map(again.is_sent, sent)), "what was sent is sent again"


def _mark(case: Case) -> None:
    mark = read_mark([("h", b"1"), (RETRY_MARK, case.data)])
    if mark is None:
        return
    assert read_mark(marked([], mark)) == mark
    _can_be_sent(mark)


def _can_be_sent(mark: RetryMark) -> None:
    partition = Partition(mark.topic, mark.partition)
    original = Record(Assignment(partition, 0), mark.offset, mark.timestamp_ms, None, b"", [], 0)
    record = ReturnedRecord(OWNER, 0, 0, None, b"", [], 0)
    record.original, record.attempts, record.first_attempt_ms, record.tier = original, 0, 0, 0
    record.attempts = mark.attempts
    with suppress(Unsendable):
        head, _ = RequestEncoder("/{topic}", "h", "a/b", 1 << 20).encode(record, 1)
        assert b"Sidecar-Attempt: %d\r\n" % (mark.attempts + 1) in head
    assert mark.due_ms / 1000 < 1e300, "a time that a timer takes"


def _letter(case: Case) -> None:
    names = [each.value for each in Told]
    headers = [
        (names[index % len(names)], part or None)
        for index, part in enumerate(case.data.split(b"\n"))
    ]
    letter = read_letter("d", 0, 1, 2, None, None, headers)
    assert letter.headers == []
    for by in By:
        by.of(letter)
    Selection(reasons=frozenset({"x"}), since_ms=0).takes(letter)
    if letter.origin is not None:
        assert read_mark(marked([], letter.mark())) == letter.mark(), "it can be redriven"


def _batch(case: Case) -> None:
    records = [Record(OWNER, offset, 0, None, b"", None, 0) for offset in range(5)]
    with suppress(BatchAnswerError):
        for index, answer in failures_of(case.data, records).items():
            assert 0 <= index < len(records)
            if isinstance(answer, Answer):
                waits = retry_after_seconds(answer.retry_after, 1.7e9, 300.0)
                assert 0 <= waits <= 300


def _retry_after(case: Case) -> None:
    assert 0 <= retry_after_seconds(case.data.decode("latin-1"), 1.7e9, 300.0) <= 300


READERS: Final[dict[str, Callable[[Case], None]]] = {
    "done_map": _done_map,
    "redrive": _redrive,
    "mark": _mark,
    "letter": _letter,
    "batch": _batch,
    "retry_after": _retry_after,
}
