"""What is asked of brokers about dead letters while leaders and coordinators move."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from sidecar.kafka.letterbox import Letterbox
from sidecar.settings import load_settings
from tests.fakes.faulty_broker import FaultyBroker

LIST_OFFSETS, OFFSET_FETCH = 2, 9


@pytest.mark.parametrize(
    ("request_key", "code"),
    [
        (LIST_OFFSETS, KafkaError.NOT_LEADER_FOR_PARTITION),
        (LIST_OFFSETS, KafkaError.LEADER_NOT_AVAILABLE),
        (LIST_OFFSETS, KafkaError.FENCED_LEADER_EPOCH),
        (OFFSET_FETCH, KafkaError.NOT_COORDINATOR),
    ],
)
def test_what_moves_is_asked_again(request_key: int, code: int) -> None:
    route = {
        "name": "r",
        "topics": ["orders"],
        "target": "http://127.0.0.1:1/",
        "dead_letter": {"topic": "parked"},
    }
    with FaultyBroker() as broker:
        if not broker.can_create_topics:
            pytest.skip("this build of librdkafka hides its mock API")
        broker.create_topic("parked", 1)
        kafka = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "billing"}
        settings = load_settings(None, {}, {"kafka": kafka, "routes": [route]})
        with Letterbox(settings, settings.routes[0]) as box:
            # Some the client asks again by itself.
            broker.fail_next(request_key, *[code] * 5)
            if request_key == LIST_OFFSETS:
                assert box.bounds(0) == (0, 0)
            else:
                assert box.progress(0).start == 0
