"""End offsets asked of brokers that were restarted."""

from __future__ import annotations

from functools import partial

import pytest

from sidecar.kafka.end_offsets import EndOffsets
from sidecar.model import Partition
from tests.conftest import TopicFactory
from tests.rig.kafka import KafkaCluster
from tests.rig.waiting import eventually

pytestmark = pytest.mark.kafka


def test_the_end_is_told_again_after_a_leader_was_elected_anew(
    breakable_kafka: KafkaCluster, topic: TopicFactory
) -> None:
    """The client keeps the epoch it knew and is answered FENCED_LEADER_EPOCH for ever after."""
    name = topic(on=breakable_kafka)
    partition = Partition(name, 0)
    ends = EndOffsets({"bootstrap.servers": breakable_kafka.bootstrap_servers, "log_level": 0})

    def told(end: int) -> bool:
        ends.ask([partition], {})
        return ends.over({}) == {partition: end}

    breakable_kafka.produce(name, [b"before"])
    eventually(lambda: told(1), "the end is told")
    node = breakable_kafka.node(1)
    for end in (2, 3, 4):
        node.kill()
        node.restart()
        breakable_kafka.produce(name, [b"after"])
        eventually(partial(told, end), f"the end is told after {end - 1} restarts")
