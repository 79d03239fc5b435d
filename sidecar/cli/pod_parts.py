"""The sidecar's parts of a pod, put into the parsed manifest of a workload.

Pure: it changes mappings and lists in place and reads no file. What is right already is left
untouched, so that doing it twice is doing it once. The chart renders the same container.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, MutableMapping, MutableSequence
from dataclasses import dataclass
from typing import Any, Final

from sidecar.errors import SidecarError

NAME: Final = "sidecar"
CONFIG_VOLUME: Final = "sidecar-config"
RUN_VOLUME: Final = "sidecar-run"
CONFIG_FILE: Final = "sidecar.yaml"
CHECKSUM: Final = "checksum/sidecar-config"
DRAINED: Final = "/v1/drained?wait_seconds="
# When the app alone is restarted, its hook runs as well, and no drain comes.
_BEGINS_WITHIN: Final = "&begins_within_seconds=10"
KUBELETS_GRACE_SECONDS: Final = 30  # where a pod says nothing

Node = MutableMapping[str, Any]

_LISTS: Final = {"env": "name", "volumeMounts": "mountPath", "ports": "name"}  # of a container
_SYSTEM_LABELS: Final = ("kubernetes.io/os", "beta.kubernetes.io/os")
_TEMPLATE: Final = ("spec", "template")
_WORKLOADS: Final[dict[str, tuple[str, ...]]] = {
    "Deployment": _TEMPLATE,
    "StatefulSet": _TEMPLATE,
    "DaemonSet": _TEMPLATE,
    "Job": _TEMPLATE,
    "CronJob": ("spec", "jobTemplate", "spec", "template"),
}


@dataclass(frozen=True, slots=True)
class Parts:
    """What is put in, and what it is called."""

    image: str
    config_map: str
    checksum: str
    drain_seconds: float
    stop_seconds: int  # what the app needs from its SIGTERM to its end
    port: int
    native: bool
    app: str | None  # the container that is the application, where there are several
    keep_pre_stop: bool  # the app's own hook stays, and nothing waits for the drain

    @property
    def wait_seconds(self) -> int:
        return math.ceil(self.drain_seconds)


def workloads(document: object) -> Iterator[Node]:
    """Those in a document, which may be a List."""
    if not isinstance(document, MutableMapping):
        return
    if document.get("kind") == "List":
        for item in mappings_in(document, "items"):
            yield from workloads(item)
    elif str(document.get("kind")) in _WORKLOADS:
        yield document


def put_into(workload: Node, parts: Parts) -> None:
    """Raises SidecarError with the reason, before anything is changed."""
    kind, name = workload["kind"], mapping_in(workload, "metadata").get("name")
    template = _template_of(workload)
    spec = template.get("spec") if template is not None else None
    if template is None or not isinstance(spec, MutableMapping) or not _is_pod(spec):
        raise SidecarError(
            f"{kind} {name}: is no workload with containers; if it is a patch, take what it patches"
        )
    problem = _problem(kind, spec, parts)
    app = None if problem else _app_of(spec, parts)
    if isinstance(app, str) or problem:
        raise SidecarError(f"{kind} {name}: {problem or app}")
    assert app is not None
    given = spec.get("terminationGracePeriodSeconds")
    grace = max(
        KUBELETS_GRACE_SECONDS if given is None else given,
        parts.wait_seconds + parts.stop_seconds,
    )
    _set(spec, "terminationGracePeriodSeconds", grace)
    _place(spec, container(parts, grace), native=parts.native)
    for volume in volumes(parts):
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
            "runAsUser": 65532,
            "runAsGroup": 65532,
            "runAsNonRoot": True,
            "readOnlyRootFilesystem": True,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumeMounts": [
            {"name": CONFIG_VOLUME, "mountPath": "/etc/sidecar", "readOnly": True},
            {"name": RUN_VOLUME, "mountPath": "/run/sidecar"},
        ],
    }


def volumes(parts: Parts) -> list[dict[str, Any]]:
    return [
        {"name": CONFIG_VOLUME, "configMap": {"name": parts.config_map}},
        {"name": RUN_VOLUME, "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
    ]


def pre_stop(parts: Parts) -> dict[str, Any]:
    """The app's hook: its SIGTERM comes after the sidecar has drained."""
    path = f"{DRAINED}{parts.wait_seconds}{_BEGINS_WITHIN}"
    return {"httpGet": {"path": path, "port": parts.port}}


