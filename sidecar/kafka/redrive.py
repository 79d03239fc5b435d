"""Redrive: sends dead letters back, each once, however often it is interrupted.

Purpose: letters that are meant go to the group's retry topic without a delay, as the record they
were, or on demand to their original topic, as a new one. Blocking: for a thread, or the command
line. The letters themselves stay where they are.

Invariants:
* A letter and the progress that says so are one transaction: neither is there without the other.
* The progress is read after the transactional id was taken, so whoever had it before can add
  nothing to it: of two redrives at once the later one goes on, the earlier one ends (Overtaken).
* What the progress has no room for is not sent.
* Where there is no progress, what is older than brokers remember one may have been sent: it is left
  unless it is asked for.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from threading import Event
from time import monotonic, time
from typing import Any, Final, NamedTuple

from confluent_kafka import (
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
)

from sidecar.core.letters import REDRIVEN, Letter, Selection
from sidecar.core.redrive_progress import NoRoom, RedriveProgress
from sidecar.core.retry_mark import marked
from sidecar.errors import ConfigError, Problem, SidecarError, SourceError
from sidecar.kafka.client_config import producer_config
from sidecar.kafka.client_log import ClientLog
from sidecar.kafka.dead_letters import TAKEN_FOR_ANOTHER
from sidecar.kafka.errors import describe, is_fatal, kafka_error
from sidecar.kafka.letterbox import SECONDS, Letterbox
from sidecar.kafka.retry_topics import new_topic
from sidecar.model import Header, RetryTopic

log = logging.getLogger(__name__)

_MOST_IN_ONE: Final = 500  # letters of a transaction
_MOST_BYTES: Final = 8 * 2**20
_BATCH_BYTES: Final = 16_384
_TRANSACTIONS_A_SECOND: Final = 4  # at a limited rate
_TRIES: Final = 4
_BY_KEY: Final = -1  # in place of a partition
_NAMED: Final = 20

_OVERTAKEN: Final = frozenset(
    {
        KafkaError._FENCED,
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
    }
)


class Overtaken(SidecarError):
    """Another redrive of the same letters has begun."""


@dataclass
class Redriven:
    """What a redrive has done, or would do.

    to: letters by topic. refused: so many that no sidecar wrote, of which the first are named.
    too_old: so many were left because nobody knows whether they were sent before.
    interrupted: it was stopped before it had seen everything.
    """

    to: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    refused: int = 0
    refused_first: list[str] = field(default_factory=list)
    too_old: int = 0
    interrupted: bool = False

    @property
    def letters(self) -> int:
        return self.to.total()


class Redrive:
    """One pass over the letters there are when it begins.

    rate: letters a second. limit: so many at most. old: also what may have been sent so long ago
    that the brokers have forgotten it. progress is called after every transaction, with what is
    done so far. Set stop, from any thread, to end it after the transaction that runs.
    """

    def __init__(
        self,
        box: Letterbox,
        selection: Selection,
        *,
        to_origin: bool = False,
        rate: float | None = None,
        limit: int | None = None,
        old: bool = False,
        progress: Callable[[Redriven], object] | None = None,
        stop: Event | None = None,
    ) -> None:
        topics = box.settings.retry_topics(box.route)
        if not topics and not to_origin:
            raise ConfigError(
                [
                    Problem(
                        "",
                        f"route {box.route.name} is at_most_once and reads no retry topic: letters"
                        " can only go back to their original topic (--to-origin)",
                    )
                ]
            )
        self.retry_topic: Final = None if to_origin else topics[0].name
        self._box = box
        self._selection = selection
        self._rate = rate
        self._limit = limit
        self._old = old
        self._progress = progress or (lambda _: None)
        self._stop = stop or Event()
        self._retry_partitions = 0
        self._done = Redriven()
        self._taken = 0
        self._due = 0.0

    def plan(self) -> Redriven:
        """What run would do now. Changes nothing."""
        plan = Redriven()
        self._taken = 0
        for number in self._box.partitions():
            for letter in self._meant(number, self._box.progress(number), plan):
                self._count(letter, plan)
        plan.interrupted = self._stop.is_set()
        return plan

    def retry_topic_exists(self) -> bool:
        return self.retry_topic is None or self._partitions_of(self.retry_topic) > 0

    def run(self) -> Redriven:
        """Send what is meant. Raises SidecarError; what was sent until then stays sent."""
        done = self._done
        self._taken = 0
        numbers = self._box.partitions()
        if self.retry_topic is not None:
            self._retry_partitions = self._provide(self.retry_topic)
        transactions = _Transactions(self._box)
        try:
            for number in numbers:
                progress = self._box.progress(number, settled=True)
                size = 0
                chunk: list[Letter] = []
                for letter in self._meant(number, progress, done):
                    chunk.append(letter)
                    size += letter.size
                    if len(chunk) >= self._chunk or size >= _MOST_BYTES:
                        self._send(transactions, progress, chunk)
                        chunk, size = [], 0
                if chunk:
                    self._send(transactions, progress, chunk)
        finally:
            transactions.close()
        done.interrupted = self._stop.is_set()
        return done

    @property
    def _chunk(self) -> int:
        if self._rate is None:
            return _MOST_IN_ONE
        return min(_MOST_IN_ONE, max(1, round(self._rate / _TRANSACTIONS_A_SECOND)))

    def _meant(self, number: int, progress: RedriveProgress, done: Redriven) -> Iterator[Letter]:
        """The letters of a partition that are to be sent; progress learns which are left."""
        low, end = self._box.bounds(number)
        start = max(low, progress.start)
        forgotten_ms = 0.0
        if not progress.known and not self._old and start < end:
            forgotten_ms = time() * 1000 - self._box.remembered_ms()
        for letter in self._box.read(number, start, end, progress, self._stop):
            if letter.redriven:
                continue
            if not self._selection.takes(letter) or not self._box.owns(letter):
                progress.leave(letter.offset)
            elif letter.origin is None:
                progress.leave(letter.offset)
                done.refused += 1
                if len(done.refused_first) < _NAMED:
                    done.refused_first.append(str(letter))
            elif letter.parked_ms < forgotten_ms:
                progress.leave(letter.offset)
                done.too_old += 1
            elif self._limit is not None and self._taken >= self._limit:
                return
            else:
                self._taken += 1
                yield letter

    def _count(self, letter: Letter, done: Redriven) -> None:
        done.to[self._topic_of(letter)] += 1
        done.reasons[letter.reason] += 1

    def _topic_of(self, letter: Letter) -> str:
        if self.retry_topic is not None:
            return self.retry_topic
        assert letter.origin is not None
        return letter.origin.topic

    def _send(
        self, transactions: _Transactions, progress: RedriveProgress, chunk: list[Letter]
    ) -> None:
        if self._rate is not None:
            now = monotonic()
            self._stop.wait(max(0.0, self._due - now))
            self._due = max(self._due, now) + len(chunk) / self._rate
        if self._stop.is_set():
            return
        for letter in chunk:
            progress.send(letter.offset)
        try:
            position = progress.position()
        except NoRoom as full:
            raise SidecarError(
                f"stopped before {chunk[0]}, with {self._done.letters} redriven: {full.left}"
                " letters before it are left by the filter, more than the progress can"
                " remember. Redrive the older ones first: without a filter, or with --until"
            ) from None
        transactions.send(
            [self._write(each) for each in chunk],
            TopicPartition(chunk[0].topic, chunk[0].partition, *position),
        )
        for letter in chunk:
            self._count(letter, self._done)
        self._progress(self._done)

    def _write(self, letter: Letter) -> _Write:
        topic = self._topic_of(letter)
        if self.retry_topic is not None:
            # What shared a partition keeps its order, null keys included.
            partition = letter.partition % self._retry_partitions
            return _Write(letter, topic, partition, marked(letter.headers, letter.mark()))
        assert letter.origin is not None
        own = [each for each in letter.headers if each[0] != REDRIVEN]
        identity = f"{letter.origin}/{letter.origin.timestamp_ms}".encode()
        return _Write(letter, topic, _BY_KEY, [*own, (REDRIVEN, identity)])

    # --- the retry topic ----------------------------------------------------------------------

    def _provide(self, topic: str) -> int:
        """The number of the topic's partitions; it is created if it is missing and allowed."""
        found = self._partitions_of(topic)
        if found:
            return found
        if not self._box.route.retry.create_topics:
            raise SidecarError(
                f"retry topic {topic} does not exist: create it, or set retry.create_topics"
            )
        created = self._box.admin.create_topics([new_topic(RetryTopic(topic, 0.0))])
        try:
            created[topic].result()
        except KafkaException as error:
            if kafka_error(error).code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise self._box.failure(error, f"retry topic {topic}") from error
        log.info("made the retry topics %s", topic)
        deadline = monotonic() + SECONDS
        while not (found := self._partitions_of(topic)):
            if monotonic() > deadline:
                raise SourceError(f"retry topic {topic} was created and cannot be seen")
            self._stop.wait(0.1)
        return found

    def _partitions_of(self, topic: str) -> int:
        """0 where there is no such topic. Asking does not create it."""
        asked = self._box.admin.describe_topics(TopicCollection([topic]), request_timeout=SECONDS)
        try:
            return len(asked[topic].result().partitions)
        except KafkaException as error:
            if kafka_error(error).code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return 0
            raise self._box.failure(error, f"retry topic {topic}") from error


