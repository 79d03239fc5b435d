"""Secrets that stand in a configuration in plain text, where it is about to be copied elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from sidecar.core.credentials import is_credential
from sidecar.core.kafka_rules import is_secret
from sidecar.errors import Problem

_WAY: Final = (
    "stands there in plain text, and a ConfigMap is no place for a secret: write {env: NAME} or"
    " {file: PATH}, and give the container that variable or file from a Secret"
)
_ADMIN_WAY: Final = (
    "stands there in plain text, and a ConfigMap is no place for a secret: give the container"
    " SIDECAR_ADMIN__TOKEN from a Secret, or write token_file"
)


def plain_secrets(tree: dict[str, Any]) -> Iterator[Problem]:
    """Of a configuration file as parsed, right or wrong; what merely could be one is not meant."""
    kafka, routes = tree.get("kafka"), tree.get("routes")
    for name, value in kafka.items() if isinstance(kafka, dict) else ():
        if is_secret(str(name)) and _is_plain(value):
            yield Problem(f"kafka.{name}", _WAY)
    for index, route in enumerate(routes if isinstance(routes, list) else ()):
        for section, name, value in _of_route(route if isinstance(route, dict) else {}):
            if _is_plain(value):
                yield Problem(f"routes[{index}].{section}.{name}", _WAY)
    admin = tree.get("admin")
    if isinstance(admin, dict) and _is_plain(admin.get("token")):
        yield Problem("admin.token", _ADMIN_WAY)


def _of_route(route: dict[str, Any]) -> Iterator[tuple[str, str, object]]:
    """What is a secret by its place, or by its name."""
    for section in ("auth", "headers"):
        found = route.get(section)
        for name, value in found.items() if isinstance(found, dict) else ():
            if section == "auth" or is_credential(str(name)):
                yield section, str(name), value


def _is_plain(value: object) -> bool:
    return value is not None and not isinstance(value, dict)
