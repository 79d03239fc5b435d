"""The record source: a member of a Kafka group, on confluent_kafka's Consumer.

Purpose: ports.RecordSource for real brokers. An adapter without policy: which offset to start
at, when to commit and what to do about an error is the listener's and the caller's affair.

Owner: the thread that calls subscribe; it makes the consumer there and calls everything else.

Invariants:
* Listener callbacks run inside poll and close, nowhere else. What one raises is raised from poll.
* A callback never polls: poll within a callback makes the binding abort the process (it keeps
  one call state per thread and clears it when the inner call ends).
* What poll returns belongs to the ownership, the position and the pause state that hold when it
  returns. A callback may change all three after messages of the same call were taken off the
  queue; those are dropped and, where the partition is still ours, fetched again.
* A commit's answer is waited for without polling, so a commit never runs a callback and takes no
  message; see commit for the bound of that wait.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka import Message as RawMessage

from sidecar.errors import (
    CommitFailed,
    CommitUnknown,
    ConfigError,
    FatalSource,
    Problem,
    SourceError,
)
from sidecar.kafka.client_log import ClientLog
from sidecar.kafka.errors import (
    commit_answer,
    commit_error,
    describe,
    is_fatal,
    kafka_error,
    source_error,
)
from sidecar.kafka.offsets import (
    at,
    coordinates,
    partition_of,
    partitions_of,
    plain,
    text,
    with_offsets,
)
from sidecar.kafka.topics import Topics
from sidecar.model import UNREADABLE_HEADERS, Partition
from sidecar.ports import Committed, Message, SourceListener

_Done = Callable[[Exception | None], None]

GIVE_UP_SECONDS: Final = 3.0
QUIET_SECONDS: Final = 0.15

_new_tuple: Final[Any] = tuple.__new__  # makes a Message without a call of Python code


class KafkaSource:
    """See ports.RecordSource. config is librdkafka's, final: nothing is added but callbacks.

    topic_ids: whether to ask for them; a broker that does not know the request costs a timeout.
    """

    def __init__(
        self,
        config: Mapping[str, object],
        topics: Sequence[str] | None,
        pattern: str | None,
        *,
        topic_ids: bool = True,
    ) -> None:
        self._config: Final = dict(config)
        self._topics: Final = Topics(config, with_ids=topic_ids)
        self._subscription: Final = [*(topics or ()), *([pattern] if pattern else [])]
        self._cooperative: Final = _is_cooperative(config)
        self._listener: SourceListener
        self._consumer: Consumer
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._assigned: set[Partition] = set()
        self._paused: set[Partition] = set()
        # Where a partition was told to go; librdkafka knows no position until the next message.
        self._starts: dict[Partition, int | None] = {}
        # Partitions whose ownership, position or pause state a callback changed since poll took
        # its first message, and where those that were moved went.
        self._changed: set[Partition] = set()
        self._moved: dict[Partition, int | None] = {}
        self._unanswered: deque[tuple[list[tuple[str, int, int]], _Done | None]] = deque()
        self._errors: list[tuple[RawMessage, KafkaError]] = []  # behind the last messages
        self._assigning = False
        self._closing = False
        self._last_callback_at = 0.0
        self._fatal: FatalSource | None = None
        self._raised: BaseException | None = None

    # --- membership ---------------------------------------------------------------------------

    def subscribe(self, listener: SourceListener) -> None:
        self._listener = listener
        callbacks = {"error_cb": self._on_client_error, "on_commit": self._on_commit}
        try:
            self._consumer = Consumer({**self._config, **callbacks}, logger=ClientLog())
            self._consumer.subscribe(
                self._subscription,
                on_assign=self._on_assign,
                on_revoke=self._on_revoke,
                on_lost=self._on_lost,
            )
        except KafkaException as error:
            raise ConfigError([Problem("kafka", describe(kafka_error(error)))]) from error

    def assign(self, starts: Mapping[Partition, int | None]) -> None:
        offsets = [at(partition, offset) for partition, offset in starts.items()]
        try:
            if self._cooperative:
                self._consumer.incremental_assign(offsets)
            else:
                self._consumer.assign(offsets)
        except KafkaException as error:
            raise source_error(kafka_error(error)) from error
        self._assigning = False
        self._assigned.update(starts)
        for partition, offset in starts.items():
            self._move(partition, offset)

    def close(self) -> None:
        """Leave the group.

        First the partitions are given up by unsubscribing and polling: closing while there are
        any, soon after a rebalance, now and then hangs in librdkafka for ever and with it, as the
        interpreter's lock is held, the whole process (librdkafka issues 4041 and 4527).

        No time limit can be given to librdkafka here. A coordinator that refuses connections
        costs about session.timeout.ms; one that is silent (frozen, cut off) several times
        socket.timeout.ms. Whoever must end sooner has to end the process without this thread.
        """
        if self._closing or not hasattr(self, "_consumer"):
            return
        self._closing = True
        try:
            self._give_all_up()
            if self._assigned:
                self._trouble("partitions are still held; the client is left as it is")
            else:
                self._consumer.close()
        except KafkaException as error:
            self._trouble(describe(kafka_error(error)))
        while self._unanswered:
            _, done = self._unanswered.popleft()
            if done is not None:
                self._guard(done, CommitUnknown("closed before the broker answered"))
        if self._raised is not None and not isinstance(self._raised, FatalSource):
            self._raise()

    def _give_all_up(self) -> None:
        """Unsubscribe, and serve what follows from it until it has been quiet for a moment.

        A rebalance that is under way may still bring partitions to a member that has none.
        """
        self._consumer.unsubscribe()
        deadline = time.monotonic() + GIVE_UP_SECONDS
        self._last_callback_at = time.monotonic()
        while self._fatal is None and (now := time.monotonic()) < deadline:
            if not self._assigned and now - self._last_callback_at >= QUIET_SECONDS:
                return
            self._consumer.poll(0.02)  # for its callbacks; a message is for the next owner

    # --- messages -----------------------------------------------------------------------------

    def poll(self, limit: int, timeout: float) -> list[Message]:
        self._report_errors()
        if self._raised is not None:
            self._raise()
        taken: list[RawMessage] = []
        try:
            first = self._consumer.poll(timeout)
            if first is not None:
                taken.append(first)
                # Callbacks of poll ran before it took its one message; those of consume run
                # between its messages.
                self._changed.clear()
                self._moved.clear()
                if limit > 1:
                    taken += self._consumer.consume(limit - 1, 0)
        except KafkaException as failure:
            self._keep(source_error(kafka_error(failure)))
        messages = self._messages(taken, self._errors)
        if self._changed and messages:
            messages = self._take_back(messages, self._changed)
        if not messages:
            self._report_errors()
        if self._raised is not None:
            if self._fatal is None:
                self._take_back(messages, {message.partition for message in messages})
            self._raise()
        return messages

    def pause(self, partitions: Sequence[Partition]) -> None:
        # librdkafka drops what it has queued for a paused partition before it returns.
        self._call(self._consumer.pause, plain(partitions))
        self._paused.update(partitions)
        self._changed.update(partitions)

    def resume(self, partitions: Sequence[Partition]) -> None:
        self._call(self._consumer.resume, plain(partitions))
        self._paused.difference_update(partitions)

    def seek(self, partition: Partition, offset: int) -> None:
        try:
            self._consumer.seek(at(partition, offset))
        except KafkaException as error:
            if kafka_error(error).code() != KafkaError._STATE:
                raise source_error(kafka_error(error)) from error
            # Not being fetched: just assigned, or stopped by librdkafka as out of range.
            self._restart(partition, offset)
        self._move(partition, offset)

    def _move(self, partition: Partition, offset: int | None) -> None:
        self._starts[partition] = offset
        self._moved[partition] = offset
        self._changed.add(partition)

    def _report_errors(self) -> None:
        """Not before the messages that stood in front of an error were handed over.

        A partition whose position is gone may start anew at another offset, and what was read
        before must not be taken for what comes then.
        """
        errors, self._errors = self._errors, []
        for raw, error in errors:
            self._on_message_error(raw, error)

    def _messages(
        self, taken: Iterable[RawMessage], errors: list[tuple[RawMessage, KafkaError]]
    ) -> list[Message]:
        """What is a message; errors gets what is none. Runs for every record: plain and flat."""
        messages: list[Message] = []
        append = messages.append
        partitions = self._partitions
        for raw in taken:
            error = raw.error()
            if error is not None:
                errors.append((raw, error))
                continue
            where: Any = (raw.topic(), raw.partition())
            partition = partitions.get(where)
            if partition is None:
                partition = partitions[where] = Partition(*where)
            kind, timestamp = raw.timestamp()
            try:
                headers: Any = raw.headers()
            except (SystemError, UnicodeDecodeError):
                # The binding gives header names as text and fails on what is not UTF-8.
                headers = UNREADABLE_HEADERS
            offset: Any = raw.offset()
            fields = (
                partition,
                offset,
                timestamp if kind else -1,
                raw.key(),
                raw.value(),
                headers,
            )
            append(_new_tuple(Message, fields))
        return messages

    def _take_back(self, messages: list[Message], changed: set[Partition]) -> list[Message]:
        """The messages without those of the changed partitions, which are fetched again."""
        lowest: dict[Partition, int] = {}
        for message in messages:
            if message.partition in changed:
                lowest.setdefault(message.partition, message.offset)
        for partition in lowest.keys() & self._assigned:
            start = self._moved.get(partition, lowest[partition])
            self._guard(self.seek if start is not None else self._restart, partition, start)
        return [each for each in messages if each.partition not in changed]

    def _restart(self, partition: Partition, offset: int | None) -> None:
        """Give one partition up and take it again elsewhere, without the group's knowing."""
        if self._cooperative:
            again = {partition: offset}
            self._call(self._consumer.incremental_unassign, plain(again))
            take = self._consumer.incremental_assign
        else:
            # The eager protocol knows only whole assignments: the others go on where they are.
            positions = self.positions(list(self._assigned))
            again = {each: positions.get(each) for each in self._assigned} | {partition: offset}
            take = self._consumer.assign
        self._call(take, [at(*each) for each in again.items()])
        self._call(self._consumer.pause, plain(again.keys() & self._paused))
        for each, where in again.items():
            self._move(each, where)

    # --- what the broker knows ----------------------------------------------------------------

    def positions(self, partitions: Sequence[Partition]) -> dict[Partition, int]:
        """librdkafka's position moves over a transaction marker when poll comes to it."""
        found: dict[Partition, int] = {}
        for each in self._call(self._consumer.position, plain(partitions)):
            partition = partition_of(each)
            start = self._starts.get(partition)
            if each.error is None and each.offset >= 0:
                found[partition] = each.offset
            elif start is not None and partition in self._assigned:
                found[partition] = start
        return found

    def committed(
        self, partitions: Sequence[Partition], timeout: float
    ) -> dict[Partition, Committed]:
        found: dict[Partition, Committed] = {}
        for each in self._call(self._consumer.committed, plain(partitions), timeout):
            if each.error is not None:
                raise source_error(each.error)
            offset = each.offset if each.offset >= 0 else None
            found[partition_of(each)] = Committed(offset, text(each.metadata))
        return found

    def watermarks(self, partition: Partition, timeout: float) -> tuple[int, int]:
        bounds = self._call(
            self._consumer.get_watermark_offsets, TopicPartition(*partition), timeout=timeout
        )
        if bounds is None:
            raise SourceError(f"{partition}: no answer about its bounds within {timeout:g} s")
        return bounds[0], bounds[1]

    def ends(self, partitions: Sequence[Partition]) -> dict[Partition, int]:
        found: dict[Partition, int] = {}
        for partition in partitions:
            bounds = self._call(
                self._consumer.get_watermark_offsets, TopicPartition(*partition), cached=True
            )
            if bounds is not None and bounds[1] >= 0:
                found[partition] = bounds[1]
        return found

    def group_knows(self, topic: str, timeout: float) -> bool:
        deadline = time.monotonic() + timeout
        partitions = self._topics.partitions(topic, timeout)
        if not partitions:
            return False
        committed = self.committed(partitions, max(deadline - time.monotonic(), 0.01))
        return any(each.offset is not None for each in committed.values())

    def topic_ids(self, topics: Collection[str], timeout: float) -> dict[str, str]:
        return self._topics.ids(topics, timeout)

    # --- commits ------------------------------------------------------------------------------

    def commit(self, positions: Mapping[Partition, tuple[int, str]], timeout: float) -> None:
        """Commit and wait for the answer.

        The binding's own synchronous commit waits without a limit (with the coordinator gone for
        several times socket.timeout.ms, then session.timeout.ms). So the commit is sent without
        waiting and the committed offsets are read back, which has a timeout: both requests take
        the same connection, and a broker answers a connection in order. Equal: done. No answer
        in time: CommitUnknown. Different: the broker refused, and since it answers, the
        synchronous commit is asked for the reason; only a coordinator lost just there can make
        that wait longer than timeout. From inside close nothing can be read back (librdkafka
        serves no such request to a group it leaves): there it is the synchronous one at once.
        """
        if not positions:
            return
        offsets = with_offsets(positions)
        if not self._closing:
            self._send(offsets, None)
            if self._holds(positions, timeout):
                return
            if not self._consumer.memberid():
                # Without a member id a commit counts as made from outside of the group, and an
                # empty group takes that from anybody.
                raise CommitFailed("this member is no longer in the group")
        try:
            answers = self._consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as failure:
            raise commit_error(kafka_error(failure)) from failure
        refused = commit_answer(None, answers)
        if refused is not None:
            raise refused

    def _holds(self, positions: Mapping[Partition, tuple[int, str]], timeout: float) -> bool:
        """Whether the broker has exactly this committed; CommitUnknown if it does not say."""
        try:
            found = self._consumer.committed(plain(positions), timeout)
        except KafkaException as failure:
            error = kafka_error(failure)
            if is_fatal(error):
                raise source_error(error) from failure
            if error.code() < 0:  # librdkafka's own: no answer
                raise CommitUnknown(describe(error)) from failure
            return False
        return all(
            each.error is None
            and (each.offset, text(each.metadata)) == positions[partition_of(each)]
            for each in found
        )

    def commit_later(self, positions: Mapping[Partition, tuple[int, str]], done: _Done) -> None:
        self._send(with_offsets(positions), done)

    def _send(self, offsets: list[TopicPartition], done: _Done | None) -> None:
        try:
            self._call(self._consumer.commit, offsets=offsets, asynchronous=True)
        except FatalSource:
            raise
        except SourceError as error:
            raise CommitFailed(str(error)) from error
        self._unanswered.append((coordinates(offsets), done))

    def _on_commit(self, error: KafkaError | None, offsets: list[TopicPartition]) -> None:
        # Answers may overtake each other (librdkafka puts a commit off while it looks for the
        # coordinator), so an answer is known by what it is about.
        answered = coordinates(offsets)
        for waiting in self._unanswered:
            if waiting[0] == answered:
                self._unanswered.remove(waiting)
                if waiting[1] is not None:
                    self._guard(waiting[1], commit_answer(error, offsets))
                return

    # --- callbacks ----------------------------------------------------------------------------

    def _on_assign(self, _: Consumer, offsets: list[TopicPartition]) -> None:
        if self._closing:
            # A rebalance that was under way. They are given up next, so nobody is told of them,
            # and nobody asks a broker that answers a leaving member no more.
            self._take_unread(offsets)
            return
        self._assigning = True
        self._guard(self._listener.on_assign, partitions_of(offsets))
        if self._assigning:
            self._assigning = False
            self._take_unread(offsets)
            self._keep(SourceError("on_assign returned without having assigned"))

    def _take_unread(self, offsets: list[TopicPartition]) -> None:
        """Own the partitions and read none of them.

        They must be owned: what the client does not have it cannot give up, and a rebalance that
        is not answered holds up its closing for ever.
        """
        take = self._consumer.incremental_assign if self._cooperative else self._consumer.assign
        self._guard(take, offsets)
        self._guard(self._consumer.pause, offsets)
        self._assigned.update(partitions_of(offsets))
        self._last_callback_at = time.monotonic()

    def _on_revoke(self, _: Consumer, offsets: list[TopicPartition]) -> None:
        self._give_up(self._listener.on_revoke, offsets)

    def _on_lost(self, _: Consumer, offsets: list[TopicPartition]) -> None:
        self._give_up(self._listener.on_lost, offsets)

    def _give_up(
        self, tell: Callable[[Sequence[Partition]], None], offsets: list[TopicPartition]
    ) -> None:
        partitions = partitions_of(offsets)
        self._guard(tell, partitions)
        if self._cooperative:
            self._guard(self._call, self._consumer.incremental_unassign, offsets)
        else:
            self._guard(self._call, self._consumer.unassign)
        self._last_callback_at = time.monotonic()
        self._assigned.difference_update(partitions)
        self._paused.difference_update(partitions)
        self._changed.update(partitions)
        for partition in partitions:
            self._starts.pop(partition, None)
            self._moved.pop(partition, None)

    def _on_message_error(self, raw: RawMessage, error: KafkaError) -> None:
        topic, number = raw.topic(), raw.partition()
        if is_fatal(error):
            self._die(error)
        elif error.code() == KafkaError._PARTITION_EOF:
            pass
        elif error.code() == KafkaError._AUTO_OFFSET_RESET:
            partition = Partition(str(topic), int(number or 0))
            if partition in self._assigned:
                self._guard(self._listener.on_out_of_range, partition, describe(error))
        else:
            said = describe(error)
            if topic is None or topic in said:  # of the group, or of a whole topic
                self._trouble(said)
            else:
                self._trouble(f"{topic}/{number}: {said}")

    def _on_client_error(self, error: KafkaError) -> None:
        if is_fatal(error):
            self._die(error)
        else:
            self._trouble(describe(error))

    def _trouble(self, description: str) -> None:
        self._guard(self._listener.on_trouble, description)

    def _die(self, error: KafkaError) -> None:
        self._fatal = FatalSource(describe(error))
        self._raised = self._fatal

    # --- errors -------------------------------------------------------------------------------

    def _guard(self, function: Callable[..., object], *args: object) -> None:
        """Call what must not raise into the binding; the first exception waits for poll."""
        try:
            function(*args)
        except BaseException as error:  # noqa: BLE001 - raised again by poll
            self._keep(error)

    def _keep(self, error: BaseException) -> None:
        if isinstance(error, FatalSource):
            self._fatal = error
        if self._raised is None:
            self._raised = error

    def _raise(self) -> None:
        raised, self._raised = self._raised, self._fatal
        if raised is not None:
            raise raised

    def _call(self, function: Callable[..., Any], *args: object, **options: object) -> Any:
        if self._fatal is not None:
            raise self._fatal
        try:
            return function(*args, **options)
        except KafkaException as error:
            raise source_error(kafka_error(error)) from error


def _is_cooperative(config: Mapping[str, object]) -> bool:
    if config.get("group.protocol") == "consumer":
        return True
    return str(config.get("partition.assignment.strategy", "")).strip() == "cooperative-sticky"
