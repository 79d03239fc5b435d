"""The rig keeps its promises: what the other broker tests build on."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaException, Message, Producer

from tests.conftest import TopicFactory
from tests.rig.kafka import KafkaCluster
from tests.rig.operations import COMPACTED, KafkaOperations
from tests.rig.ports import accepts
from tests.rig.waiting import eventually

pytestmark = pytest.mark.kafka


def offsets(messages: list[Message]) -> list[int]:
    return [message.offset() or 0 for message in messages]


def values(messages: list[Message]) -> list[bytes | None]:
    return [message.value() for message in messages]


def test_what_is_produced_is_read(kafka: KafkaOperations, topic: TopicFactory) -> None:
    name = topic(3)
    kafka.produce(name, [b"a", b"", None], key=b"k", headers=[("h", b"1"), ("h", None)])
    records = kafka.read(name)
    assert values(records) == [b"a", b"", None]
    assert records[0].headers() == [("h", b"1"), ("h", None)]
    assert sum(kafka.end_offsets(name).values()) == 3


def test_a_topic_can_be_deleted_twice(kafka: KafkaOperations, topic: TopicFactory) -> None:
    name = topic()
    kafka.delete_topic(name)
    kafka.delete_topic(name)
    assert kafka.end_offsets(name) == {}


def test_deleted_records_move_the_beginning(kafka: KafkaOperations, topic: TopicFactory) -> None:
    name = topic()
    kafka.produce(name, [b"%d" % n for n in range(5)])
    kafka.delete_records(name, {0: 3})
    assert kafka.begin_offsets(name) == {0: 3}
    assert values(kafka.read(name)) == [b"3", b"4"]


def test_a_killed_broker_keeps_its_data_and_address(
    breakable_kafka: KafkaCluster, topic: TopicFactory
) -> None:
    name = topic(on=breakable_kafka)
    breakable_kafka.produce(name, [b"before"])
    node = breakable_kafka.node(1)
    node.kill()
    assert not node.running
    assert not accepts(node.port)
    node.restart()
    breakable_kafka.produce(name, [b"after"])
    assert values(breakable_kafka.read(name)) == [b"before", b"after"]


def test_a_paused_broker_answers_nothing_until_it_is_resumed(
    breakable_kafka: KafkaCluster, topic: TopicFactory
) -> None:
    name = topic(on=breakable_kafka)
    breakable_kafka.node(1).pause()
    with pytest.raises(KafkaException):
        breakable_kafka.admin.list_topics(name, timeout=0.5)
    breakable_kafka.node(1).resume()
    breakable_kafka.produce(name, [b"x"])


def test_compaction_leaves_holes(kafka: KafkaOperations, topic: TopicFactory) -> None:
    """Only the last record of a key stays, with its offset."""
    name = topic(config=COMPACTED)
    kafka.produce(name, [b"%d" % n for n in range(10)], key=b"same")
    kafka.compact(name)
    kept = [message for message in kafka.read(name) if message.key() == b"same"]
    assert offsets(kept) == [9]


def test_transactions_leave_markers(kafka: KafkaOperations, topic: TopicFactory) -> None:
    """A commit and an abort take one offset each, and an aborted record is read by nobody."""
    name = topic()
    producer = Producer(kafka.client_config(**{"transactional.id": name}))
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(name, b"kept")
    producer.commit_transaction(30)
    producer.begin_transaction()
    producer.produce(name, b"aborted")
    producer.flush(30)
    producer.abort_transaction(30)
    # The broker answers first and writes the marker then.
    eventually(lambda: kafka.end_offsets(name) == {0: 4}, "the marker of the abort")
    assert values(kafka.read(name)) == [b"kept"]
    assert values(kafka.read(name, isolation="read_uncommitted")) == [b"kept", b"aborted"]


@pytest.mark.cluster
def test_another_node_leads_after_the_leader_is_killed(
    kafka3: KafkaCluster, topic: TopicFactory
) -> None:
    name = topic(on=kafka3)
    kafka3.produce(name, [b"before"])
    first = kafka3.leader(name)
    kafka3.node(first).kill()
    eventually(lambda: kafka3.leader(name) != first, "a new leader")
    kafka3.produce(name, [b"after"])
    assert values(kafka3.read(name)) == [b"before", b"after"]
