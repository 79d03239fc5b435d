"""The brokers that the record source's contract is tried on, behind one face.

A backend makes topics, produces and gives sources. What one cannot do is in UNABLE with the reason.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from confluent_kafka import KafkaError, Producer
from confluent_kafka import Message as RawMessage

from sidecar.kafka.source import KafkaSource
from sidecar.model import Header, Partition
from sidecar.ports import RecordSource
from tests.fakes.broker import FakeBroker, FakeSource
from tests.fakes.faulty_broker import FaultyBroker
from tests.rig.operations import KafkaOperations

Headers = list[Header]

FLUSH_SECONDS: Final = 30.0

# (backend, protocol or "", test) -> why not
UNABLE: Final[Mapping[tuple[str, str, str], str]] = {
    ("embedded", "eager", "test_commit_in_revoke_reaches_the_next_owner"): (
        "the mock refuses a commit during an eager rebalance, brokers accept it"
    ),
    ("embedded", "cooperative", "test_commit_in_revoke_reaches_the_next_owner"): (
        "the mock refuses a commit in a rebalance if it comes late, brokers accept it"
    ),
    ("embedded", "consumer", "test_a_static_member_really_leaves"): (
        "the mock waits for the session to end, 45 s"
    ),
    ("embedded", "", "test_aborted_transactions_are_passed_unseen"): (
        "the mock shows the records of aborted transactions"
    ),
    ("embedded", "", "test_topic_id_tells_recreated_topics_apart"): "the mock has no topic ids",
    ("embedded", "", "test_log_start_moves_past_the_position"): "the mock keeps what it has",
    ("kafka", "", "test_outage"): "the shared broker is not to be harmed",
    ("fake", "consumer", ""): "the fake knows the two classic protocols",
}


class Backend(Protocol):
    name: str

    def create_topic(self, partitions: int = 1, name: str = "") -> str: ...

    def produce(
        self,
        topic: str,
        values: Sequence[bytes | None],
        partition: int = 0,
        key: bytes | None = None,
        headers: Headers | None = None,
    ) -> None: ...

    def transaction(self, topic: str, values: Sequence[bytes], *, commit: bool = True) -> None: ...

    def truncate(self, topic: str, start: int) -> None: ...

    def recreate(self, topic: str) -> None: ...

    def source(
        self,
        group: str,
        protocol: str,
        topics: Sequence[str] | None,
        pattern: str | None = None,
        **more: object,
    ) -> RecordSource:
        """more: further properties of the client, with underscores; the fake has none."""

    def set_down(self, down: bool) -> None: ...


class FakeBackend:
    name = "fake"

    def __init__(self) -> None:
        self.broker = FakeBroker()
        self._names = itertools.count()

    def create_topic(self, partitions: int = 1, name: str = "") -> str:
        topic = name or f"topic-{next(self._names)}"
        self.broker.create_topic(topic, partitions)
        return topic

    def produce(
        self,
        topic: str,
        values: Sequence[bytes | None],
        partition: int = 0,
        key: bytes | None = None,
        headers: Headers | None = None,
    ) -> None:
        for value in values:
            self.broker.produce(
                topic, partition, value, key=key, headers=headers, timestamp_ms=1_700_000_000_000
            )

    def transaction(self, topic: str, values: Sequence[bytes], *, commit: bool = True) -> None:
        for value in values:
            self.broker.produce(topic, 0, value, visible=commit)
        self.broker.end_transaction(topic)

    def truncate(self, topic: str, start: int) -> None:
        self.broker.truncate(topic, 0, start)

    def recreate(self, topic: str) -> None:
        self.broker.create_topic(topic)

    def source(
        self,
        group: str,
        protocol: str,
        topics: Sequence[str] | None,
        pattern: str | None = None,
        **more: object,
    ) -> RecordSource:
        return FakeSource(
            self.broker,
            group,
            topics,
            pattern,
            protocol=protocol,
            name=f"member-{next(self._names)}",
        )

    def set_down(self, down: bool) -> None:
        self.broker.down = down


class _ClientBackend:
    """What the two that are reached through a client have in common."""

    def __init__(self, address: str, overrides: Mapping[str, object]) -> None:
        self._connection = {"bootstrap.servers": address, "log_level": 0}
        self._overrides = overrides
        self._producer = Producer({**self._connection, "enable.idempotence": True, "linger.ms": 0})

    def produce(
        self,
        topic: str,
        values: Sequence[bytes | None],
        partition: int = 0,
        key: bytes | None = None,
        headers: Headers | None = None,
    ) -> None:
        refused: list[KafkaError] = []

        def answered(error: KafkaError | None, _: RawMessage) -> None:
            if error is not None:
                refused.append(error)

        for value in values:
            self._producer.produce(
                topic,
                value,
                key,
                partition,
                answered,
                headers=headers,  # type: ignore[arg-type]
            )
        assert self._producer.flush(FLUSH_SECONDS) == 0
        assert refused == []

    def transaction(self, topic: str, values: Sequence[bytes], *, commit: bool = True) -> None:
        producer = Producer({**self._connection, "transactional.id": uuid.uuid4().hex})
        producer.init_transactions(FLUSH_SECONDS)
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value, partition=0)
        producer.flush(FLUSH_SECONDS)
        if commit:
            producer.commit_transaction(FLUSH_SECONDS)
        else:
            producer.abort_transaction(FLUSH_SECONDS)

    def source(
        self,
        group: str,
        protocol: str,
        topics: Sequence[str] | None,
        pattern: str | None = None,
        **more: object,
    ) -> RecordSource:
        config: dict[str, Any] = {
            **self._connection,
            "group.id": group,
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "topic.metadata.refresh.interval.ms": 500,
            **self._overrides,
        }
        if protocol == "consumer":
            config["group.protocol"] = "consumer"
            config.pop("session.timeout.ms", None)
            config.pop("heartbeat.interval.ms", None)
        else:
            eager = protocol == "eager"
            config["partition.assignment.strategy"] = "range" if eager else "cooperative-sticky"
        config |= {name.replace("_", "."): value for name, value in more.items()}
        return KafkaSource(config, topics, pattern)


class EmbeddedBackend(_ClientBackend):
    name = "embedded"

    def __init__(self, broker: FaultyBroker) -> None:
        self.broker = broker
        super().__init__(broker.bootstrap_servers, broker.client_overrides)

    def create_topic(self, partitions: int = 1, name: str = "") -> str:
        topic = name or f"topic-{uuid.uuid4().hex[:8]}"
        self.broker.create_topic(topic, partitions)
        return topic

    def truncate(self, topic: str, start: int) -> None:
        raise NotImplementedError

    def recreate(self, topic: str) -> None:
        raise NotImplementedError

    def set_down(self, down: bool) -> None:
        if down:
            self.broker.set_down()
        else:
            self.broker.set_up()


class KafkaBackend(_ClientBackend):
    name = "kafka"

    def __init__(self, kafka: KafkaOperations) -> None:
        self.kafka = kafka
        super().__init__(
            kafka.bootstrap_servers,
            {"session.timeout.ms": 6000, "heartbeat.interval.ms": 300, "fetch.wait.max.ms": 50},
        )

    def create_topic(self, partitions: int = 1, name: str = "") -> str:
        topic = name or f"topic-{uuid.uuid4().hex[:8]}"
        self.kafka.create_topic(topic, partitions)
        return topic

    def truncate(self, topic: str, start: int) -> None:
        self.kafka.delete_records(topic, {0: start})

    def recreate(self, topic: str) -> None:
        self.kafka.delete_topic(topic)
        self.kafka.create_topic(topic, 1)

    def set_down(self, down: bool) -> None:
        raise NotImplementedError


def unable(backend: str, protocol: str, test: str) -> str:
    """Why this backend cannot take this test, or ""."""
    keys = ((backend, protocol, test), (backend, "", test), (backend, protocol, ""))
    return next((UNABLE[key] for key in keys if key in UNABLE), "")


def partitions_of(topic: str, count: int) -> list[Partition]:
    return [Partition(topic, number) for number in range(count)]
