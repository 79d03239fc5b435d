"""A dead-letter topic that is missing on a real broker, and made later."""

from __future__ import annotations

import queue
import threading

import pytest

from sidecar.kafka import dead_letter_watch
from sidecar.kafka.dead_letter_watch import DeadLetterWatch
from tests.rig.operations import KafkaOperations

pytestmark = pytest.mark.kafka


def test_a_topic_that_is_made_later_is_seen(
    kafka: KafkaOperations, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letter_watch, "AGAIN_SECONDS", 0.05)
    heard: queue.Queue[bool] = queue.Queue()
    over = threading.Event()
    name = f"{group}.dlq"
    config = {"bootstrap.servers": kafka.bootstrap_servers}

    def fetch() -> None:
        DeadLetterWatch(config, group, name, heard.put).start()
        over.wait(30.0)

    caller = threading.Thread(target=fetch)
    caller.start()
    try:
        assert heard.get(timeout=15.0)
        kafka.create_topic(name, 1)
        assert not heard.get(timeout=15.0)
    finally:
        over.set()
        caller.join()
