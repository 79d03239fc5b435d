"""The ConfigMaps that hold the configuration: one for each workload, by the workload's name.

Two services of a namespace must not share one by accident: the last that is applied would win.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from sidecar.cli.pod_parts import CONFIG_FILE, Node, mapping_in
from sidecar.cli.workloads import config_map_in, described, name_of, namespace_of
from sidecar.errors import SidecarError

_SUFFIX: Final = "-kafka-sidecar"
_LONGEST: Final = 253
_LABEL: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_NAME: Final = re.compile(rf"{_LABEL}(\.{_LABEL})*")


class Place(NamedTuple):
    """Which ConfigMap is meant. No namespace is the one that is chosen when it is applied."""

    namespace: str | None
    name: str


def is_name(text: str) -> bool:
    return len(text) <= _LONGEST and _NAME.fullmatch(text) is not None


def place_for(workload: Node, given: str | None) -> Place:
    """Raises SidecarError where the workload has no name to take."""
    name = name_of(workload)
    if given is None and (name is None or not is_name(name)):
        told = "has no name" if name is None else "has a name that Kubernetes does not take"
        raise SidecarError(
            f"{described(workload)}: {told}, and its ConfigMap would be called by it"
        )
    return Place(namespace_of(workload), given or _name_after(str(name)))


def place_in(workload: Node) -> Place | None:
    """Where the configuration of a sidecar is that is in it already."""
    name = config_map_in(workload)
    return None if name is None else Place(namespace_of(workload), name)


def put_into(
    objects: Iterable[Node], moved: dict[Place, Place | None], text: str
) -> list[dict[str, Any]]:
    """The text into the ConfigMaps that are there; those that are not there yet are returned.

    moved: each that is wanted, and which one was used so far and is by nobody any more.
    """
    present = {
        Place(namespace_of(each), str(mapping_in(each, "metadata").get("name"))): each
        for each in objects
        if each.get("kind") == "ConfigMap"
    }
    missing = []
    for place, before in moved.items():
        found = present.get(place)
        if found is None and before is not None and _is_ours(present.get(before)):
            found = present.pop(before)
            found["metadata"]["name"] = place.name
        if found is None:
            missing.append(_config_map(place, text))
        else:
            found["data"] = {**mapping_in(found, "data"), CONFIG_FILE: text}
    return missing


def _is_ours(config_map: Node | None) -> bool:
    return config_map is not None and mapping_in(config_map, "data").keys() == {CONFIG_FILE}


def _name_after(name: str) -> str:
    whole = f"{name}{_SUFFIX}"
    if len(whole) <= _LONGEST:
        return whole
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    head = name[: _LONGEST - len(f"-{digest}{_SUFFIX}")].rstrip("-.")
    return f"{head}-{digest}{_SUFFIX}"


def _config_map(place: Place, text: str) -> dict[str, Any]:
    namespace = {} if place.namespace is None else {"namespace": place.namespace}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": place.name, **namespace},
        "data": {CONFIG_FILE: text},
    }
