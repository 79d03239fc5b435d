"""Noticing that a dead-letter topic is missing, without a broker."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from sidecar.kafka import dead_letter_watch
from sidecar.kafka.dead_letter_watch import DeadLetterWatch

REFUSED = KafkaException(KafkaError(KafkaError.CLUSTER_AUTHORIZATION_FAILED))
UNANSWERED = KafkaException(KafkaError(KafkaError._TIMED_OUT))


class Cluster:
    """topics: what is there at each look, the last one from then on; None: not reachable.

    auto_create: whether brokers make topics, or why they do not say so.
    """

    def __init__(
        self, *topics: set[str] | None, auto_create: str | KafkaException = "false"
    ) -> None:
        self.topics = list(topics)
        self.auto_create = auto_create

    def list_topics(self, timeout: float) -> Any:
        there = self.topics.pop(0) if len(self.topics) > 1 else self.topics[0]
        if there is None:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        known = {name: SimpleNamespace(error=None) for name in there}
        return SimpleNamespace(topics=known, controller_id=1)

    def describe_configs(self, asked: list[Any], request_timeout: float) -> dict[Any, Future[Any]]:
        answer: Future[Any] = Future()
        if isinstance(self.auto_create, KafkaException):
            answer.set_exception(self.auto_create)
        else:
            name = "auto.create.topics.enable"
            answer.set_result({name: SimpleNamespace(value=self.auto_create)})
        return {asked[0]: answer}


@pytest.mark.parametrize(
    ("cluster", "told"),
    [
        (Cluster({"dead"}), []),
        (Cluster(set(), {"dead"}), [True, False]),
        (Cluster(set(), set(), None, {"dead"}), [True, False]),
        (Cluster(None, {"dead"}), []),
        (Cluster(set(), auto_create="true"), []),
        (Cluster(set(), {"dead"}, auto_create=REFUSED), [True, False]),
        (Cluster(set(), {"dead"}, auto_create=UNANSWERED), []),
    ],
)
def test_a_missing_topic_is_told_once_and_so_is_its_coming(
    cluster: Cluster, told: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letter_watch, "AdminClient", lambda _: cluster)
    monkeypatch.setattr(dead_letter_watch, "AGAIN_SECONDS", 0.001)
    heard: list[bool] = []

    def fetch() -> None:
        DeadLetterWatch({}, "orders", "dead", heard.append).start()
        for thread in threading.enumerate():
            if thread.name == "fetch-orders-dead-letters":
                thread.join(10.0)

    caller = threading.Thread(target=fetch)
    caller.start()
    caller.join(15.0)
    assert heard == told
