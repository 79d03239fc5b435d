"""The embedded broker by itself, with the mock API and without."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka.admin import AdminClient

from sidecar.errors import SourceError
from sidecar.kafka import embedded
from sidecar.kafka.embedded import FALLBACK_PARTITIONS, EmbeddedBroker

SECONDS = 10.0


def partition_count(broker: EmbeddedBroker, topic: str) -> int:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    return len(admin.list_topics(topic, timeout=SECONDS).topics[topic].partitions)


@pytest.fixture
def no_mock_api(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    return lambda: monkeypatch.setattr(embedded, "_library", lambda: None)


def test_topics_have_the_partitions_asked_for() -> None:
    with EmbeddedBroker() as broker:
        assert broker.can_create_topics
        assert broker.create_topic("seven", 7) == 7
        assert partition_count(broker, "seven") == 7
        with pytest.raises(SourceError):
            broker.create_topic("seven", 7)


def test_start_is_once_and_close_ends_it() -> None:
    broker = EmbeddedBroker()
    assert broker.bootstrap_servers == ""
    address = broker.start()
    assert broker.start() == address == broker.bootstrap_servers
    assert address.startswith("127.0.0.1:")
    broker.close()
    assert broker.bootstrap_servers == ""
    broker.close()


def test_two_brokers_are_two_clusters() -> None:
    with EmbeddedBroker() as one, EmbeddedBroker() as other:
        assert one.bootstrap_servers != other.bootstrap_servers
        one.create_topic("mine", 1)
        assert partition_count(one, "mine") == 1
        assert partition_count(other, "mine") == FALLBACK_PARTITIONS


def test_several_nodes() -> None:
    with EmbeddedBroker(brokers=3) as broker:
        assert broker.bootstrap_servers.count(",") == 2
        broker.create_topic("spread", 3)
        assert partition_count(broker, "spread") == 3


def test_without_the_mock_api_it_works_with_its_own_partition_count(
    no_mock_api: Callable[[], None],
) -> None:
    no_mock_api()
    with EmbeddedBroker() as broker:
        assert not broker.can_create_topics
        assert broker.create_topic("some", 7) == FALLBACK_PARTITIONS
        assert partition_count(broker, "some") == FALLBACK_PARTITIONS
