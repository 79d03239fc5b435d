"""A rolling replacement of two pods under load, each rendered by the chart, on the real Kafka."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.chart.values import changed
from tests.conftest import TopicFactory
from tests.rig.helm import render
from tests.rig.operations import KafkaOperations
from tests.rig.pods import ProcessPod, pod_and_config_maps
from tests.rig.ports import free_ports
from tests.rig.processes import Scene
from tests.rig.replicas import PARTITIONS, Replica, roll

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("with_helm")]


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with Scene(tmp_path) as scene:
        yield scene


@pytest.mark.parametrize(
    ("guarantee", "native"),
    [
        ({"guarantee": "at_least_once"}, True),
        ({"guarantee": "at_most_once", "loss_budget": 100}, False),
    ],
    ids=["at_least_once-native", "at_most_once-classic"],
)
def test_a_rolling_replacement_loses_and_repeats_nothing(
    kafka: KafkaOperations,
    topic: TopicFactory,
    group: str,
    scene: Scene,
    guarantee: dict[str, Any],
    native: bool,
) -> None:
    """K8S-3: no request to an app that is gone either, and every exit code of a sidecar is 0."""
    name = topic(PARTITIONS)
    numbers = iter(range(10))

    def make() -> Replica:
        directory = scene.directory / f"pod-{next(numbers)}"
        directory.mkdir()
        journal = directory / "journal"
        app_port, port = free_ports(2)
        values = {
            "app/command": [sys.executable, "-m", "tests.rig.recorder"],
            "app/args": ["--journal", str(journal), "--port", str(app_port)],
            "app/ports": [{"name": "http", "containerPort": app_port}],
            "sidecar/native": native,
            "sidecar/config/kafka": {
                "bootstrap.servers": kafka.bootstrap_servers,
                "group.id": group,
                "heartbeat.interval.ms": 300,  # how soon a member hears of a rebalance
            },
            "sidecar/config/routes/0": {
                "topics": [name],
                "target": f"http://127.0.0.1:{app_port}/",
                **guarantee,
            },
            "sidecar/config/admin/port": port,
        }
        objects = render(changed(values)).objects
        return Replica(ProcessPod(*pod_and_config_maps(objects), directory), journal)

    roll(kafka, name, group, scene, make)
