"""What a real process tells of itself, on a real Kafka, read by a real Prometheus."""

from __future__ import annotations

import urllib.request
from contextlib import ExitStack
from pathlib import Path

import pytest

from sidecar.telemetry.metrics import PREFIX
from tests.conftest import TopicFactory
from tests.rig.monitoring import ALERTS, expressions
from tests.rig.operations import KafkaOperations
from tests.rig.processes import Scene, Sidecar, config, route
from tests.rig.prometheus import Prometheus, promtool
from tests.rig.scripted_app import ScriptedApp, always_204
from tests.rig.waiting import eventually

pytestmark = pytest.mark.kafka


def scraped(sidecar: Sidecar) -> bytes:
    url = f"http://127.0.0.1:{sidecar.port}/metrics"
    with urllib.request.urlopen(url, timeout=5) as answer:
        text: bytes = answer.read()
    return text


@pytest.mark.timeout(240)
def test_backlog_rises_while_the_app_is_away_and_prometheus_sees_it(
    kafka: KafkaOperations, topic: TopicFactory, group: str, scene: Scene, tmp_path: Path
) -> None:
    """Nothing is fetched then, so nothing but asking tells how far the producer went on."""
    name = topic(2)
    with ExitStack() as stack:
        app = stack.enter_context(ScriptedApp())
        wanted = route(name, app.port, threshold=20)
        sidecar = scene.sidecar(config(kafka.bootstrap_servers, group, [wanted]))
        scraper = Prometheus(tmp_path, f"127.0.0.1:{sidecar.port}", ALERTS)
        prometheus = stack.enter_context(scraper)
        kafka.produce(name, [b"x"] * 50)
        app.until(lambda seen: len(seen) == 50, within=60)
        app.behaviour = lambda _: 405  # the routes are gone: nothing is taken
        kafka.produce(name, [b"x"] * 450)
        backlog = f"sum({PREFIX}backlog_records)"

        def told() -> list[str]:
            return [each["value"][1] for each in prometheus.query(backlog)]

        eventually(lambda: told() == ["450"], "what came during the outage is told", within=60)
        promtool("check", "metrics", stdin=scraped(sidecar))
        for expression in expressions():
            prometheus.query(expression)  # an error raises
        for rule in prometheus.get("rules")["groups"][0]["rules"]:
            assert rule["health"] != "err", rule
        shown = prometheus.query(f"max by (cause) ({PREFIX}cause) == 1")
        assert "held" in [each["metric"]["cause"] for each in shown]
        app.behaviour = always_204
        eventually(lambda: told() == ["0"], "all is worked off", within=60)
        ratio = f"sum({PREFIX}attempt_seconds_count) >= 500"
        assert eventually(lambda: prometheus.query(ratio), "attempts are counted")
        assert sidecar.stop() == 0
