"""Dead letters and retries: writes a record to a topic, and says so once the broker confirmed it.

Purpose: ports.Parking on confluent_kafka's Producer. Key, value and the record's own headers go
out as they came; behind them stands one set of headers that tells the story (core/letters), or
the mark of a retry.

Owner: the route that parks, on the loop. The producer is made at the first write and served by a
thread of its own, so that a confirmation arrives whatever the fetch thread waits for.

Invariants:
* done is called once per write, on the loop, never before park has returned.
* done(None) is called for an error-free delivery report of that very record that says where it
  lies, and for nothing else. What the broker took for a duplicate has no offset, and may be in no
  log: the first batch to a new topic, refused and sent again behind a later one, is taken for one.
* Every write is answered: within the deadline while the writer is open, at the end of close at
  the latest. A producer that died takes its own writes with it; the next write makes a new one.
* What is too large for the topic takes no neighbour with it: a broker refuses a batch as a whole,
  so a batch of several records is kept smaller than any sensible limit of a topic.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from sidecar.core.letters import Told, own_headers
from sidecar.core.retry_mark import RetryMark, marked
from sidecar.kafka.client_log import ClientLog
from sidecar.kafka.errors import describe, is_fatal, kafka_error
from sidecar.logs import WithFields
from sidecar.model import UNREADABLE_HEADERS, Header, Record
from sidecar.ports import Story

log = logging.getLogger(__name__)

TEXT_BYTES: Final = 1024  # of detail and answer each

_BATCH_BYTES: Final = 16_384
_POLL_SECONDS: Final = 0.1
_LOOK_SECONDS: Final = 1.0
_PURGE_SECONDS: Final = 0.2
_ENDED: Final = "not confirmed when the producer ended"

TAKEN_FOR_ANOTHER: Final = "the broker took it for a duplicate and may not have it"

_TOPIC_ERRORS: Final = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._UNKNOWN_TOPIC,
    }
)

_Done = Callable[[str | None], None]
_Tell = Callable[..., object]


def told_headers(record: Record, story: Story, group: str) -> list[Header]:
    """The record's own headers in their order, then what is told of it."""
    record = record.original
    told: dict[Told, str | int | bytes | None] = {
        Told.TOPIC: record.topic,
        Told.PARTITION: record.partition,
        Told.OFFSET: record.offset,
        Told.TIMESTAMP: record.timestamp_ms if record.timestamp_ms >= 0 else None,
        Told.GROUP: group,
        Told.REASON: story.reason,
        Told.DETAIL: story.detail or None,
        Told.STATUS: story.status,
        Told.ATTEMPTS: story.attempts,
        Told.FIRST_ATTEMPT: round(story.first_attempt_at * 1000),
        Told.LAST_ATTEMPT: round(story.last_attempt_at * 1000),
        Told.ANSWER: story.answer or None,
    }
    ours = [(name.value, _told(value)) for name, value in told.items() if value is not None]
    return [*own_headers(_own_headers(record)), *ours]


def _own_headers(record: Record) -> list[Header]:
    return [] if record.headers is UNREADABLE_HEADERS else record.headers or []


def _told(value: str | int | bytes) -> bytes:
    if isinstance(value, bytes):
        return value[:TEXT_BYTES]
    cut = str(value).encode("utf-8", "replace")[:TEXT_BYTES]
    return cut.decode("utf-8", "ignore").encode()  # no half character at the cut


