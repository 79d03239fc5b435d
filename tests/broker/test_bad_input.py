"""What an operator gets wrong: a clear line names it and the way out, and nothing is lost."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from tests.conftest import TopicFactory
from tests.rig.kafka import KafkaCluster
from tests.rig.operations import KafkaOperations
from tests.rig.processes import Scene, Sidecar, at_the_end, config, route
from tests.rig.scripted_app import ScriptedApp
from tests.rig.waiting import eventually

kafka_needed = pytest.mark.kafka


def troubles(sidecar: Sidecar) -> list[str]:
    """Whatever is worse than info."""
    return [each["message"] for each in sidecar.entries() if each["level"] in ("warning", "error")]


def is_clear(sidecar: Sidecar, *parts: str, lines: int) -> None:
    """A line with all these parts; few lines in all; no traceback."""
    found = troubles(sidecar)
    assert any(all(part in each for part in parts) for each in found), found
    assert len(found) <= lines, found
    assert "Traceback" not in sidecar.log.read_text()


# --- at run time: it keeps trying ---------------------------------------------------------------


@kafka_needed
def test_an_unreachable_broker_is_waited_for(
    breakable_kafka: KafkaCluster, topic: TopicFactory, group: str, scene: Scene
) -> None:
    name = topic(1, on=breakable_kafka)
    breakable_kafka.produce(name, [b"x"])
    breakable_kafka.node(1).kill()
    with ScriptedApp() as app:
        sidecar = scene.sidecar(
            config(breakable_kafka.bootstrap_servers, group, [route(name, app.port)])
        )
        address = breakable_kafka.bootstrap_servers
        eventually(
            lambda: any(address in each for each in troubles(sidecar)), "it says what is wrong"
        )
        eventually(lambda: sidecar.status()["uptime_seconds"] > 8, "the trouble repeats")
        is_clear(sidecar, address, "check bootstrap.servers", lines=6)
        assert sidecar.status()["ready"]
        breakable_kafka.heal()
        app.until(lambda seen: len(seen) == 1)
        at_the_end(breakable_kafka, group, name)
        assert sidecar.stop() == 0


@kafka_needed
def test_a_missing_topic_is_waited_for(kafka: KafkaOperations, group: str, scene: Scene) -> None:
    name = f"late-{group}"
    with ScriptedApp() as app:
        sidecar = scene.sidecar(
            config(
                kafka.bootstrap_servers,
                group,
                [route(name, app.port)],
                topic_metadata_refresh_interval_ms=500,
            )
        )
        eventually(lambda: any(name in each for each in troubles(sidecar)), "it names the topic")
        eventually(lambda: sidecar.status()["uptime_seconds"] > 6, "the trouble repeats")
        is_clear(sidecar, name, "create the topic, or correct the name", lines=3)
        kafka.create_topic(name)
        kafka.produce(name, [b"x"])
        app.until(lambda seen: len(seen) == 1)
        at_the_end(kafka, group, name)
        assert sidecar.stop() == 0


def acl(kind: ResourceType, name: str, user: str) -> AclBinding:
    return AclBinding(
        kind, name, ResourcePatternType.LITERAL, f"User:{user}", "*",
        AclOperation.ALL, AclPermissionType.ALLOW,
    )  # fmt: skip


@kafka_needed
@pytest.mark.parametrize(
    ("kind", "way_out"),
    [
        (ResourceType.GROUP, "allow the user Describe and Read on the group"),
        (ResourceType.TOPIC, "allow the user Describe and Read on it"),
    ],
    ids=lambda each: getattr(each, "name", None),
)
def test_a_missing_permission_is_named_and_waited_for(
    guarded: KafkaCluster,
    topic: TopicFactory,
    group: str,
    scene: Scene,
    kind: ResourceType,
    way_out: str,
) -> None:
    name = topic(1, on=guarded)
    guarded.produce(name, [b"x"])
    subject = group if kind is ResourceType.GROUP else name
    for future in guarded.admin.create_acls([acl(kind, subject, "else")]).values():
        future.result(30)
    with ScriptedApp() as app:
        sidecar = scene.sidecar(
            config(
                guarded.bootstrap_servers,
                group,
                [route(name, app.port)],
                topic_metadata_refresh_interval_ms=500,
            )
        )
        eventually(lambda: any(way_out in each for each in troubles(sidecar)), "the way out")
        eventually(lambda: sidecar.status()["uptime_seconds"] > 6, "the trouble repeats")
        is_clear(sidecar, way_out, lines=4)
        assert app.requests == []
        for future in guarded.admin.create_acls([acl(kind, subject, "ANONYMOUS")]).values():
            future.result(30)
        app.until(lambda seen: len(seen) == 1)
        assert sidecar.stop() == 0


@kafka_needed
def test_an_app_that_is_not_there_is_named(
    kafka: KafkaOperations, topic: TopicFactory, group: str, scene: Scene
) -> None:
    name = topic(1)
    app = ScriptedApp()
    sidecar = scene.sidecar(config(kafka.bootstrap_servers, group, [route(name, app.port)]))
    eventually(lambda: troubles(sidecar), "it says what is wrong")
    eventually(lambda: sidecar.status()["uptime_seconds"] > 3, "the trouble repeats")
    is_clear(sidecar, f"127.0.0.1:{app.port}", "refused", lines=1)
    terminated = sidecar.stop(5)
    assert terminated == 0


# --- before it starts ---------------------------------------------------------------------------


def what(**more: Any) -> dict[str, Any]:
    """A configuration without a broker behind it."""
    return {**config("127.0.0.1:1", "g", [route("orders", 1)]), **more}


def test_an_admin_port_in_use_ends_it(scene: Scene) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        sidecar = scene.sidecar(what(admin={"port": port}))
        assert sidecar.ended(10) == 1
    is_clear(sidecar, f"{port}", "Address already in use", "admin.port", lines=1)


@pytest.mark.parametrize(
    ("wrong", "parts"),
    [
        (
            what(routes=[route("orders", 1, guarantee="at_most_once")]),
            ("routes[0]", "loss_budget"),
        ),
        (
            what(kafka={**what()["kafka"], "enable.auto.commit": True}),
            ("kafka", "enable.auto.commit"),
        ),
        (what(kafka={**what()["kafka"], "fetch.wiat.max.ms": 1}), ("fetch.wait.max.ms",)),
        (what(routes=[route("orders", 1, executor=1)]), ("routes[0].executor", "executors")),
    ],
    ids=["no loss budget", "forbidden property", "misspelt property", "misspelt key"],
)
def test_a_wrong_configuration_is_told_in_a_line(
    scene: Scene, wrong: dict[str, Any], parts: tuple[str, ...]
) -> None:
    sidecar = scene.sidecar(wrong)
    assert sidecar.ended(10) == 2
    (line,) = sidecar.log.read_text().splitlines()
    assert all(part in line for part in parts), line


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("kafka: {bootstrap.servers: x\nroutes: [", ("sidecar.yaml:2:7", "YAML")),
        ("kafka:\n\tgroup.id: g\n", ("sidecar.yaml:2:1", "'\\t'")),
        ("just words", ("mapping",)),
        ("", ("routes",)),
    ],
    ids=["open brackets", "tab", "no mapping", "empty"],
)
def test_a_file_that_is_no_configuration_is_told_in_lines(
    tmp_path: Path, text: str, parts: tuple[str, ...]
) -> None:
    file = tmp_path / "sidecar.yaml"
    file.write_text(text)
    ended = subprocess.run(
        [sys.executable, "-m", "sidecar", "run", "-c", str(file)],
        capture_output=True, text=True, timeout=20, check=False,
    )  # fmt: skip
    assert ended.returncode == 2
    assert "Traceback" not in ended.stderr
    assert all(part in ended.stderr for part in parts), ended.stderr
    assert all(line.startswith("sidecar: ") for line in ended.stderr.splitlines())
