"""sidecar check against a real broker: what is well, and each thing that is not."""

from __future__ import annotations

import socket
import uuid
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from sidecar.core.findings import Finding, Grade
from sidecar.kafka.check import check_kafka
from sidecar.settings import load_settings
from tests.conftest import TopicFactory
from tests.rig.kafka import KafkaCluster
from tests.rig.operations import KafkaOperations
from tests.rig.waiting import eventually

pytestmark = pytest.mark.kafka


def check(bootstrap: str, group: str, route: dict[str, Any], **kafka: Any) -> list[Finding]:
    tree = {
        "kafka": {"bootstrap.servers": bootstrap, "group.id": group, **kafka},
        "routes": [{"name": "r", "target": "http://127.0.0.1:1/", **route}],
    }
    return list(check_kafka(load_settings(None, {}, tree)))


def lines(findings: list[Finding]) -> list[str]:
    return [str(finding) for finding in findings]


def failures(findings: list[Finding]) -> list[str]:
    return [finding.text for finding in findings if finding.grade is Grade.FAIL]


def test_a_sound_setup_is_well(kafka: KafkaOperations, topic: TopicFactory, group: str) -> None:
    source, dead = topic(3), topic(1, name="dlq")
    route = {"topics": [source], "dead_letter": {"topic": dead}}
    offsets = f"group {group} has offsets for 0 of 3 partitions"
    assert lines(check(kafka.bootstrap_servers, group, route)) == [
        f"ok    kafka: {kafka.bootstrap_servers}: 1 broker",
        f"ok    route r: topic {source}: 3 partitions",
        f"ok    route r: dead-letter topic {dead}: 1 partition",
        f"ok    route r: retry topic r.{group}.retry.0s is made at the start",
        f"ok    route r: {offsets}; the others begin at the earliest record",
    ]


def test_committed_offsets_are_counted(
    kafka: KafkaOperations, topic: TopicFactory, group: str
) -> None:
    name = topic(2)
    kafka.produce(name, [b"a"], partition=1)
    consumer = Consumer(
        {"bootstrap.servers": kafka.bootstrap_servers, "group.id": group,
         "auto.offset.reset": "earliest", "enable.auto.commit": False}
    )  # fmt: skip
    consumer.subscribe([name])
    message = eventually(lambda: consumer.poll(0.1), "the record")
    assert message is not None
    consumer.commit(message=message, asynchronous=False)
    consumer.close()
    found = check(kafka.bootstrap_servers, group, {"topics": [name]})
    assert failures(found) == []
    assert "has offsets for 1 of 2 partitions" in found[-1].text


def test_missing_topics_are_told_with_the_way_out(kafka: KafkaOperations, group: str) -> None:
    route = {"topics": ["missing.source"], "dead_letter": {"topic": "missing.dlq"}}
    assert failures(check(kafka.bootstrap_servers, group, route)) == [
        "topic missing.source does not exist: create it, or correct the name",
        "dead-letter topic missing.dlq does not exist: create it, or correct the name",
    ]
    # Asking must not create what is asked for.
    assert "missing.source" not in kafka.admin.list_topics(timeout=10).topics


def test_retry_topics_that_somebody_else_makes_are_told_with_what_they_need(
    kafka: KafkaOperations, topic: TopicFactory, group: str
) -> None:
    """And are no part of what the pattern finds."""
    prefix = f"p{uuid.uuid4().hex[:6]}"
    topic(1, name=prefix)
    there = topic(2, name=f"{prefix}.later")
    tiers = [{"delay_seconds": 60}, {"delay_seconds": 600, "topic": there}]
    route = {"pattern": f"^{prefix}", "retry": {"topics": tiers, "create_topics": False}}
    found = check(kafka.bootstrap_servers, group, route)
    made = "create it with 1 partition, cleanup.policy=delete, retention.ms="
    assert failures(found) == [
        f"retry topic r.{group}.retry.0s does not exist: {made}604800000",
        f"retry topic r.{group}.retry.60s does not exist: {made}604860000",
    ]
    assert f"ok    route r: retry topic {there}: 2 partitions" in lines(found)
    assert f"ok    route r: pattern ^{prefix} matches 1 topic" in lines(found)
    permitted = {**route, "retry": {"topics": tiers}}
    assert failures(check(kafka.bootstrap_servers, group, permitted)) == []