class _Write(NamedTuple):
    letter: Letter
    topic: str
    partition: int
    headers: list[Header]


class _Transactions:
    """The producer of one redrive. Having made one, whoever had its id before is fenced."""

    def __init__(self, box: Letterbox) -> None:
        self._box = box
        self._id: Final = f"{box.progress_group}.{box.topic}"
        self._refused = ""
        config: dict[str, Any] = {
            **producer_config(box.settings, box.route),
            "compression.type": "zstd",
            # A broker refuses a batch as a whole: what is too large is to be named alone.
            "batch.size": _BATCH_BYTES,
            "transactional.id": self._id,
            # A killed redrive holds up who reads the topic for no longer.
            "transaction.timeout.ms": 30_000,
            "error_cb": box.trouble.append,
        }
        config.pop("topic.blacklist", None)
        self._producer: Final = Producer(config, logger=ClientLog())
        self._patiently(lambda: self._producer.init_transactions(SECONDS))

    def send(self, writes: list[_Write], progress: TopicPartition) -> None:
        """Write the records and the progress, both or neither."""
        self._refused = ""
        try:
            self._producer.begin_transaction()
            for write in writes:
                self._producer.produce(
                    write.topic,
                    write.letter.value,
                    write.letter.key,
                    write.partition,
                    on_delivery=self._reporter(write),
                    headers=[*write.headers],
                )
            group = self._box.consumer.consumer_group_metadata()
            self._patiently(
                lambda: self._producer.send_offsets_to_transaction([progress], group, SECONDS)
            )
            self._producer.flush(SECONDS)
            if self._refused:
                self._abort()
                raise SourceError(self._refused)
            self._patiently(lambda: self._producer.commit_transaction(SECONDS))
        except KafkaException as error:
            raise self._failure(kafka_error(error)) from error

    def close(self) -> None:
        """Nothing is open: a transaction ends in send, or its producer is dead."""
        self._producer.purge()

    def _patiently(self, call: Callable[[], object]) -> None:
        """The same call again while the broker asks for it: each may be repeated as it is."""
        for attempt in range(_TRIES):
            try:
                call()
            except KafkaException as error:
                if attempt + 1 < _TRIES and kafka_error(error).retriable():
                    continue
                raise self._failure(kafka_error(error)) from error
            return

    def _reporter(self, write: _Write) -> Callable[[KafkaError | None, Message], None]:
        def reported(error: KafkaError | None, message: Message) -> None:
            if error is None:
                if message.offset() is None:
                    self._refused = f"{write.letter} to {write.topic}: {TAKEN_FOR_ANOTHER}"
            elif not self._refused and error.code() != KafkaError._PURGE_QUEUE:
                self._refused = f"{write.letter} to {write.topic}: {describe(error)}"

        return reported

    def _abort(self) -> None:
        try:
            self._producer.abort_transaction(SECONDS)
        except KafkaException as error:  # the broker aborts it when its time is over
            log.warning("not aborted: %s", describe(kafka_error(error)))

    def _failure(self, error: KafkaError) -> SidecarError:
        if error.code() in _OVERTAKEN:
            return Overtaken(
                f"another redrive of {self._box.topic} by group {self._box.group} has begun and"
                " goes on with what is left; this one ends"
            )
        if error.txn_requires_abort() and not is_fatal(error):
            self._abort()
        if error.code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            return SourceError(f"allow the user Write and Describe on transactional id {self._id}")
        return SourceError(self._refused or f"the transaction was not finished: {describe(error)}")
