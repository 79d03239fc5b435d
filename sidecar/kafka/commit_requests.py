"""Commits as one client sends them, and which answer is whose.

Owner: the record source, on its thread. The client is given with each call: it is made after this,
with answered as its callback.

Invariant: an answer is waited for without polling, so a commit never runs a callback and takes no
message; see commit for the bound of that wait.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from sidecar.errors import CommitFailed, CommitUnknown, FatalSource, SourceError
from sidecar.kafka.errors import (
    commit_answer,
    commit_error,
    describe,
    is_fatal,
    kafka_error,
    source_error,
)
from sidecar.kafka.offsets import coordinates, partition_of, plain, text, with_offsets
from sidecar.kafka.trap import Trap
from sidecar.model import Partition

Done = Callable[[Exception | None], None]
Positions = Mapping[Partition, tuple[int, str]]


class CommitRequests:
    def __init__(self, trap: Trap) -> None:
        self._trap: Final = trap
        self._unanswered: deque[tuple[list[tuple[str, int, int]], Done | None]] = deque()

    def commit(self, consumer: Consumer, positions: Positions, timeout: float) -> None:
        """Commit and wait for the answer.

        The binding's own synchronous commit waits without a limit (with the coordinator gone for
        several times socket.timeout.ms, then session.timeout.ms). So the commit is sent without
        waiting and the committed offsets are read back, which has a timeout: both requests take
        the same connection, and a broker answers a connection in order. Equal: done. No answer
        in time: CommitUnknown. Different: the broker refused, and since it answers, the
        synchronous commit is asked for the reason; only a coordinator lost just there can make
        that wait longer than timeout.
        """
        offsets = with_offsets(positions)
        self._send(consumer, offsets, None)
        if _holds(consumer, positions, timeout):
            return
        if not consumer.memberid():
            # Without a member id a commit counts as made from outside of the group, and an
            # empty group takes that from anybody.
            raise CommitFailed("this member is no longer in the group")
        _commit_and_wait(consumer, offsets)

    @staticmethod
    def commit_in_closing(consumer: Consumer, positions: Positions) -> None:
        """From inside close nothing can be read back: the synchronous commit at once.

        librdkafka serves no such request to a group it leaves.
        """
        _commit_and_wait(consumer, with_offsets(positions))

    def commit_later(self, consumer: Consumer, positions: Positions, done: Done) -> None:
        self._send(consumer, with_offsets(positions), done)

    @property
    def pending(self) -> bool:
        """Whether the client has yet to tell what became of one; it sends again by itself."""
        return bool(self._unanswered)

    def answered(self, error: KafkaError | None, offsets: list[TopicPartition]) -> None:
        """The client's on_commit."""
        # Answers may overtake each other (librdkafka puts a commit off while it looks for the
        # coordinator), so an answer is known by what it is about.
        answered = coordinates(offsets)
        for waiting in self._unanswered:
            if waiting[0] == answered:
                self._unanswered.remove(waiting)
                if waiting[1] is not None:
                    self._trap.guard(waiting[1], commit_answer(error, offsets))
                return

    def abandon(self) -> None:
        """The client is closed: no answer comes any more."""
        while self._unanswered:
            _, done = self._unanswered.popleft()
            if done is not None:
                self._trap.guard(done, CommitUnknown("closed before the broker answered"))

    def _send(self, consumer: Consumer, offsets: list[TopicPartition], done: Done | None) -> None:
        try:
            self._trap.call(consumer.commit, offsets=offsets, asynchronous=True)
        except FatalSource:
            raise
        except SourceError as error:
            raise CommitFailed(str(error)) from error
        self._unanswered.append((coordinates(offsets), done))


def _commit_and_wait(consumer: Consumer, offsets: list[TopicPartition]) -> None:
    try:
        answers = consumer.commit(offsets=offsets, asynchronous=False)
    except KafkaException as failure:
        raise commit_error(kafka_error(failure)) from failure
    refused = commit_answer(None, answers)
    if refused is not None:
        raise refused


def _holds(consumer: Consumer, positions: Positions, timeout: float) -> bool:
    """Whether the broker has exactly this committed; CommitUnknown if it does not say."""
    try:
        found = consumer.committed(plain(positions), timeout)
    except KafkaException as failure:
        error = kafka_error(failure)
        if is_fatal(error):
            raise source_error(error) from failure
        if error.code() < 0:  # librdkafka's own: no answer
            raise CommitUnknown(describe(error)) from failure
        return False
    return all(
        each.error is None and (each.offset, text(each.metadata)) == positions[partition_of(each)]
        for each in found
    )
