"""server.properties: what all nodes of the rig have in common.

Small, and quick where tests would else wait: first rebalance, session timeouts, log cleaner,
fencing of a dead node.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

Properties = Mapping[str, str | int]

COMMON: Properties = {
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "auto.create.topics.enable": "false",
    "num.partitions": 1,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
    "share.coordinator.state.topic.num.partitions": 1,
    # groups: no waiting for further members, and sessions as short as a test likes
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 500,
    "group.consumer.min.session.timeout.ms": 1_000,
    "group.consumer.session.timeout.ms": 3_000,
    "group.consumer.min.heartbeat.interval.ms": 100,
    "group.consumer.heartbeat.interval.ms": 300,
    # an idle broker is to be idle
    "metadata.max.idle.interval.ms": 5_000,
    "log.retention.check.interval.ms": 5_000,
    # compaction runs at once, in a small heap
    "log.initial.task.delay.ms": 100,
    "log.cleaner.backoff.ms": 100,
    "log.cleaner.min.cleanable.ratio": 0,
    "log.cleaner.dedupe.buffer.size": 4_194_304,
    "log.segment.delete.delay.ms": 500,
    "num.network.threads": 2,
    "num.io.threads": 4,
    "background.threads": 2,
}

# For a broker that no test stops: however busy the machine, it is not taken for dead.
UNHARMED: Properties = {"broker.session.timeout.ms": 30_000, "broker.heartbeat.interval.ms": 500}

# Everything is allowed to everybody but what an ACL keeps to someone else.
GUARDED: Properties = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}


def replication(nodes: int) -> dict[str, str | int]:
    """The internal topics live on every node, and survive the loss of one where there are three."""
    return {
        "default.replication.factor": nodes,
        "min.insync.replicas": max(1, nodes - 1),
        "offsets.topic.replication.factor": nodes,
        "transaction.state.log.replication.factor": nodes,
        "transaction.state.log.min.isr": max(1, nodes - 1),
        "share.coordinator.state.topic.replication.factor": nodes,
        "share.coordinator.state.topic.min.isr": max(1, nodes - 1),
        # A lone node that was killed cannot return before its old session has ended.
        "broker.session.timeout.ms": 1_000 if nodes == 1 else 3_000,
        "broker.heartbeat.interval.ms": 200 if nodes == 1 else 500,
    }


def node(
    node_id: int, port: int, controllers: Mapping[int, int], log_dir: Path
) -> dict[str, str | int]:
    """One of the nodes of a cluster on loopback; controllers are the ports by node id."""
    return {
        **COMMON,
        **replication(len(controllers)),
        "node.id": node_id,
        "listeners": (
            f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controllers[node_id]}"
        ),
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.quorum.voters": ",".join(
            f"{each}@127.0.0.1:{controller}" for each, controller in controllers.items()
        ),
        "log.dirs": str(log_dir),
    }


class Entrance(NamedTuple):
    """Another way into a lone node: it listens at `listens`, and tells who comes by it `told`."""

    listens: str
    told: str

    def properties(self, port: int, controller: int) -> Properties:
        near = f"PLAINTEXT://127.0.0.1:{port}"
        return {
            "listeners": f"{near},CONTROLLER://127.0.0.1:{controller},FAR://{self.listens}",
            "advertised.listeners": f"{near},FAR://{self.told}",
            "listener.security.protocol.map": (
                "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,FAR:PLAINTEXT"
            ),
        }


def one_node(port: int, controller: int, log_dir: Path) -> dict[str, str | int]:
    return node(1, port, {1: controller}, log_dir)


def write_properties(path: Path, properties: Properties) -> None:
    path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
