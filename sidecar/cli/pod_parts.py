"""The sidecar's parts of a pod, and how they get into one that is parsed.

Pure: it changes mappings and lists in place and reads no file. What is right already is left
untouched, so that doing it twice is doing it once. The chart renders the same container.
"""

from __future__ import annotations

import math
from collections.abc import MutableMapping, MutableSequence
from dataclasses import dataclass
from typing import Any, Final

USER: Final = 65532
NAME: Final = "sidecar"
CONFIG_VOLUME: Final = "sidecar-config"
RUN_VOLUME: Final = "sidecar-run"
CONFIG_FILE: Final = "sidecar.yaml"
SECRETS: Final = "/run/secrets/"  # in directories of their own
CHECKSUM: Final = "checksum/sidecar-config"
DRAINED: Final = "/v1/drained?wait_seconds="
# When the app alone is restarted, its hook runs as well, and no drain comes.
_BEGINS_WITHIN: Final = "&begins_within_seconds=10"

_MOUNTED: Final = "sidecar-secret-"
_KUBELETS_GRACE_SECONDS: Final = 30  # where a pod says nothing

Node = MutableMapping[str, Any]

_LISTS: Final = {"env": "name", "volumeMounts": "mountPath", "ports": "name"}  # of a container


@dataclass(frozen=True, slots=True)
class Parts:
    """What is put in, and what it is called."""

    image: str
    config_map: str | None  # by the workload's name where nothing is said
    checksum: str
    drain_seconds: float
    stop_seconds: int  # what the app needs from its SIGTERM to its end
    port: int
    native: bool
    app: str | None  # the container that is the application, where there are several
    keep_pre_stop: bool  # the app's own hook stays, and nothing waits for the drain
    secrets: tuple[tuple[str, str], ...] = ()  # where it is mounted, and its name

    @property
    def wait_seconds(self) -> int:
        return math.ceil(self.drain_seconds)


def put_into(template: Node, app: Node, parts: Parts, config_map: str) -> None:
    """Into a pod's template, where this container is the application."""
    spec = template["spec"]
    given = spec.get("terminationGracePeriodSeconds")
    grace = max(
        _KUBELETS_GRACE_SECONDS if given is None else given,
        parts.wait_seconds + parts.stop_seconds,
    )
    _set(spec, "terminationGracePeriodSeconds", grace)
    _place(spec, container(parts, grace), native=parts.native)
    for volume in volumes(parts, config_map):
        _put(_list(spec, "volumes"), volume)
    if not parts.keep_pre_stop:
        _set(_section(app, "lifecycle"), "preStop", pre_stop(parts))
    _set(_section(_section(template, "metadata"), "annotations"), CHECKSUM, parts.checksum)


def container(parts: Parts, grace: int) -> dict[str, Any]:
    restart = {"restartPolicy": "Always"} if parts.native else {}
    return {
        "name": NAME,
        "image": parts.image,
        **restart,
        "args": ["run", "-c", f"/etc/sidecar/{CONFIG_FILE}"],
        "env": [
            # Probes and scrapers come from outside the pod.
            {"name": "SIDECAR_ADMIN__HOST", "value": "0.0.0.0"},
            {"name": "SIDECAR_GRACE_SECONDS", "value": str(grace)},
        ],
        "ports": [{"name": "sidecar-admin", "containerPort": parts.port, "protocol": "TCP"}],
        "startupProbe": {**_probe("/startupz"), "periodSeconds": 1, "failureThreshold": 60},
        "livenessProbe": {
            **_probe("/livez"),
            "periodSeconds": 10,
            "timeoutSeconds": 5,
            "failureThreshold": 3,
        },
        "readinessProbe": {**_probe("/readyz"), "periodSeconds": 10, "timeoutSeconds": 5},
        "lifecycle": {
            "preStop": {"exec": {"command": [NAME, "drain", "--wait", f"{parts.wait_seconds}s"]}}
        },
        "resources": {
            "requests": {"cpu": "100m", "memory": "128Mi"},
            "limits": {"memory": "256Mi"},
        },
        "securityContext": {
            "runAsUser": USER,
            "runAsGroup": USER,
            "runAsNonRoot": True,
            "readOnlyRootFilesystem": True,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumeMounts": [
            {"name": CONFIG_VOLUME, "mountPath": "/etc/sidecar", "readOnly": True},
            {"name": RUN_VOLUME, "mountPath": "/run/sidecar"},
            *(
                {
                    "name": f"{_MOUNTED}{name}",
                    "mountPath": f"{SECRETS}{name}",
                    "readOnly": True,
                }
                for name, _ in parts.secrets
            ),
        ],
    }


