"""The definitions of custom resources, as their projects publish them in their Go modules.

Fetched once by the Go command, which also checks their hashes; nothing of them is kept here.
"""

from __future__ import annotations

import functools
import json
import subprocess
from pathlib import Path
from typing import Any, Final

import jsonschema
import yaml

_KEDA: Final = "github.com/kedacore/keda/v2@v2.17.0"
_PROMETHEUS: Final = "github.com/prometheus-operator/prometheus-operator@v0.83.0"
_MONITORING: Final = "example/prometheus-operator-crd/monitoring.coreos.com"
DEFINITIONS: Final = {
    "ScaledObject": (_KEDA, "config/crd/bases/keda.sh_scaledobjects.yaml"),
    "PodMonitor": (_PROMETHEUS, f"{_MONITORING}_podmonitors.yaml"),
    "PrometheusRule": (_PROMETHEUS, f"{_MONITORING}_prometheusrules.yaml"),
}


class NoDefinition(Exception):
    """It is not here and cannot be fetched."""


def validate(resource: dict[str, Any]) -> None:
    """Raises jsonschema.ValidationError; unknown fields are errors, too."""
    # Not jsonschema.validate: it would judge the patterns, which are Go's, needed or not.
    jsonschema.Draft7Validator(_schema(resource["kind"], resource["apiVersion"])).validate(resource)


@functools.cache
def _schema(kind: str, api_version: str) -> dict[str, Any]:
    module, file = DEFINITIONS[kind]
    definition = yaml.safe_load((_module(module) / file).read_text(encoding="utf-8"))
    group, version = api_version.split("/")
    assert definition["spec"]["group"] == group
    (served,) = (each for each in definition["spec"]["versions"] if each["name"] == version)
    schema: dict[str, Any] = _closed(served["schema"]["openAPIV3Schema"])
    # The API server adds what every object has.
    schema["properties"]["metadata"] = {"type": "object", "required": ["name", "namespace"]}
    return schema


@functools.cache
def _module(name: str) -> Path:
    try:
        done = subprocess.run(
            ["go", "mod", "download", "-json", name],
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise NoDefinition(f"{name} could not be fetched: {error}") from error
    return Path(json.loads(done.stdout)["Dir"])


def _closed(node: Any) -> Any:
    """What has named properties has no others, unless it says so."""
    if isinstance(node, list):
        return [_closed(each) for each in node]
    if not isinstance(node, dict):
        return node
    closed = {key: _closed(value) for key, value in node.items()}
    if isinstance(closed.get("properties"), dict) and closed.get("type") == "object":
        keeps = closed.get("x-kubernetes-preserve-unknown-fields", False)
        closed.setdefault("additionalProperties", bool(keeps))
    return closed
