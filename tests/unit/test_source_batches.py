"""KafkaSource when a callback runs between the messages of one batch.

A broker brings that about only by a race of microseconds, so here a scripted consumer does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import pytest
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from sidecar.kafka.source import KafkaSource
from sidecar.model import UNREADABLE_HEADERS, Partition
from sidecar.ports import SourceListener

A, B = Partition("t", 0), Partition("t", 1)


class ScriptedConsumer:
    """Gives the first message to poll and the others to consume, and runs between in there."""

    def __init__(self, batch: Sequence[Message], between: Callable[[], object]) -> None:
        self.batch = list(batch)
        self.between = between
        self.calls: list[tuple[str, list[tuple[int, int]]]] = []

    def poll(self, _: float) -> Message:
        return self.batch[0]

    def consume(self, *_: object) -> list[Message]:
        self.between()
        return self.batch[1:]

    def seek(self, offset: TopicPartition) -> None:
        self.note("seek", [offset])

    def pause(self, offsets: list[TopicPartition]) -> None:
        self.note("pause", offsets)

    def resume(self, offsets: list[TopicPartition]) -> None:
        """Of what is given up."""

    def incremental_assign(self, offsets: list[TopicPartition]) -> None:
        self.note("assign", offsets)

    def incremental_unassign(self, offsets: list[TopicPartition]) -> None:
        self.note("unassign", offsets)

    def note(self, what: str, offsets: list[TopicPartition]) -> None:
        self.calls.append((what, [(each.partition, each.offset) for each in offsets]))


class Listener:
    def __init__(self) -> None:
        self.revoked: list[Partition] = []
        self.out_of_range: list[Partition] = []
        self.raising: Exception | None = None

    def on_out_of_range(self, partition: Partition, reason: str) -> None:
        self.out_of_range.append(partition)

    def on_revoke(self, partitions: Sequence[Partition]) -> None:
        self.revoked += partitions
        if self.raising is not None:
            raise self.raising


def prepared(between: Callable[[KafkaSource], object]) -> tuple[KafkaSource, ScriptedConsumer]:
    source = KafkaSource({"partition.assignment.strategy": "cooperative-sticky"}, ["t"], None)
    batch = [
        Message(topic="t", partition=number, offset=offset, value=b"x", timestamp=(1, 1))
        for offset in (5, 6)
        for number in (0, 1)
    ]
    consumer = ScriptedConsumer(batch, lambda: between(source))
    source._consumer = cast("Consumer", consumer)
    source._listener = cast("SourceListener", Listener())
    source.assign({A: 5, B: 5})
    consumer.calls.clear()
    return source, consumer


def offsets(source: KafkaSource) -> list[tuple[Partition, int]]:
    return [(each.partition, each.offset) for each in source.poll(10, 0.0)]


def test_nothing_happens_between() -> None:
    source, consumer = prepared(lambda _: None)
    assert offsets(source) == [(A, 5), (B, 5), (A, 6), (B, 6)]
    assert consumer.calls == []


def test_paused_between_is_fetched_again_from_the_first_taken() -> None:
    source, consumer = prepared(lambda source: source.pause([A]))
    assert offsets(source) == [(B, 5), (B, 6)]
    assert consumer.calls[-1] == ("seek", [(0, 5)])


def test_moved_between_goes_where_it_was_moved() -> None:
    source, consumer = prepared(lambda source: source.seek(A, 2))
    assert offsets(source) == [(B, 5), (B, 6)]
    assert consumer.calls == [("seek", [(0, 2)]), ("seek", [(0, 2)])]


def test_revoked_between_is_gone() -> None:
    consumer_ = cast("Consumer", None)
    source, consumer = prepared(
        lambda source: source._on_revoke(consumer_, [TopicPartition("t", 0)])
    )
    assert offsets(source) == [(B, 5), (B, 6)]
    assert [what for what, _ in consumer.calls] == ["unassign"]


def test_exception_between_loses_no_message() -> None:
    def fail(source: KafkaSource) -> None:
        cast("Listener", source._listener).raising = LookupError("between")
        source._on_revoke(cast("Consumer", None), [TopicPartition("t", 0)])

    source, consumer = prepared(fail)
    with pytest.raises(LookupError, match="between"):
        source.poll(10, 0.0)
    assert consumer.calls[-1] == ("seek", [(1, 5)])


class UnreadableHeaders(Message):
    """A message whose headers make the binding fail, as a name that is not UTF-8 does."""

    def headers(self) -> None:
        raise SystemError("<method 'headers'> returned a result with an exception set")


def test_a_header_name_that_is_not_utf8_does_not_end_the_thread() -> None:
    """The record comes without headers, marked as unreadable; its neighbours as they are."""
    source, consumer = prepared(lambda _: None)
    consumer.batch[1] = UnreadableHeaders(
        topic="t", partition=1, offset=5, value=b"x", timestamp=(1, 1)
    )
    headers = [each.headers for each in source.poll(10, 0)]
    assert [each is UNREADABLE_HEADERS for each in headers] == [False, True, False, False]


class AtItsEnd(Message):
    """Not a message: the position behind those before it is gone."""

    def __init__(self, partition: Partition) -> None:
        error = KafkaError(KafkaError._AUTO_OFFSET_RESET)
        super().__init__(topic=partition.topic, partition=partition.number, error=error)


def test_an_error_is_reported_after_the_messages_in_front_of_it_were_handed_over() -> None:
    """Else what was read of a log that was made anew would be taken for what the new one holds."""
    source, consumer = prepared(lambda _: None)
    listener = cast("Listener", source._listener)
    consumer.batch.append(AtItsEnd(A))
    assert len(source.poll(10, 0)) == 4
    assert listener.out_of_range == []
    consumer.batch = [consumer.batch[1]]
    source.poll(10, 0)
    assert listener.out_of_range == [A]


def test_an_error_alone_is_reported_at_once() -> None:
    source, consumer = prepared(lambda _: None)
    consumer.batch = [AtItsEnd(A)]
    assert source.poll(10, 0) == []
    assert cast("Listener", source._listener).out_of_range == [A]
