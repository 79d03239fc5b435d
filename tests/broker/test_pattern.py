"""A pattern that matches the topics its own records are parked in does not read them."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from confluent_kafka import Consumer

from sidecar.kafka.client_config import consumer_config
from sidecar.settings import load_settings
from tests.rig.operations import KafkaOperations
from tests.rig.waiting import eventually

pytestmark = pytest.mark.kafka


def members(
    kafka: KafkaOperations, group: str, count: int, *routes: dict[str, Any], **properties: Any
) -> list[Consumer]:
    """Consumers as the routes make them, so many of each."""
    tree = {
        "kafka": {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": group,
            "topic.metadata.refresh.interval.ms": 200,
            "session.timeout.ms": 6000,
            **properties,
        },
        "routes": [{"target": "http://127.0.0.1:1/", **route} for route in routes],
    }
    settings = load_settings(None, {}, tree)
    consumers = []
    for route in settings.routes:
        for _ in range(count):
            # A record of a topic that is new to the group is to be seen.
            config = {**consumer_config(settings, route), "auto.offset.reset": "earliest"}
            consumers.append(Consumer(config))
            consumers[-1].subscribe([route.pattern] if route.pattern else list(route.topics or ()))
    return consumers


def assigned(consumers: list[Consumer]) -> set[str]:
    for consumer in consumers:
        consumer.poll(0.05)
    return {each.topic for consumer in consumers for each in consumer.assignment()}


def test_a_pattern_leaves_its_own_dead_letters_out(kafka: KafkaOperations, group: str) -> None:
    """DLQ-6: neither at the start nor when the topics appear later; other topics that appear are.

    The one whose name differs in what a dot stands for shows that names are meant, not expressions.
    """
    stem = f"p{uuid.uuid4().hex[:8]}"
    kafka.create_topic(f"{stem}.a", 2)
    kafka.create_topic(f"{stem}.dlq", 2)
    consumers = members(
        kafka, group, 2,
        {"pattern": rf"^{stem}\..*", "name": "r", "dead_letter": {"topic": f"{stem}.dlq"}},
        {"pattern": f"^{stem}.others$", "group_id": f"{group}.x", "name": f"{stem}.s",
         "dead_letter": {"topic": f"{stem}.later"}},
    )[:2]  # fmt: skip
    seen: set[str] = set()

    def reading(*names: str) -> bool:
        seen.update(assigned(consumers))
        return seen >= {f"{stem}.{name}" for name in names}

    eventually(lambda: reading("a"), "the first topic is read")
    kafka.create_topic(f"{stem}.later", 2)
    kafka.create_topic(f"{stem}.dlqs", 1)
    kafka.create_topic(f"{stem}.z", 2)
    eventually(lambda: reading("dlqs", "z"), "topics that appear are read")
    for consumer in consumers:
        consumer.close()
    assert seen == {f"{stem}.{name}" for name in ("a", "dlqs", "z")}
