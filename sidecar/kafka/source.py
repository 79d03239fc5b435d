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
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka import Message as RawMessage

from sidecar.errors import FatalSource, SourceError
from sidecar.kafka.client_log import ClientLog
from sidecar.kafka.commit_requests import CommitRequests, Done
from sidecar.kafka.end_offsets import EndOffsets
from sidecar.kafka.errors import describe, is_fatal, kafka_error, refused_config, source_error
from sidecar.kafka.messages import MessageError, read_messages
from sidecar.kafka.offsets import at, partition_of, partitions_of, plain, text
from sidecar.kafka.topics import Topics
from sidecar.kafka.trap import Trap
from sidecar.model import Partition
from sidecar.ports import Committed, Message, SourceListener

GIVE_UP_SECONDS: Final = 3.0
QUIET_SECONDS: Final = 0.15


class KafkaSource:
    """See ports.RecordSource. config is librdkafka's, final: nothing is added but callbacks.

    anew: the config for a client that is made anew.
    topic_ids: whether to ask for them; a broker that does not know the request costs a timeout.
    route is its name in the log.
    """

    def __init__(
        self,
        config: Mapping[str, object],
        topics: Sequence[str] | None,
        pattern: str | None,
        *,
        topic_ids: bool = True,
        route: str = "",
        anew: Callable[[], Mapping[str, object]] | None = None,
    ) -> None:
        self._config = dict(config)
        self._anew: Final = anew or self._config.copy
        self._route: Final = route
        self._with_ids: Final = topic_ids
        self._topics = Topics(config, with_ids=topic_ids)
        self._end_offsets = EndOffsets(config)
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
        self._errors: list[MessageError] = []  # behind the last messages
        self._assigning = False
        self._closing = False
        self._last_callback_at = 0.0
        self._trap: Final = Trap()
        self._commits: Final = CommitRequests(self._trap)

    # --- membership ---------------------------------------------------------------------------

    def subscribe(self, listener: SourceListener) -> None:
        self._listener = listener
        self._open()
        try:
            self._join()
        except KafkaException as error:
            raise refused_config(error) from error

    def _open(self) -> None:
        callbacks = {"error_cb": self._on_client_error, "on_commit": self._commits.answered}
        try:
            self._consumer = Consumer({**self._config, **callbacks}, logger=ClientLog(self._route))
        except KafkaException as error:
            raise refused_config(error) from error

    def _join(self) -> None:
        self._consumer.subscribe(
            self._subscription,
            on_assign=self._on_assign,
            on_revoke=self._on_revoke,
            on_lost=self._on_lost,
        )

    def leave(self) -> None:
        # Unlike closing, this makes a static member leave, too (with the consumer protocol when
        # its session ends: the coordinator keeps its place for so long).
        self._trap.call(self._consumer.unsubscribe)

    def rejoin(self) -> None:
        self._trap.call(self._join)

    def renew(self) -> None:
        self._retire()
        if self._trap.fatal is not None:
            raise self._trap.fatal
        if self._assigned:
            raise FatalSource("the client cannot be made anew: it does not let go of the group")
        self._config = dict(self._anew())
        self._topics = Topics(self._config, with_ids=self._with_ids)
        self._end_offsets = EndOffsets(self._config)
        self._paused.clear()
        self._starts.clear()
        self._errors.clear()
        self._closing = False
        self._open()

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
        self._retire()
        if not isinstance(self._trap.caught, FatalSource):
            self._trap.release()

    def _retire(self) -> None:
        self._closing = True
        try:
            self._give_all_up()
            if self._assigned:
                self._trouble("partitions are still held; the client is left as it is")
            else:
                self._consumer.close()
        except KafkaException as error:
            self._trouble(describe(kafka_error(error)))
        self._commits.abandon()

    def _give_all_up(self) -> None:
        """Unsubscribe, and serve what follows from it until it has been quiet for a moment.

        A rebalance that is under way may still bring partitions to a member that has none.
        """
        self._consumer.unsubscribe()
        deadline = time.monotonic() + GIVE_UP_SECONDS
        self._last_callback_at = time.monotonic()
        while self._trap.fatal is None and (now := time.monotonic()) < deadline:
            if not self._assigned and now - self._last_callback_at >= QUIET_SECONDS:
                return
            self._consumer.poll(0.02)  # for its callbacks; a message is for the next owner

    # --- messages -----------------------------------------------------------------------------

    def poll(self, limit: int, timeout: float) -> list[Message]:
        self._report_errors()
        if self._trap.caught is not None:
            self._trap.release()
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
            self._trap.keep(source_error(kafka_error(failure)))
        messages = read_messages(taken, self._partitions, self._errors)
        if self._changed and messages:
            messages = self._take_back(messages, self._changed)
        if not messages:
            self._report_errors()
        if self._trap.caught is not None:
            if self._trap.fatal is None:
                self._take_back(messages, {message.partition for message in messages})
            self._trap.release()
        return messages

    def pause(self, partitions: Sequence[Partition]) -> None:
        # librdkafka drops what it has queued for a paused partition before it returns.
        self._trap.call(self._consumer.pause, plain(partitions))
        self._paused.update(partitions)
        self._changed.update(partitions)

    def resume(self, partitions: Sequence[Partition]) -> None:
        self._trap.call(self._consumer.resume, plain(partitions))
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

    def _take_back(self, messages: list[Message], changed: set[Partition]) -> list[Message]:
        """The messages without those of the changed partitions, which are fetched again."""
        lowest: dict[Partition, int] = {}
        for message in messages:
            if message.partition in changed:
                lowest.setdefault(message.partition, message.offset)
        for partition in lowest.keys() & self._assigned:
            start = self._moved.get(partition, lowest[partition])
            self._trap.guard(self.seek if start is not None else self._restart, partition, start)
        return [each for each in messages if each.partition not in changed]

    def _restart(self, partition: Partition, offset: int | None) -> None:
        """Give one partition up and take it again elsewhere, without the group's knowing."""
        if self._cooperative:
            again = {partition: offset}
            self._trap.call(self._consumer.incremental_unassign, plain(again))
            take = self._consumer.incremental_assign
        else:
            # The eager protocol knows only whole assignments: the others go on where they are.
            positions = self.positions(list(self._assigned))
            again = {each: positions.get(each) for each in self._assigned} | {partition: offset}
            take = self._consumer.assign
        self._trap.call(take, [at(*each) for each in again.items()])
        self._trap.call(self._consumer.pause, plain(again.keys() & self._paused))
        for each, where in again.items():
            self._move(each, where)

    # --- what the broker knows ----------------------------------------------------------------

    def positions(self, partitions: Sequence[Partition]) -> dict[Partition, int]:
        """librdkafka's position moves over a transaction marker when poll comes to it."""
        found: dict[Partition, int] = {}
        for each in self._trap.call(self._consumer.position, plain(partitions)):
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
        for each in self._trap.call(self._consumer.committed, plain(partitions), timeout):
            if each.error is not None:
                raise source_error(each.error)
            offset = each.offset if each.offset >= 0 else None
            found[partition_of(each)] = Committed(offset, text(each.metadata))
        return found

    def watermarks(self, partition: Partition, timeout: float) -> tuple[int, int]:
        bounds = self._trap.call(
            self._consumer.get_watermark_offsets, TopicPartition(*partition), timeout=timeout
        )
        if bounds is None:
            raise SourceError(f"{partition}: no answer about its bounds within {timeout:g} s")
        return bounds[0], bounds[1]

    def ends(self, partitions: Sequence[Partition]) -> dict[Partition, int]:
        known = self._end_offsets.over(self._fetched_ends(partitions))
        return {each: known[each] for each in partitions if each in known}

    def ask_ends(self, partitions: Sequence[Partition]) -> None:
        self._end_offsets.ask(partitions, self._fetched_ends(partitions))

    def _fetched_ends(self, partitions: Sequence[Partition]) -> dict[Partition, int]:
        found: dict[Partition, int] = {}
        for partition in partitions:
            bounds = self._trap.call(
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
        if self._closing and positions:
            self._commits.commit_in_closing(self._consumer, positions)
        elif positions:
            self._commits.commit(self._consumer, positions, timeout)

    def commit_later(self, positions: Mapping[Partition, tuple[int, str]], done: Done) -> None:
        self._commits.commit_later(self._consumer, positions, done)

    def commit_pending(self) -> bool:
        return self._commits.pending

    # --- callbacks ----------------------------------------------------------------------------

    def _on_assign(self, _: Consumer, offsets: list[TopicPartition]) -> None:
        if self._closing:
            # A rebalance that was under way. They are given up next, so nobody is told of them,
            # and nobody asks a broker that answers a leaving member no more.
            self._take_unread(offsets)
            return
        self._assigning = True
        self._trap.guard(self._listener.on_assign, partitions_of(offsets))
        if self._assigning:
            self._assigning = False
            self._take_unread(offsets)
            self._trap.keep(SourceError("on_assign returned without having assigned"))

    def _take_unread(self, offsets: list[TopicPartition]) -> None:
        """Own the partitions and read none of them.

        They must be owned: what the client does not have it cannot give up, and a rebalance that
        is not answered holds up its closing for ever.
        """
        take = self._consumer.incremental_assign if self._cooperative else self._consumer.assign
        self._trap.guard(take, offsets)
        self._trap.guard(self._consumer.pause, offsets)
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
        self._trap.guard(tell, partitions)
        # librdkafka keeps a pause beyond the ownership: should the partition return, nobody would
        # know of it and resume it. It waits for the answer, so nothing overtakes it.
        self._trap.guard(self._trap.call, self._consumer.resume, offsets)
        if self._cooperative:
            self._trap.guard(self._trap.call, self._consumer.incremental_unassign, offsets)
        else:
            self._trap.guard(self._trap.call, self._consumer.unassign)
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
            self._trap.die(error)
        elif error.code() == KafkaError._PARTITION_EOF:
            pass
        elif error.code() == KafkaError._AUTO_OFFSET_RESET:
            partition = Partition(str(topic), int(number or 0))
            if partition in self._assigned:
                self._trap.guard(self._listener.on_out_of_range, partition, describe(error))
        else:
            said = describe(error)
            if topic is None or topic in said:  # of the group, or of a whole topic
                self._trouble(said)
            else:
                self._trouble(f"{topic}/{number}: {said}")

    def _on_client_error(self, error: KafkaError) -> None:
        if is_fatal(error):
            self._trap.die(error)
        else:
            self._trouble(describe(error))

    def _trouble(self, description: str) -> None:
        self._trap.guard(self._listener.on_trouble, description)


def _is_cooperative(config: Mapping[str, object]) -> bool:
    if config.get("group.protocol") == "consumer":
        return True
    return str(config.get("partition.assignment.strategy", "")).strip() == "cooperative-sticky"
