"""The image beside an application in one pod, as the chart restricts it, against the real Kafka.

Read-only, as nobody in particular, without capabilities, within the chart's limit of memory. The
hooks are the chart's, run by the rig's kubelet; the application is the recording one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.chart.values import changed
from tests.conftest import TopicFactory
from tests.image.conftest import TAG
from tests.rig.helm import render
from tests.rig.image_pod import ImagePod
from tests.rig.images import Engine
from tests.rig.kubelet import What
from tests.rig.operations import KafkaOperations
from tests.rig.pods import pod_and_config_maps
from tests.rig.ports import free_ports
from tests.rig.processes import Scene, at_the_end
from tests.rig.replicas import PARTITIONS, Replica, roll
from tests.rig.waiting import eventually

pytestmark = [
    pytest.mark.skipif(not os.environ.get("IMAGE_TEST"), reason="make image-test"),
    pytest.mark.timeout(1800),
    pytest.mark.kafka,
]
LIMIT: Final = 256 * 2**20
EXECUTORS: Final = 16
RIG: Final = Path(__file__).parents[1] / "rig"


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with Scene(tmp_path) as scene:
        yield scene


Make = Callable[..., Replica]


@pytest.fixture
def make(containers: Engine, kafka: KafkaOperations, group: str, tmp_path: Path) -> Make:
    repository, _, tag = TAG.rpartition(":")
    numbers = iter(range(10))

    def one(route: dict[str, Any], *, native: bool = True) -> Replica:
        directory = tmp_path / f"pod-{next(numbers)}"
        directory.mkdir()
        directory.chmod(0o777)
        app_port, port = free_ports(2)
        image = {"repository": repository, "tag": tag}
        values = {
            "app/image": image,
            "app/command": ["/opt/sidecar/bin/python", "/rig/recorder.py"],
            "app/args": ["--journal", "/journal/journal", "--port", str(app_port)],
            "app/ports": [{"name": "http", "containerPort": app_port}],
            "app/volumeMounts": [
                {"name": "rig", "mountPath": "/rig", "readOnly": True},
                {"name": "journal", "mountPath": "/journal"},
            ],
            "extraVolumes": [
                {"name": "rig", "hostPath": {"path": str(RIG)}},
                {"name": "journal", "hostPath": {"path": str(directory)}},
            ],
            "sidecar/image": image,
            "sidecar/native": native,
            "sidecar/config/kafka": {
                "bootstrap.servers": kafka.bootstrap_servers,
                "group.id": group,
            },
            "sidecar/config/routes/0": {"target": f"http://127.0.0.1:{app_port}/", **route},
            "sidecar/config/admin/port": port,
        }
        pod = ImagePod(*pod_and_config_maps(render(changed(values)).objects), containers)
        return Replica(pod, directory / "journal")

    return one


def test_it_drains_under_load_and_outlives_its_app_within_the_limit_of_memory(
    make: Make, kafka: KafkaOperations, topic: TopicFactory, group: str, scene: Scene
) -> None:
    """K8S-3, K8S-4. Records of 100 kB fill everything there is; the app is killed meanwhile."""
    name, dead = topic(PARTITIONS), topic(1, name="dead")
    route = {"topics": [name], "dead_letter": {"topic": dead}, "retry": {"max_attempts": 1}}
    replica = make(route)
    pod = replica.pod
    assert isinstance(pod, ImagePod)
    load = {"partitions": PARTITIONS, "rate": 400, "delay_ms": 100}
    with pod:
        replica.start()
        large = scene.load(kafka.bootstrap_servers, name, count=1500, size=100_000, **load)
        eventually(lambda: len(replica.seen.answered) > 300, "it delivers")
        pod.containers["app"].kill()
        sidecar = pod.containers["sidecar"]

        def state() -> str:
            told = json.loads(pod.asked("sidecar", "sidecar", "routes", "--json"))
            return str(told[0]["availability"]["state"])

        eventually(lambda: state() == "held", "the records are held")
        pod.restart("app")
        assert large.wait(60) == 0
        at_the_end(kafka, group, name)
        assert set(replica.seen.answered) == set(range(1500))
        assert sum(kafka.end_offsets(dead).values()) == 0
        # What was on the wire when the app was killed has not been answered, and comes again.
        assert replica.seen.arrivals.total() <= 1500 + EXECUTORS

        pod.restart("app")  # it runs: as after a failed liveness probe
        waited = pod.at("app", What.HOOK_ENDED) - pod.at("app", What.HOOK)
        assert waited < 15, "the app's hook waited for a drain that did not begin"

        scene.load(kafka.bootstrap_servers, name, first=1500, count=100_000, **load)
        eventually(lambda: len(replica.seen.answered) > 1700, "it delivers")
        peak, oom = sidecar.peak_bytes, sidecar.state["OOMKilled"]
        pod.delete()
        assert pod.until_ended()["sidecar"] == 0, pod.said("sidecar")[-3000:]
        assert not oom
        assert not sidecar.state["OOMKilled"]
        assert 0 < peak < LIMIT
        assert pod.at("app", What.HOOK_ENDED) < pod.at("app", What.SIGTERM)
        seen = replica.seen
        late = range(1500, 200_000)
        assert {n for n in seen.arrivals if n in late} == {n for n in seen.answered if n in late}
        assert pod.stop_seconds < pod.grace_seconds


@pytest.mark.parametrize(
    "guarantee",
    [{"guarantee": "at_least_once"}, {"guarantee": "at_most_once", "loss_budget": 100}],
    ids=["at_least_once", "at_most_once"],
)
def test_a_rolling_replacement_loses_and_repeats_nothing(
    make: Make,
    kafka: KafkaOperations,
    topic: TopicFactory,
    group: str,
    scene: Scene,
    guarantee: dict[str, Any],
) -> None:
    name = topic(PARTITIONS)
    roll(kafka, name, group, scene, lambda: make({"topics": [name], **guarantee}))
