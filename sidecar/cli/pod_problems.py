"""Why the sidecar cannot be put into a pod, and which of its containers is the application.

Pure: it reads the parsed manifest and changes nothing. What is not looked at is judged by the API
server.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from sidecar.cli.pod_parts import (
    CONFIG_VOLUME,
    DRAINED,
    NAME,
    USER,
    Node,
    Parts,
    mapping_in,
    mappings_in,
    volumes,
)

_SYSTEM_LABELS: Final = ("kubernetes.io/os", "beta.kubernetes.io/os")
_READABLE_BY_OTHERS: Final = 0o004
_SOURCES: Final = ("secret", "configMap", "downwardAPI")  # of volumes with a mode


def is_pod(spec: object) -> bool:
    """Whether what is read here is of the right kind."""
    if not isinstance(spec, dict) or not spec.get("containers"):
        return False
    lists = [spec.get(name) or [] for name in ("containers", "initContainers", "volumes")]
    return all(
        isinstance(nodes, list) and all(isinstance(each, dict) for each in nodes) for nodes in lists
    )


def problem_of(kind: str, spec: Node, parts: Parts) -> str | None:
    return next(_problems(kind, spec, parts), None)


def _problems(kind: str, spec: Node, parts: Parts) -> Iterator[str]:
    every = [*mappings_in(spec, "initContainers"), *mappings_in(spec, "containers")]
    if any("{{" in str(each.get(field)) for each in every for field in ("name", "image")):
        yield "is a template: it has to be rendered first"
    grace = spec.get("terminationGracePeriodSeconds")
    if grace is not None and (not isinstance(grace, int) or isinstance(grace, bool)):
        yield f"has a terminationGracePeriodSeconds that is no number: {grace!r}"
    if spec.get("hostNetwork"):
        yield (
            "uses the node's network: the sidecar's port would be the node's, use a pod of its own"
        )
    if "windows" in _systems(spec):
        yield "runs on Windows, the sidecar on Linux only"
    if not parts.native and kind in ("Job", "CronJob"):
        yield "would never complete beside an ordinary container: leave out --classic"
    ours = [each for each in every if each.get("name") == NAME]
    if len(ours) > 1 or not all(map(_is_ours, ours)):
        yield f"has a container named {NAME} that is another one: rename it"
    names = [each["name"] for each in volumes(parts, "")]
    for volume in () if ours else mappings_in(spec, "volumes"):
        if volume.get("name") in names:
            yield f"has a volume named {volume['name']} that is another one: rename it"
    for each in every:
        ports = [str(port.get("containerPort")) for port in mappings_in(each, "ports")]
        if each.get("name") != NAME and str(parts.port) in ports:
            yield (
                f"container {each.get('name')} listens on {parts.port} as the sidecar would:"
                " choose another admin.port"
            )
    for each in ours:
        yield from _unreadable(spec, each)


def _systems(spec: Node) -> Iterator[object]:
    yield mapping_in(spec, "os").get("name")
    yield from map(mapping_in(spec, "nodeSelector").get, _SYSTEM_LABELS)
    affinity = mapping_in(mapping_in(spec, "affinity"), "nodeAffinity")
    required = mapping_in(affinity, "requiredDuringSchedulingIgnoredDuringExecution")
    for term in mappings_in(required, "nodeSelectorTerms"):
        for each in mappings_in(term, "matchExpressions"):
            if each.get("key") in _SYSTEM_LABELS and each.get("operator") == "In":
                values = each.get("values")
                yield from values if isinstance(values, list) and len(values) == 1 else ()


def _unreadable(spec: Node, ours: Node) -> Iterator[str]:
    """What somebody mounted into the sidecar, and its user may not read without the pod's help."""
    if mapping_in(spec, "securityContext").get("fsGroup") is not None:
        return
    mounted = [each.get("name") for each in mappings_in(ours, "volumeMounts")]
    for volume in mappings_in(spec, "volumes"):
        for mode in _modes(volume) if volume.get("name") in mounted else ():
            if isinstance(mode, int) and not mode & _READABLE_BY_OTHERS:
                yield (
                    f"has a volume {volume['name']} for the sidecar whose files ({mode:04o}) its"
                    f" user {USER} cannot read: leave out the mode, or say securityContext:"
                    f" {{fsGroup: {USER}}} in the pod"
                )
                break


def _modes(volume: Node) -> Iterator[Any]:
    projected = mapping_in(volume, "projected")
    yield projected.get("defaultMode")
    for place in (volume, *mappings_in(projected, "sources")):
        for source in (mapping_in(place, name) for name in _SOURCES):
            yield source.get("defaultMode")
            yield from (each.get("mode") for each in mappings_in(source, "items"))


def app_of(spec: Node, parts: Parts) -> Node | str:
    """The application's container, or why it cannot be told or taken."""
    others = [each for each in mappings_in(spec, "containers") if each.get("name") != NAME]
    names = ", ".join(str(each.get("name")) for each in others)
    chosen = others
    if len(others) > 1:
        if parts.app is None:
            return f"which container is the application: {names}? Say --container NAME"
        chosen = [each for each in others if each.get("name") == parts.app]
    if not chosen:
        return f"has no container {parts.app}, only {names}" if others else "has no container"
    app = chosen[0]
    hook = mapping_in(mapping_in(app, "lifecycle"), "preStop")
    waits = str(mapping_in(hook, "httpGet").get("path")).startswith(DRAINED)
    if hook and not waits and not parts.keep_pre_stop:
        return (
            "has a preStop hook of its own, which does not wait for the sidecar's drain: let it end"
            " by waiting for GET /v1/drained?wait_seconds=…, and say --keep-pre-stop"
        )
    return app


def _is_ours(node: Node) -> bool:
    return any(each.get("name") == CONFIG_VOLUME for each in mappings_in(node, "volumeMounts"))
