"""A member whose application is away leaves its group and comes back, on a real Kafka."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.conftest import TopicFactory
from tests.rig.operations import KafkaOperations
from tests.rig.processes import ADMIN_TOKEN, Scene, at_the_end, config, route
from tests.rig.scripted_app import Request, ScriptedApp
from tests.rig.waiting import eventually

pytestmark = pytest.mark.kafka

QUICK = {"session_timeout_ms": 3000, "heartbeat_interval_ms": 300}
PROTOCOLS: dict[str, dict[str, Any]] = {
    "classic": QUICK,
    "eager": {**QUICK, "partition_assignment_strategy": "range"},
    "consumer": {"group_protocol": "consumer"},
}
every_protocol = pytest.mark.parametrize("protocol", PROTOCOLS)
DELAY = 5


@every_protocol
def test_what_waits_in_a_retry_topic_is_there_when_it_is_back(
    kafka: KafkaOperations, topic: TopicFactory, group: str, scene: Scene, protocol: str
) -> None:
    """Partitions that are asleep are given up and found again; each attempt is made once."""
    name = topic(3)
    for number in range(60):
        kafka.produce(name, [b"%d" % number], partition=number % 3)

    def behave(request: Request) -> int:
        return 500 if request.attempt == 1 and int(request.body) % 3 == 0 else 204

    with ScriptedApp(behave) as app:
        what = route(
            name,
            app.port,
            leave_after_held_seconds=1,
            retry={"max_attempts": 1, "topics": [{"delay_seconds": DELAY}]},
        )
        sidecar = scene.sidecar(
            config(kafka.bootstrap_servers, group, [what], **PROTOCOLS[protocol])
        )
        sidecar.until_said("admin API")
        eventually(lambda: sidecar.route()["counters"]["retried_later"] == 20, "some wait")
        at_the_end(kafka, group, name)
        app.stop()
        kafka.produce(name, [b"1000"])
        eventually(lambda: sidecar.route()["state"] == "left_group", "it has left")
        eventually(lambda: sidecar.said("revoked"), "it has given everything up")
        app.start()
        app.until(lambda seen: len(seen) >= 81)
        at_the_end(kafka, group, name)
        at_the_end(kafka, group, f"{name}.{group}.retry.{DELAY}s")
        tries = Counter(each.body for each in app.requests)
        assert {tries[b"%d" % number] for number in range(0, 60, 3)} == {2}
        assert {tries[b"%d" % number] for number in range(60) if number % 3} == {1}
        first: dict[bytes, float] = {}
        for each in app.requests:
            assert each.at - first.setdefault(each.body, each.at) >= DELAY * (each.attempt - 1)
        assert sidecar.stop() == 0


@every_protocol
def test_an_operator_brings_it_back(
    kafka: KafkaOperations, topic: TopicFactory, group: str, scene: Scene, protocol: str
) -> None:
    """The application answers 401 until then; nothing but a record could tell that it is mended."""
    name = topic(2)
    answers = [401]
    with ScriptedApp(lambda request: answers[0]) as app:
        what = config(
            kafka.bootstrap_servers,
            group,
            [route(name, app.port, leave_after_held_seconds=3)],
            **PROTOCOLS[protocol],
        )
        sidecar = scene.sidecar({**what, "admin": {"token": ADMIN_TOKEN}})
        sidecar.until_said("admin API")
        for number in range(2):
            kafka.produce(name, [b"1", b"2"], partition=number)
        eventually(lambda: sidecar.route()["state"] == "left_group", "it has left", within=60)
        eventually(lambda: sidecar.said("revoked"), "it has given everything up")
        answers[0] = 204
        sidecar.change("POST", f"/v1/routes/{name}/breaker/reset")
        at_the_end(kafka, group, name)
        assert sidecar.route()["state"] == "running"
        assert sidecar.stop() == 0