class DeadLetterWriter:
    """See the module.

    config is librdkafka's, without callbacks; the writer adds what its invariants need. topic is
    that of dead letters, if there is one. tell runs a function on the loop. deadline_seconds is
    the longest a write stays unanswered; route is its name in the log.
    """

    def __init__(
        self,
        config: Mapping[str, object],
        topic: str | None,
        group: str,
        tell: _Tell,
        *,
        deadline_seconds: float = 10.0,
        close_seconds: float = 0.5,
        route: str = "",
    ) -> None:
        self._log: Final = WithFields(log, {"route": route})
        self._route: Final = route
        self.topic: Final = topic
        self._name: Final = topic or group
        self._config = config
        self._group = group
        self._tell = tell
        self._deadline_seconds = deadline_seconds
        self._close_seconds = close_seconds
        self._client: _Client | None = None
        self._retired: list[_Client] = []  # dead ones whose thread may still run
        self._closed = False

    def park(self, record: Record, story: Story, done: _Done) -> None:
        """See ports.Parking."""
        assert self.topic is not None, "parking without a dead-letter topic"
        self._write(self.topic, record, told_headers(record, story, self._group), done)

    def retry(self, record: Record, mark: RetryMark, topic: str, done: _Done) -> None:
        """See ports.Parking."""
        self._write(topic, record, marked(_own_headers(record.original), mark), done)

    def _write(self, topic: str, record: Record, headers: list[Header], done: _Done) -> None:
        if self._closed:
            self._tell(done, f"{topic}: the writer is closed")
            return
        try:
            self._current().write(topic, record, headers, done)
        except KafkaException as error:
            self._tell(done, f"{topic}: {describe(kafka_error(error))}")

    def renew(self, config: Mapping[str, object]) -> None:
        """Make the producer anew with the next write; what the old one holds, it still writes."""
        self._config = config
        if self._client is not None:
            self._client.stop(self._deadline_seconds)
            self._retire(self._client)
            self._client = None

    async def close(self) -> None:
        """Wait a bounded time for what is unconfirmed, then answer the rest with an error."""
        self._closed = True
        clients = [*self._retired, *([self._client] if self._client is not None else [])]
        self._retired, self._client = [], None
        for client in clients:
            client.stop(self._close_seconds)
        # Each thread bounds itself; a client that hangs in its destructor is left behind.
        patience = self._close_seconds + 2 * _PURGE_SECONDS
        await asyncio.gather(*(asyncio.to_thread(client.join, patience) for client in clients))

    def _current(self) -> _Client:
        client = self._client
        if client is not None and client.dead:
            self._log.warning("%s: the producer died and is made anew: %s", self._name, client.dead)
            self._retire(client)
            client = None
        if client is None:
            client = self._client = _Client(
                self._config, self._name, self._tell, self._deadline_seconds, self._route
            )
        return client

    def _retire(self, client: _Client) -> None:
        self._retired = [each for each in self._retired if each.running] + [client]


