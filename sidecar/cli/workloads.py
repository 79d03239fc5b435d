"""The workloads in parsed manifests, and what the sidecar has to know of them."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import Any, Final

from sidecar.cli import pod_parts, pod_problems
from sidecar.cli.pod_parts import CONFIG_VOLUME, Node, Parts, mapping_in, mappings_in
from sidecar.errors import SidecarError

_GROUPS: Final = ("", "apps", "batch", "extensions")  # in others a Job is another thing
_TEMPLATE: Final = ("spec", "template")
_TEMPLATES: Final[dict[str, tuple[str, ...]]] = {
    "Deployment": _TEMPLATE,
    "StatefulSet": _TEMPLATE,
    "DaemonSet": _TEMPLATE,
    "Job": _TEMPLATE,
    "CronJob": ("spec", "jobTemplate", "spec", "template"),
}


def objects(document: object) -> Iterator[Node]:
    """A document, or those in it where it is a list of them."""
    if not isinstance(document, MutableMapping):
        return
    if str(document.get("kind")).endswith("List"):
        for item in mappings_in(document, "items"):
            yield from objects(item)
    else:
        yield document


def is_workload(node: Node) -> bool:
    group = str(node.get("apiVersion") or "").rpartition("/")[0]
    return str(node.get("kind")) in _TEMPLATES and group in _GROUPS


def name_of(workload: Node) -> str | None:
    """What it is called; of a Job that is made again and again, how its names begin."""
    metadata = mapping_in(workload, "metadata")
    name = metadata.get("name", metadata.get("generateName"))
    return None if name is None else str(name).rstrip("-.")


def namespace_of(node: Node) -> str | None:
    namespace = mapping_in(node, "metadata").get("namespace")
    return None if namespace is None else str(namespace)


def described(workload: Node) -> str:
    return " ".join(filter(None, (workload["kind"], name_of(workload))))


def template_of(workload: Node) -> Node | None:
    node: Any = workload
    for part in _TEMPLATES[workload["kind"]]:
        node = node.get(part) if isinstance(node, MutableMapping) else None
    return node if isinstance(node, MutableMapping) else None


def config_map_in(workload: Node) -> str | None:
    """Where a sidecar that is in it already has its configuration."""
    spec = mapping_in(template_of(workload) or {}, "spec")
    for volume in mappings_in(spec, "volumes"):
        if volume.get("name") == CONFIG_VOLUME:
            name = mapping_in(volume, "configMap").get("name")
            return None if name is None else str(name)
    return None


def put_into(workload: Node, parts: Parts, config_map: str) -> None:
    """Raises SidecarError with the reason, before anything is changed."""
    template = template_of(workload)
    if template is None or not pod_problems.is_pod(template.get("spec")):
        raise SidecarError(
            f"{described(workload)}: is no workload with containers; if it is a patch, take what it"
            " patches"
        )
    spec = template["spec"]
    problem = pod_problems.problem_of(workload["kind"], spec, parts)
    app = problem or pod_problems.app_of(spec, parts)
    if isinstance(app, str):
        raise SidecarError(f"{described(workload)}: {app}")
    pod_parts.put_into(template, app, parts, config_map)