def test_a_dead_letter_topic_that_takes_or_keeps_the_wrong_is_told(
    kafka: KafkaOperations, topic: TopicFactory, group: str
) -> None:
    source = topic(1, config={"max.message.bytes": "5000"})

    def warned(**config: str) -> list[str]:
        named = {name.replace("_", "."): value for name, value in config.items()}
        route = {"topics": [source], "dead_letter": {"topic": topic(1, name="dlq", config=named)}}
        found = check(kafka.bootstrap_servers, group, route)
        return [each.text.split(": ")[0] for each in found if each.grade is Grade.WARN]

    (small,) = warned(max_message_bytes="4999")
    assert small.endswith(f"takes 4999 bytes a record, topic {source} holds 5000")
    assert warned(max_message_bytes="5000") == []
    (for_ever,) = warned(retention_ms="-1")
    assert "keeps letters for ever, but the brokers forget 7 days after" in for_ever
    (longer,) = warned(retention_ms=str(14 * 86_400_000))
    assert "keeps letters 14 days" in longer


def test_a_pattern_is_tried(kafka: KafkaOperations, topic: TopicFactory, group: str) -> None:
    prefix = f"p{uuid.uuid4().hex[:6]}"
    name = topic(1, name=prefix)
    found = check(kafka.bootstrap_servers, group, {"pattern": f"^{prefix}"})
    assert f"ok    route r: pattern ^{prefix} matches 1 topic" in lines(found)
    assert f"ok    route r: topic {name}: 1 partition" in lines(found)
    nothing = check(kafka.bootstrap_servers, group, {"pattern": "^nothing-like-this"})
    assert [each.grade for each in nothing] == [Grade.OK, Grade.WARN, Grade.OK]


def test_members_with_another_assignor_are_told(
    kafka: KafkaOperations, topic: TopicFactory, group: str
) -> None:
    name = topic(1)
    other = Consumer(
        {"bootstrap.servers": kafka.bootstrap_servers, "group.id": group,
         "partition.assignment.strategy": "range"}
    )  # fmt: skip
    other.subscribe([name])
    eventually(lambda: other.poll(0.05) or other.assignment(), "the assignment")
    (text,) = failures(check(kafka.bootstrap_servers, group, {"topics": [name]}))
    assert text == (
        f"group {group} has members that use range: set partition.assignment.strategy: range,"
        " or choose another group"
    )
    strategy = {"partition.assignment.strategy": "range"}
    assert failures(check(kafka.bootstrap_servers, group, {"topics": [name]}, **strategy)) == []
    other.close()


def test_an_unreachable_broker_is_one_finding(group: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    (text,) = failures(check(address, group, {"topics": ["a"]}))
    assert text.startswith(f"{address}: ")
    assert "Connection refused" in text
    assert "check bootstrap.servers" in text


def test_the_wrong_protocol_is_told(kafka: KafkaOperations, group: str) -> None:
    (text,) = failures(
        check(kafka.bootstrap_servers, group, {"topics": ["a"]}, **{"security.protocol": "SSL"})
    )
    assert "security.protocol" in text


# --- permissions --------------------------------------------------------------------------------


def keep(cluster: KafkaCluster, kind: ResourceType, name: str, *allowed: AclOperation) -> None:
    """Only these operations are left to the anonymous user; everything is someone else's."""
    grants = [("User:else", AclOperation.ALL), *(("User:ANONYMOUS", each) for each in allowed)]
    for future in cluster.admin.create_acls(
        [
            AclBinding(
                kind, name, ResourcePatternType.LITERAL, who, "*", what, AclPermissionType.ALLOW
            )
            for who, what in grants
        ]
    ).values():
        future.result(timeout=30)


def test_missing_permissions_are_told_by_name(guarded: KafkaCluster) -> None:
    for name in ("plain", "hidden", "unreadable", "unwritable"):
        guarded.create_topic(name, 1)
    keep(guarded, ResourceType.TOPIC, "hidden")
    keep(guarded, ResourceType.TOPIC, "unreadable", AclOperation.DESCRIBE)
    keep(guarded, ResourceType.TOPIC, "unwritable", AclOperation.DESCRIBE)
    keep(guarded, ResourceType.GROUP, "closed")
    keep(guarded, ResourceType.GROUP, "seen", AclOperation.DESCRIBE)

    def told(group: str, topic: str) -> list[str]:
        route = {"topics": [topic], "dead_letter": {"topic": "unwritable"}}
        return failures(check(guarded.bootstrap_servers, group, route))

    write = "dead-letter topic unwritable may not be written: allow the user Write on it"
    hidden, *rest = eventually(lambda: told("open", "hidden"), "the ACLs are in force")
    assert hidden.startswith("topic hidden may not be seen: ")
    assert hidden.endswith("allow the user Describe and Read on it")
    assert rest == [write]
    assert told("open", "unreadable") == [
        "topic unreadable may not be read: allow the user Read on it", write,
    ]  # fmt: skip
    closed = told("closed", "plain")[-1]
    assert closed.startswith("group closed: ")
    assert closed.endswith("allow the user Describe and Read on the group")
    assert told("seen", "plain")[-1] == ("group seen may not be joined: allow the user Read on it")
