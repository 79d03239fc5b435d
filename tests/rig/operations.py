"""What tests ask of a broker, whoever runs it: topics, offsets, groups, records in and out.

Every call waits for the broker's answer, at most `_TIMEOUT` seconds.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple, TypeVar

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic, OffsetSpec

from tests.rig.waiting import eventually

_TIMEOUT = 30.0
_ISOLATION = {
    "read_committed": IsolationLevel.READ_COMMITTED,
    "read_uncommitted": IsolationLevel.READ_UNCOMMITTED,
}

T = TypeVar("T")

# A leader or coordinator that was just elected, or is not known yet where it was asked.
_MOVING = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError._NOENT,  # "No leaders found"
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
)

Headers = Sequence[tuple[str, bytes | None]]

# Topic settings with which the cleaner runs as soon as a segment is closed, which the first
# record written a tenth of a second later does.
COMPACTED: Mapping[str, str] = {
    "cleanup.policy": "compact",
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0.0",
    "min.compaction.lag.ms": "0",
    "delete.retention.ms": "0",
}
FILLER_KEY = b"filler of the rig"


class Commit(NamedTuple):
    offset: int
    metadata: str


class KafkaOperations:
    """A broker by its address. Clients are made at first use and shared by the calls."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers
        self._admin: AdminClient | None = None
        self._observers: dict[str, Consumer] = {}
        self._producer: Producer | None = None

    @property
    def admin(self) -> AdminClient:
        if self._admin is None:
            self._admin = AdminClient(self.client_config())
        return self._admin

    @property
    def producer(self) -> Producer:
        """Idempotent, because tests tell records by the order they were produced in; no lingering.

        Without it `max.in.flight=1` is not enough: of 150 values produced at once to a new topic,
        the second one was seen at offset 107. Without `max.in.flight=1` it is not enough either:
        the first batch to a new topic, refused once and sent again behind a later one, is told to
        be a duplicate, and is in no log (2 of 15 rounds of 200 values; librdkafka 2.16).
        """
        if self._producer is None:
            self._producer = Producer(
                self.client_config(
                    **{"enable.idempotence": True, "linger.ms": 0, "max.in.flight": 1}
                )
            )
        return self._producer

    def client_config(self, **more: Any) -> dict[str, Any]:
        """librdkafka settings of a client of this broker, quiet and quick to come back."""
        return {
            "bootstrap.servers": self.bootstrap_servers,
            "log_level": 0,
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 500,
            **more,
        }

    def close_clients(self) -> None:
        if self._producer is not None:
            self._producer.purge()
            self._producer.flush(1.0)
        for observer in self._observers.values():
            observer.close()
        self._observers.clear()
        self._producer = None
        self._admin = None

    # --- topics -------------------------------------------------------------------------------

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication: int | None = None,
        config: Mapping[str, str] | None = None,
    ) -> None:
        """Create it and wait until every partition has a leader. replication None: the default."""
        topic = NewTopic(
            name,
            num_partitions=partitions,
            replication_factor=-1 if replication is None else replication,
            config=dict(config or {}),
        )

        def created() -> bool:
            try:
                _result(self.admin.create_topics([topic])[name])
            except KafkaException as error:
                # A broker that was just started answers before the controller counts it in.
                if error.args[0].code() != KafkaError.INVALID_REPLICATION_FACTOR:
                    raise
                return False
            return True

        eventually(created, f"{name} is created", within=_TIMEOUT)
        eventually(
            lambda: len(self._leaders(name)) == partitions, f"{name} has leaders", within=_TIMEOUT
        )

    def delete_topic(self, name: str) -> None:
        """Delete it and wait until it is gone. A topic that does not exist is fine."""
        try:
            _result(self.admin.delete_topics([name])[name])
        except KafkaException as error:
            if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise
        eventually(lambda: not self._leaders(name), f"{name} is gone", within=_TIMEOUT)

    def leader(self, topic: str, partition: int = 0) -> int:
        """The id of the node that leads the partition; waits until there is one."""
        leaders = eventually(
            lambda: (
                {partition: -1, **self._leaders(topic)}[partition] >= 0 and self._leaders(topic)
            ),
            f"{topic}/{partition} has a leader",
            within=_TIMEOUT,
        )
        assert leaders
        return leaders[partition]

    def _numbers(self, topic: str) -> list[int]:
        """Its partitions, whether they have a leader or not; none if there is no such topic."""

        def ask() -> list[int]:
            told = self.admin.list_topics(topic, timeout=_TIMEOUT).topics[topic]
            if told.error is not None and told.error.code() in _MOVING:
                raise KafkaException(told.error)
            return list(told.partitions)

        return self._answered(ask, f"the partitions of {topic}")

    def _leaders(self, topic: str) -> dict[int, int]:
        try:
            metadata = self.admin.list_topics(topic, timeout=_TIMEOUT).topics[topic]
        except KafkaException:
            return {}
        return {
            number: partition.leader
            for number, partition in metadata.partitions.items()
            if partition.leader >= 0
        }

    def compact(self, topic: str, partition: int = 0) -> None:
        """Wait until of each key in a COMPACTED topic only the last record is left.

        Writes records with FILLER_KEY behind them, for the segment in use is never cleaned.
        """

        def cleaned() -> bool:
            self.produce(topic, [b""], key=FILLER_KEY, partition=partition)
            keys = [
                message.key()
                for message in self.read(topic)
                if message.partition() == partition and message.key() != FILLER_KEY
            ]
            return len(keys) == len(set(keys))

        eventually(cleaned, f"{topic}/{partition} is compacted", within=_TIMEOUT, every=0.15)

    def delete_records(self, topic: str, before: Mapping[int, int]) -> None:
        """Move the beginning of partitions up to these offsets."""
        wanted = [TopicPartition(topic, number, offset) for number, offset in before.items()]
        for future in self.admin.delete_records(wanted).values():
            _result(future)

    # --- offsets ------------------------------------------------------------------------------

    def begin_offsets(self, topic: str) -> dict[int, int]:
        return self._list_offsets(topic, OffsetSpec.earliest())

    def end_offsets(self, topic: str) -> dict[int, int]:
        """The offset after the last of each partition, transaction markers included."""
        return self._list_offsets(topic, OffsetSpec.latest())

    def _list_offsets(
        self,
        topic: str,
        spec: OffsetSpec,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> dict[int, int]:
        wanted = {TopicPartition(topic, number): spec for number in self._numbers(topic)}

        def ask() -> dict[int, int]:
            answers = self.admin.list_offsets(
                wanted, isolation_level=isolation, request_timeout=_TIMEOUT
            )
            return {each.partition: _result(it).offset for each, it in answers.items()}

        return self._answered(ask, f"the offsets of {topic}") if wanted else {}

    def commits(self, group: str, topic: str) -> dict[int, Commit]:
        """What the group has committed; partitions without a commit are absent."""
        wanted = [TopicPartition(topic, number) for number in self._numbers(topic)]
        found = self._answered(
            lambda: self._observer(group).committed(wanted, _TIMEOUT), f"the commits of {group}"
        )
        return {
            # The binding hands the metadata's terminating NUL through.
            each.partition: Commit(each.offset, (each.metadata or "").rstrip("\0"))
            for each in found
            if each.offset >= 0
        }

    def _answered(self, ask: Callable[[], T], what: str) -> T:
        """What the brokers answer, who are asked again while a leader or a coordinator moves."""

        def answer() -> list[T]:
            try:
                return [ask()]
            except KafkaException as error:
                code = error.args[0].code()
                if code == KafkaError.FENCED_LEADER_EPOCH:  # the client would ask the same again
                    self._admin = None
                elif code not in _MOVING and not error.args[0].retriable():
                    raise
                return []

        return eventually(answer, what)[0]

    def _observer(self, group: str) -> Consumer:
        """A client that asks about a group and never joins it.

        Not the admin client: asked for offsets while the coordinator loads, it took this process
        down with it (confluent-kafka 2.16.1, seen once).
        """
        if group not in self._observers:
            self._observers[group] = Consumer(
                self.client_config(**{"group.id": group, "enable.auto.commit": False})
            )
        return self._observers[group]

    def committed(self, group: str, topic: str) -> dict[int, int]:
        return {number: commit.offset for number, commit in self.commits(group, topic).items()}

    def lag(self, group: str, topic: str) -> dict[int, int]:
        """End offset minus committed offset (without one: minus the beginning), per partition."""
        reached = {**self.begin_offsets(topic), **self.committed(group, topic)}
        return {number: end - reached[number] for number, end in self.end_offsets(topic).items()}

    # --- records ------------------------------------------------------------------------------

    def produce(
        self,
        topic: str,
        values: Iterable[bytes | None],
        *,
        key: bytes | None = None,
        headers: Headers = (),
        partition: int = -1,
    ) -> list[Message]:
        """Write the values, wait for the broker, return what it confirmed, in order."""
        confirmed: list[Message] = []
        errors: list[KafkaError] = []

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                errors.append(error)
            elif message.offset() is None:
                errors.append(KafkaError(KafkaError.DUPLICATE_SEQUENCE_NUMBER))
            else:
                confirmed.append(message)

        for value in values:
            self.producer.produce(
                topic,
                value,
                key,
                partition=partition,
                headers=list(headers),
                on_delivery=on_delivery,
            )
            self.producer.poll(0)
        left = self.producer.flush(_TIMEOUT)
        if errors or left:
            raise KafkaException(errors[0] if errors else KafkaError(KafkaError._TIMED_OUT))
        return confirmed

    def produce_transaction(
        self, topic: str, values: Iterable[bytes], *, partition: int = 0, abort: bool = False
    ) -> None:
        """Write the values in one transaction, and wait until its marker is in the log."""
        producer = Producer(self.client_config(**{"transactional.id": uuid.uuid4().hex}))
        producer.init_transactions(_TIMEOUT)
        producer.begin_transaction()
        before = self.end_offsets(topic)[partition]
        count = 0
        for value in values:
            producer.produce(topic, value, partition=partition)
            count += 1
        producer.flush(_TIMEOUT)
        if abort:
            producer.abort_transaction(_TIMEOUT)
        else:
            producer.commit_transaction(_TIMEOUT)
        # The broker answers first and writes the marker then.
        eventually(
            lambda: self.end_offsets(topic)[partition] == before + count + 1, "the marker is there"
        )

    def add_partitions(self, topic: str, total: int) -> None:
        """Let the topic have so many partitions, and wait until each has a leader."""
        _result(self.admin.create_partitions([NewPartitions(topic, total)])[topic])
        eventually(lambda: len(self._leaders(topic)) == total, f"{topic} has more partitions")

    def read(self, topic: str, *, isolation: str = "read_committed") -> list[Message]:
        """Every record that is in the topic now, from its beginning, without a group.

        The client may tell of an end before the one that the broker has named.
        """
        ends = self._list_offsets(topic, OffsetSpec.latest(), _ISOLATION[isolation])
        ends = {number: end for number, end in ends.items() if end > 0}
        consumer = Consumer(
            self.client_config(
                **{
                    "group.id": f"reader-{uuid.uuid4().hex}",
                    "enable.auto.commit": False,
                    "auto.offset.reset": "earliest",
                    "enable.partition.eof": True,
                    "fetch.wait.max.ms": 10,
                    "isolation.level": isolation,
                }
            )
        )
        records: list[Message] = []
        consumer.assign([TopicPartition(topic, number, 0) for number in ends])
        try:
            while ends:
                message = consumer.poll(_TIMEOUT)
                if message is None:
                    raise TimeoutError(f"{topic} was not read to its end")
                error = message.error()
                if error is None:
                    records.append(message)
                elif error.code() == KafkaError._PARTITION_EOF:
                    partition, offset = message.partition() or 0, message.offset() or 0
                    if offset >= ends.get(partition, 0):
                        ends.pop(partition, None)
                else:
                    raise KafkaException(error)
        finally:
            consumer.close()
        return records


def _result(future: Future[Any]) -> Any:
    return future.result(_TIMEOUT)
