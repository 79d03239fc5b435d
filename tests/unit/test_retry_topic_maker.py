"""Making missing retry topics, without a broker."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from sidecar.kafka import retry_topics
from sidecar.kafka.retry_topics import RetryTopicMaker
from sidecar.model import RetryTopic

TOPICS = [RetryTopic("orders.billing.retry.0s", 0.0)]


def test_what_the_client_does_not_take_is_left_to_the_consumer_to_tell(tmp_path: Any) -> None:
    """It is made of the same configuration, right afterwards; a thread has nobody to tell it to."""
    config = {"security.protocol": "ssl", "ssl.ca.location": f"{tmp_path}/none"}
    RetryTopicMaker(config, "orders", TOPICS).start()


class BlindAdmin:
    """Of a user who may create topics and sees none: each is there already."""

    def __init__(self, _: object) -> None:
        self.asked = 0
        self.looked = 0
        self.enough = threading.Event()

    def list_topics(self, timeout: float) -> Any:
        self.looked += 1
        if self.looked == 3:
            self.enough.set()
        return SimpleNamespace(topics={})

    def create_topics(self, new: list[Any], request_timeout: float) -> dict[str, Future[None]]:
        self.asked += 1
        answer: Future[None] = Future()
        answer.set_exception(KafkaException(KafkaError(KafkaError.TOPIC_ALREADY_EXISTS)))
        return {topic.topic: answer for topic in new}


def test_a_topic_that_exists_and_is_not_seen_is_asked_for_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    admin = BlindAdmin(None)
    monkeypatch.setattr(retry_topics, "AdminClient", lambda _: admin)

    def fetch() -> None:
        RetryTopicMaker({}, "orders", TOPICS).start(0.0)
        assert admin.enough.wait(10.0)

    caller = threading.Thread(target=fetch)
    caller.start()
    caller.join(15.0)
    assert admin.asked == 1
