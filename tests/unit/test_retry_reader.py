"""What of a retry topic is handed over, what waits with the broker, and what comes out of it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import cast

import pytest

from sidecar.core.retry_mark import RETRY_MARK, RetryMark, marked
from sidecar.kafka.retry_reader import GRAIN_MS, RetryReader
from sidecar.logs import RateLimited
from sidecar.model import Assignment, Header, Partition, RetryTopic, ReturnedRecord
from sidecar.ports import Message, RecordSource

TOPICS = (RetryTopic("r.0", 0.0), RetryTopic("r.1", 1.0))
FIRST, SECOND = Partition("r.1", 0), Partition("r.1", 1)
PLAIN = Partition("orders", 0)


class NotingSource:
    def __init__(self) -> None:
        self.asked: list[tuple[str, Partition, int]] = []

    def pause(self, partitions: Sequence[Partition]) -> None:
        self.asked += [("pause", each, -1) for each in partitions]

    def seek(self, partition: Partition, offset: int) -> None:
        self.asked.append(("seek", partition, offset))


class Rig:
    def __init__(self) -> None:
        self.now = 1000.0
        self.source = NotingSource()
        self.reader = RetryReader(
            cast("RecordSource", self.source),
            TOPICS,
            lambda: self.now,
            RateLimited(logging.getLogger("sidecar.x")),
        )
        for each in (FIRST, SECOND, PLAIN):
            self.reader.adopt(each)

    def take(self, *messages: Message) -> tuple[list[int], list[int]]:
        """The offsets of those of other topics, and of those that are due."""
        others, due = self.reader.sort_out(messages)
        return [each.offset for each in others], [each.message.offset for each in due]


def message(
    partition: Partition, offset: int, due: float = 0.0, headers: list[Header] | None = None
) -> Message:
    mark = RetryMark("orders", 3, 40 + offset, 77, 2, 900_000, round(due * 1000))
    return Message(partition, offset, 5, b"k", None, marked(headers or [], mark))


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_the_first_that_is_not_due_ends_the_reading_of_its_partition_only(rig: Rig) -> None:
    """Also for what is due behind it: it comes again."""
    taken = rig.take(
        message(FIRST, 1, 999.0),
        message(FIRST, 2, 1002.0),
        message(PLAIN, 7),
        message(FIRST, 3, 999.0),
        message(SECOND, 4, 1000.0),
    )
    assert taken == ([7], [1, 4])
    assert rig.source.asked == [("pause", FIRST, -1), ("seek", FIRST, 2)]
    assert list(rig.reader.asleep) == [FIRST]


def test_a_partition_wakes_when_its_message_is_due_and_never_before(rig: Rig) -> None:
    rig.take(message(FIRST, 1, 1001.3), message(SECOND, 1, 1009.0))
    rig.now = 1001.299
    assert rig.reader.wake() == []
    rig.now = 1001.3 + GRAIN_MS / 1000
    assert rig.reader.wake() == [FIRST]
    assert rig.reader.wake() == []
    assert list(rig.reader.asleep) == [SECOND]
    assert rig.take(message(FIRST, 1, 1001.3)) == ([], [1])


def test_a_clock_that_is_set_back_wakes_nobody_early(rig: Rig) -> None:
    rig.take(message(FIRST, 1, 1001.0))
    rig.now = 500.0
    assert rig.reader.wake() == []
    rig.now = 1001.25
    assert rig.reader.wake() == [FIRST]


def test_a_partition_that_left_is_forgotten_with_its_alarm(rig: Rig) -> None:
    rig.take(message(FIRST, 1, 1001.0))
    rig.reader.forget(FIRST)
    assert not rig.reader.asleep
    rig.reader.adopt(FIRST)
    rig.take(message(FIRST, 1, 1005.0))
    rig.now = 1002.0
    assert rig.reader.wake() == []
    assert list(rig.reader.asleep) == [FIRST]


def test_what_comes_back_is_the_original_without_the_mark(rig: Rig) -> None:
    """A mark among the record's own headers is a header like any other."""
    own: list[Header] = [("a", b"1"), (RETRY_MARK, b'{"forged": 1}'), ("a", None)]
    _, (due,) = rig.reader.sort_out([message(FIRST, 9, headers=own)])
    record = rig.reader.record(Assignment(FIRST, 4), due)
    assert isinstance(record, ReturnedRecord)
    assert repr(record) == "orders/3/49 (by r.1/0/9)"
    original = record.original
    assert (original.topic, original.partition, original.offset) == ("orders", 3, 49)
    assert (original.timestamp_ms, original.key, original.value) == (77, b"k", None)
    assert original.headers == own
    assert (record.attempts, record.first_attempt_ms, record.tier) == (2, 900_000, 1)
    assert (record.topic, record.offset, record.timestamp_ms) == ("r.1", 9, 77)  # the original's


@pytest.mark.parametrize("headers", [None, [], [("a", b"1")], [(RETRY_MARK, b"nonsense")]])
def test_what_has_no_mark_is_a_record_of_the_retry_topic_and_due(
    rig: Rig, caplog: pytest.LogCaptureFixture, headers: list[Header] | None
) -> None:
    by_hand = Message(FIRST, 3, 5, b"k", b"v", headers)
    _, (due,) = rig.reader.sort_out([by_hand])
    record = rig.reader.record(Assignment(FIRST, 4), due)
    assert record.original is record
    assert (record.headers, record.attempts, record.tier) == (headers, 0, 0)
    assert "r.1/0/3 has no readable mark" in caplog.text


def test_other_topics_are_passed_on_as_they_are(rig: Rig) -> None:
    messages = [message(PLAIN, 1, 5000.0), message(PLAIN, 2, 5000.0)]
    assert rig.reader.sort_out(messages) == (messages, ())


def test_many_without_a_mark_are_one_line(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    for offset in range(50):
        (due,) = rig.reader.sort_out([Message(FIRST, offset, 5, b"k", None, None)])[1]
        rig.reader.record(Assignment(FIRST, 1), due)
    assert caplog.text.count("has no readable mark") == 1