def volumes(parts: Parts, config_map: str) -> list[dict[str, Any]]:
    # Of the usual mode, which its user may read: nobody else sees what only it mounts.
    secrets = [
        {"name": f"{_MOUNTED}{name}", "secret": {"secretName": secret}}
        for name, secret in parts.secrets
    ]
    return [
        {"name": CONFIG_VOLUME, "configMap": {"name": config_map}},
        {"name": RUN_VOLUME, "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
        *secrets,
    ]


def pre_stop(parts: Parts) -> dict[str, Any]:
    """The app's hook: its SIGTERM comes after the sidecar has drained."""
    path = f"{DRAINED}{parts.wait_seconds}{_BEGINS_WITHIN}"
    return {"httpGet": {"path": path, "port": parts.port}}


def _probe(path: str) -> dict[str, Any]:
    return {"httpGet": {"path": path, "port": "sidecar-admin"}}


def _place(spec: Node, wanted: dict[str, Any], *, native: bool) -> None:
    """In the one list, and no more in the other."""
    here, there = ("initContainers", "containers") if native else ("containers", "initContainers")
    nodes = spec.get(there) or ()
    moved: Node = {}
    for index in reversed([at for at, each in enumerate(nodes) if each.get("name") == NAME]):
        moved = spec[there].pop(index)
    if there in spec and not spec[there]:
        del spec[there]
    # Behind the others: what prepares the pod has run when it starts.
    nodes = _list(spec, here)
    present = next((each for each in nodes if each.get("name") == NAME), moved)
    _put(nodes, _merged(present, wanted))


def _merged(present: Node, wanted: dict[str, Any]) -> dict[str, Any]:
    """What is ours as it has to be. What somebody added stays: variables, mounts, resources."""
    merged = {key: value for key, value in present.items() if key != "restartPolicy"} | wanted
    for name, key in _LISTS.items():
        missing = {each[key]: each for each in wanted[name]}
        there = [missing.pop(each.get(key), each) for each in mappings_in(present, name)]
        merged[name] = [*there, *missing.values()]
    return merged | {"resources": present.get("resources") or wanted["resources"]}


def _put(nodes: MutableSequence[Any], wanted: dict[str, Any]) -> None:
    for index, each in enumerate(nodes):
        if each.get("name") == wanted["name"]:
            nodes[index] = wanted
            return
    nodes.append(wanted)


def _set(node: Node, key: str, value: object) -> None:
    if node.get(key) != value:
        node[key] = value


def mapping_in(node: Node, key: str) -> Node:
    """What is there, or nothing."""
    found = node.get(key)
    return found if isinstance(found, MutableMapping) else {}


def mappings_in(node: Node, key: str) -> list[Node]:
    found = node.get(key)
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _section(node: Node, key: str) -> Node:
    if not isinstance(node.get(key), MutableMapping):
        node[key] = {}
    section: Node = node[key]
    return section


def _list(node: Node, key: str) -> MutableSequence[Any]:
    if not isinstance(node.get(key), MutableSequence):
        node[key] = []
    found: MutableSequence[Any] = node[key]
    return found
