"""An operator changes the real process under load, on a real Kafka."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.scenarios import resize
from tests.conftest import TopicFactory
from tests.rig.operations import KafkaOperations
from tests.rig.processes import Scene, Sidecar, at_the_end, config, route
from tests.rig.scripted_app import ScriptedApp, held_by
from tests.rig.waiting import eventually

pytestmark = pytest.mark.kafka


@pytest.mark.timeout(300)
def test_executors_change_under_load_while_a_member_comes_and_goes(
    kafka: KafkaOperations, tmp_path: Path
) -> None:
    """CTL-1: nothing is lost, repeated or cancelled, and each change is in force within 2 s."""
    for line in resize(kafka, tmp_path, 1, 0, 10):
        assert line.ok, line


class Operator:
    """The command line, by the Unix socket."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __call__(self, *arguments: str, code: int = 0) -> Any:
        command = [sys.executable, "-m", "sidecar", *arguments, "--json", f"--socket={self._path}"]
        ran = subprocess.run(command, capture_output=True, check=False, text=True, timeout=60)
        assert ran.returncode == code, ran.stderr
        return json.loads(ran.stdout) if code == 0 else ran.stderr


@pytest.fixture
def path() -> Iterator[Path]:
    """Of a Unix socket: short, as the kernel takes no long ones."""
    with tempfile.TemporaryDirectory(prefix="sidecar-") as directory:
        yield Path(directory) / "admin.sock"


def started(
    scene: Scene, kafka: KafkaOperations, group: str, routes: list[dict[str, Any]], path: Path
) -> tuple[Sidecar, Operator]:
    what = config(kafka.bootstrap_servers, group, routes)
    sidecar = scene.sidecar({**what, "admin": {"socket": str(path)}})
    eventually(path.exists, "the socket is there")
    return sidecar, Operator(path)


def test_a_stuck_record_is_found_and_parked_by_the_command_line(
    kafka: KafkaOperations, topic: TopicFactory, group: str, scene: Scene, path: Path
) -> None:
    """The one that hangs is seen, parked, and the group ends at lag 0."""
    name, dead = topic(1), topic(1)
    kafka.produce(name, [b"%d" % number for number in range(20)])
    with ScriptedApp(held_by(threading.Event(), b"7")) as app:
        wanted = route(name, app.port, executors=4, dead_letter={"topic": dead})
        sidecar, operator = started(scene, kafka, group, [wanted], path)
        app.until(lambda seen: len(seen) == 20)
        eventually(lambda: len(operator("in-flight")) == 1, "only one hangs")
        (stuck,) = operator("in-flight", "--payload")
        assert (stuck["offset"], stuck["payload"]["value"]) == (7, "Nw==")
        assert operator("record", "park", f"{name}/0/7")["was"] == "executing"
        at_the_end(kafka, group, name)
        (letter,) = kafka.read(dead)
        assert letter.value() == b"7"
        assert "not in flight" in operator("record", "park", f"{name}/0/7", code=1)
        assert operator("drain", "--wait=20s") == {"drained": True}
        assert sidecar.ended() == 0
        assert len(app.requests) == 20


def test_pause_threshold_and_rate_limit_by_the_command_line(
    kafka: KafkaOperations, topic: TopicFactory, group: str, scene: Scene, path: Path
) -> None:
    name = topic(1)
    with ScriptedApp() as app:
        sidecar, operator = started(scene, kafka, group, [route(name, app.port)], path)
        eventually(lambda: sidecar.route()["state"] == "running", "it runs")
        assert operator("pause") == {"state": "paused"}
        assert operator("threshold", "30")["wanted"] == 30
        # First a few: what was asked for before the change may come beyond it.
        for numbers, held in ((range(10), 10), (range(10, 100), 30)):
            kafka.produce(name, [b"%d" % number for number in numbers])
            eventually(lambda: sidecar.route()["in_flight"] == held, f"{held} are held")  # noqa: B023
        assert app.requests == []
        assert operator("rate-limit", "50")["wanted"] == 50
        assert operator("resume") == {"state": "running"}
        at_the_end(kafka, group, name)
        times = [each.at for each in app.requests]
        assert len(times) == 100
        assert max(times) - min(times) > 95 / 50 * 0.9
        assert sidecar.stop() == 0
        told = [each for each in sidecar.entries() if each["logger"] == "sidecar.audit"]
        assert [each["by"] for each in told] == ["the Unix socket"] * 4


def test_an_attack_on_the_admin_surface_disturbs_neither_the_dispatch_nor_the_stop(
    kafka: KafkaOperations, topic: TopicFactory, group: str, scene: Scene, path: Path
) -> None:
    """500 idle connections, slow, huge and deaf clients, dashboards, and four never satisfied.

    The operator gets in, memory stays bounded, and their open connections do not hold up the end.
    """
    name = topic(1)
    with ScriptedApp() as app:
        sidecar, operator = started(scene, kafka, group, [route(name, app.port)], path)
        eventually(lambda: sidecar.route()["state"] == "running", "it runs")
        before = sidecar.resident_bytes()
        attack = subprocess.Popen(
            [sys.executable, "-m", "bench.attack", str(sidecar.port)], stdout=subprocess.PIPE
        )
        try:
            kafka.produce(name, [b"x"] * 2000)
            at_the_end(kafka, group, name)
            assert len(app.requests) == 2000
            assert operator("executors", "5")["wanted"] == 5
            assert sidecar.resident_bytes() - before < 30_000_000
            began = time.monotonic()
            assert sidecar.stop() == 0
            assert time.monotonic() - began < 10  # on a busy machine; the server itself takes 1 s
        finally:
            attack.terminate()
            answers, _ = attack.communicate(timeout=30)
    assert int(answers) > 0
