"""The rig keeps its promises: what the other broker tests build on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from tests.conftest import TopicFactory
from tests.rig.kafka import KafkaCluster
from tests.rig.operations import COMPACTED, Commit, KafkaOperations
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

    def silent() -> bool:
        try:
            breakable_kafka.admin.list_topics(name, timeout=0.5)
        except KafkaException:
            return True
        return False

    # A process that is told to stop does so a moment later, and an answer may be on its way.
    eventually(silent, "it answers nothing")
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


def test_commits_and_lag_are_told_by_partition(
    kafka: KafkaOperations, topic: TopicFactory, group: str
) -> None:
    name = topic(2)
    kafka.produce(name, [b"x"] * 3, partition=0)
    kafka.produce(name, [b"x"] * 4, partition=1)
    assert kafka.commits(group, name) == {}
    assert kafka.lag(group, name) == {0: 3, 1: 4}
    consumer = Consumer(kafka.client_config(**{"group.id": group}))
    consumer.commit(offsets=[TopicPartition(name, 1, 3, "note")], asynchronous=False)
    consumer.close()
    assert kafka.commits(group, name) == {1: Commit(3, "note")}
    assert kafka.committed(group, name) == {1: 3}
    assert kafka.lag(group, name) == {0: 3, 1: 1}


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


_OWNER = """
import sys
from tests.rig.kafka import KafkaCluster
print(KafkaCluster().start().node(1).port, flush=True)
sys.stdin.read()
"""


@pytest.mark.usefixtures("kafka")  # so that there is a way to a broker
def test_neither_broker_nor_data_outlive_a_killed_owner(tmp_path: Path) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", _OWNER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    with owner:
        assert owner.stdout is not None
        port = int(owner.stdout.readline())
        assert accepts(port)
        assert list(tmp_path.iterdir())
        owner.kill()
    eventually(lambda: not accepts(port), "the broker is gone")
    eventually(lambda: not list(tmp_path.iterdir()), "the data is gone")


@pytest.mark.parametrize(("ci", "outcome"), [(False, "1 skipped"), (True, "1 error")])
def test_without_any_way_to_a_broker(ci: bool, outcome: str, tmp_path: Path) -> None:
    """Outside CI a test skips, in CI it fails; both name the three ways."""
    environment = {name: str(tmp_path) for name in ("PATH", "HOME", "TMPDIR")}
    if ci:
        environment["CI"] = "true"
    one_test = f"{__file__}::{test_what_is_produced_is_read.__name__}"
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", one_test],
        cwd=Path(__file__).parents[2],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert outcome in run.stdout
    for way in ("Java 17+", "Docker", "KAFKA_BOOTSTRAP_SERVERS"):
        assert way in run.stdout
    assert not list(tmp_path.iterdir())
