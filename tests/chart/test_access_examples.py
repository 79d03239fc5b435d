"""The examples of access to Kafka: what the chart makes of them is a valid configuration."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from sidecar.kafka.client_config import consumer_config
from sidecar.settings import load_settings
from tests.rig.helm import render

EXAMPLES: Final = Path(__file__).parents[2] / "deploy" / "examples"
NAMES: Final = ("confluent-cloud", "msk", "redpanda", "strimzi")


def read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((EXAMPLES / f"{name}.yaml").read_text(encoding="utf-8"))
    return found


@pytest.mark.usefixtures("with_helm")
@pytest.mark.parametrize("name", NAMES)
def test_an_example_renders_and_says_how_to_get_in(name: str, tmp_path: Path) -> None:
    """Each secret that the configuration names is mounted, and read."""
    rendered = render(read(name))
    text = rendered.of("ConfigMap")["data"]["sidecar.yaml"]
    named = set(re.findall(r"/run/secrets/(\S+)/\S+", text))
    (container,) = rendered.of("Deployment")["spec"]["template"]["spec"]["initContainers"]
    mounted = {each["mountPath"] for each in container["volumeMounts"]}
    assert {f"/run/secrets/{each}" for each in named} <= mounted
    secret = tmp_path / "secret"
    secret.write_text("hush", encoding="utf-8")
    file = tmp_path / "sidecar.yaml"
    file.write_text(re.sub(r"/run/secrets/\S+", str(secret), text), encoding="utf-8")
    settings = load_settings(file, {})
    config = consumer_config(settings, settings.routes[0])
    assert config["security.protocol"] in ("SASL_SSL", "SSL")
    assert "hush" not in text


def test_the_user_of_strimzi_is_allowed_what_the_page_says() -> None:
    """Of the names that the example's own route and group lead to."""
    values, user = read("strimzi"), read("strimzi-user")
    settings = load_settings(None, {}, _without_files(values["sidecar"]["config"]))
    (route,) = settings.routes
    group = settings.group_of(route)
    assert route.dead_letter is not None
    dead = route.dead_letter.topic
    acls = {
        (acl["resource"]["type"], acl["resource"]["name"]): set(acl["operations"])
        for acl in user["spec"]["authorization"]["acls"]
    }
    assert acls.keys() == {
        ("topic", "orders"),
        ("group", group),
        ("topic", dead),
        ("topic", f"{route.name}.{group}.retry."),
        ("group", f"{group}.redrive"),
        ("transactionalId", f"{group}.redrive.{dead}"),
    }
    assert all(topic.name.startswith(f"{route.name}.{group}.retry.")
               for topic in settings.retry_topics(route))  # fmt: skip


def _without_files(config: dict[str, Any]) -> dict[str, Any]:
    kafka = {name: value for name, value in config["kafka"].items() if not isinstance(value, dict)}
    return {**config, "kafka": kafka}


def test_every_example_is_named_on_the_page() -> None:
    page = (EXAMPLES.parents[1] / "docs" / "kafka-access.md").read_text(encoding="utf-8")
    for file in EXAMPLES.glob("*.yaml"):
        assert f"../deploy/examples/{file.name}" in page, file.name