class _Client:
    """One producer, its thread, and the writes it has not answered.

    write and stop are called on the loop, join anywhere; all else runs on the thread. There the
    producer is made as well: where tokens have to be signed for it that takes a second.
    """

    def __init__(
        self,
        config: Mapping[str, object],
        name: str,
        tell: _Tell,
        deadline_seconds: float,
        route: str,
    ) -> None:
        self.dead = ""  # why it takes no further write
        self._config: Final = config
        self._tell = tell
        self._deadline_seconds = deadline_seconds
        self._flush_seconds = deadline_seconds
        self._log: Final = ClientLog(route)
        self._numbers = itertools.count()
        self._unanswered: dict[int, tuple[str, _Done]] = {}  # the topic, and who waits
        self._early: deque[Callable[[Producer], None]] = deque()  # waits for the producer
        self._end = _ENDED
        self._trouble = ""
        self._stopping = False
        self._refused: set[str] = set()  # topics
        self._producer: Producer | None = None
        # A daemon: a client that does not end must not hold the end of the process.
        self._thread = threading.Thread(target=self._run, name=f"park-{name}", daemon=True)
        self._thread.start()

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def write(self, topic: str, record: Record, headers: list[Header], done: _Done) -> None:
        number = next(self._numbers)
        self._unanswered[number] = (topic, done)
        self._early.append(partial(self._produce, number, topic, record, headers))
        if (producer := self._producer) is not None:
            self._write_early(producer)
        if self.dead and self._producer is None:  # it ended meanwhile, and may not have seen this
            self._answer(number, self._end)

    def stop(self, flush_seconds: float) -> None:
        """Let the thread end; it waits so long for what is unconfirmed."""
        self._flush_seconds = flush_seconds
        self._stopping = True

    def join(self, patience_seconds: float) -> None:
        """Wait for the thread; afterwards everything is answered."""
        self._thread.join(patience_seconds)
        self._answer_rest()

    # --- the thread ---------------------------------------------------------------------------

    def _run(self) -> None:
        producer: Producer | None = None
        try:
            producer = self._producer = self._open()
            self._write_early(producer)
            while not self._stopping and not self.dead:
                producer.poll(_POLL_SECONDS)
                if self._refused:
                    self._look_again(producer)
            producer.flush(self._flush_seconds)
            producer.purge()
            producer.flush(_PURGE_SECONDS)
        except KafkaException as error:  # the binding raises a fatal one from whatever polls
            self.dead = self._end = describe(kafka_error(error))
        finally:
            self.dead = self.dead or "its thread ended"
            self._producer = producer = None
            self._answer_rest()

    def _open(self) -> Producer:
        seconds = self._deadline_seconds
        config = {
            # What the source topic holds compressed may be far above the limit when it is not.
            "compression.type": "zstd",
            **self._config,
            "acks": "all",
            "enable.idempotence": True,
            "batch.size": _BATCH_BYTES,
            "message.timeout.ms": max(1, round(seconds * 1000)),
            # A topic that does not exist is told by its name, not by the deadline.
            "topic.metadata.propagation.max.ms": max(1, round(seconds * 500)),
            "error_cb": self._on_error,
        }
        return Producer(config, logger=self._log)

    def _write_early(self, producer: Producer) -> None:
        """On both threads: what is taken out here is written here."""
        with contextlib.suppress(IndexError):
            while True:
                self._early.popleft()(producer)

    def _produce(
        self, number: int, topic: str, record: Record, headers: list[Header], producer: Producer
    ) -> None:
        size = record.size

        def reported(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self._answer(number, self._refusal(topic, error, size))
            else:
                self._answer(number, None if message.offset() is not None else TAKEN_FOR_ANOTHER)

        try:
            producer.produce(
                topic, record.value, record.key, on_delivery=reported, headers=[*headers]
            )
        except BufferError:
            self._answer(number, "too many writes are waiting for the broker")
        except KafkaException as error:
            self._answer(number, self._refusal(topic, kafka_error(error), size))

    def _look_again(self, producer: Producer) -> None:
        """A topic once refused stays so in the client until it asks the broker again."""
        with contextlib.suppress(KafkaException):
            producer.list_topics(self._refused.pop(), _LOOK_SECONDS)

    def _on_error(self, error: KafkaError) -> None:
        if is_fatal(error):
            self.dead = describe(error)
        else:
            self._trouble = describe(error)

    def _answer_rest(self) -> None:
        for number in list(self._unanswered):
            self._answer(number, self._end)

    def _answer(self, number: int, error: str | None) -> None:
        topic, done = self._unanswered.pop(number, ("", None))
        if done is not None:
            self._tell(done, None if error is None else f"{topic}: {error}")

    def _refusal(self, topic: str, error: KafkaError, size: int) -> str:
        """One line: what went wrong with the write, and where the operator can look."""
        if is_fatal(error):
            self.dead = describe(error)
        if error.code() in _TOPIC_ERRORS:
            self._refused.add(topic)
        match error.code():
            case KafkaError.MSG_SIZE_TOO_LARGE:
                return (
                    f"the record ({size} bytes, and the headers that tell its story) is too"
                    " large: raise max.message.bytes of the topic"
                )
            case KafkaError._MSG_TIMED_OUT:
                trouble = f" ({self._trouble})" if self._trouble else ""
                return f"not confirmed within {self._deadline_seconds:g} s{trouble}"
        return describe(error)