def _probe(path: str) -> dict[str, Any]:
    return {"httpGet": {"path": path, "port": "sidecar-admin"}}


def _template_of(workload: Node) -> Node | None:
    node: Any = workload
    for part in _WORKLOADS[workload["kind"]]:
        node = node.get(part) if isinstance(node, MutableMapping) else None
    return node if isinstance(node, MutableMapping) else None


def _is_pod(spec: Node) -> bool:
    """What is read below is of the right kind; the API server judges the rest."""
    lists = [spec.get(name) or () for name in ("containers", "initContainers", "volumes")]
    items = [each for nodes in lists if isinstance(nodes, list | tuple) for each in nodes]
    return (
        bool(lists[0])
        and all(isinstance(nodes, list | tuple) for nodes in lists)
        and all(isinstance(each, MutableMapping) for each in items)
        and isinstance(spec.get("terminationGracePeriodSeconds") or 0, int)
    )


def _problem(kind: str, spec: Node, parts: Parts) -> str | None:
    every = [*mappings_in(spec, "initContainers"), *spec["containers"]]
    if any("{{" in str(each.get(field)) for each in every for field in ("name", "image")):
        return "is a template: it has to be rendered first"
    if spec.get("hostNetwork"):
        return (
            "uses the node's network: the sidecar's port would be the node's, use a pod of its own"
        )
    selector = mapping_in(spec, "nodeSelector")
    systems = [mapping_in(spec, "os").get("name"), *map(selector.get, _SYSTEM_LABELS)]
    if "windows" in systems:
        return "runs on Windows, the sidecar on Linux only"
    if not parts.native and kind in ("Job", "CronJob"):
        return "would never complete beside an ordinary container: leave out --classic"
    ours = [each for each in every if each.get("name") == NAME]
    if not all(_is_ours(each) for each in ours):
        return f"has a container named {NAME} that is another one: rename it"
    for volume in () if ours else mappings_in(spec, "volumes"):
        if volume.get("name") in (CONFIG_VOLUME, RUN_VOLUME):
            return f"has a volume named {volume['name']} that is another one: rename it"
    for each in every:
        ports = [port.get("containerPort") for port in mappings_in(each, "ports")]
        if each.get("name") != NAME and parts.port in ports:
            return (
                f"container {each.get('name')} listens on {parts.port} as the sidecar would:"
                " choose another admin.port"
            )
    return None


def _app_of(spec: Node, parts: Parts) -> Node | str:
    """The application's container, or why it cannot be told or taken."""
    others: list[Node] = [each for each in spec["containers"] if each.get("name") != NAME]
    names = ", ".join(str(each.get("name")) for each in others)
    chosen = [each for each in others if parts.app in (None, each.get("name"))]
    if len(chosen) > 1:
        return f"which container is the application: {names}? Say --container NAME"
    if not chosen:
        return f"has no container {parts.app}, only {names or 'the sidecar'}"
    (app,) = chosen
    hook = mapping_in(mapping_in(app, "lifecycle"), "preStop")
    ours = str(mapping_in(hook, "httpGet").get("path")).startswith(DRAINED)
    if hook and not ours and not parts.keep_pre_stop:
        return (
            "has a preStop hook of its own, which does not wait for the sidecar's drain: let it end"
            " by waiting for GET /v1/drained?wait_seconds=…, and say --keep-pre-stop"
        )
    return app


def _is_ours(node: Node) -> bool:
    return any(each.get("name") == CONFIG_VOLUME for each in mappings_in(node, "volumeMounts"))


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
