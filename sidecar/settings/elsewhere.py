"""A configuration that is checked where it does not run: its secrets and files are there, not here.

What it refers to is taken to be there and right, and what its place has installed as well. All
else is judged, and said, by the checks of the start.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from sidecar.core.kafka_properties import properties
from sidecar.core.kafka_rules import AWS_MSK_IAM
from sidecar.settings.loading import load_settings
from sidecar.settings.tree import Settings

# Any text will do, where nothing else is said.
_ANY: Final = "x"
_KEY: Final = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz"
# With these, nothing that stands beside them is wrong.
_KAFKA: Final = {
    "partition.assignment.strategy": "range",
    "sasl.oauthbearer.method": "oidc",
    "security.protocol": "sasl_ssl",
}
_TLS_FILES: Final = ("ca_file", "cert_file", "key_file")
_A_FILE: Final = Path(__file__)


def settings_elsewhere(tree: Mapping[str, Any]) -> Settings:
    """The settings of what a file holds, with stand-ins. ConfigError names every problem."""
    result = dict(tree)
    for name, stand_in in (("kafka", _kafka), ("admin", _admin), ("tracing", _tracing)):
        if isinstance(tree.get(name), dict):
            result[name] = stand_in(tree[name])
    if isinstance(tree.get("routes"), list):
        result["routes"] = [_route(each) for each in tree["routes"]]
    return load_settings(None, {}, result)


def _kafka(kafka: dict[str, Any]) -> dict[str, Any]:
    result = {}
    for name, value in kafka.items():
        known = properties().get(name)
        if not _is_reference(value):
            result[name] = value
        elif known is None or (not known.choices and known.low is None) or name in _KAFKA:
            result[name] = _KAFKA.get(name, _ANY)
        # else it is a number, or a choice: what it would be without
    secure = str(result.get("security.protocol")).upper() == "SASL_SSL"
    if secure and str(result.get("sasl.mechanisms")).upper() == AWS_MSK_IAM:
        result["sasl.mechanisms"] = "PLAIN"  # its signer is installed there
    return result


def _route(route: Any) -> Any:
    if not isinstance(route, dict):
        return route
    result = dict(route)
    for name in ("auth", "headers"):
        if isinstance(route.get(name), dict):
            result[name] = {
                key: (_KEY if key == "signature" else _ANY) if _is_reference(value) else value
                for key, value in route[name].items()
            }
    if isinstance(route.get("tls"), dict):
        result["tls"] = _tls(route["tls"])
    return result


def _tls(tls: dict[str, Any]) -> dict[str, Any]:
    files = {name for name in _TLS_FILES if isinstance(tls.get(name), str)}
    result = {name: value for name, value in tls.items() if name not in files}
    pair = files - {"ca_file"}
    if len(pair) == 1:
        result[pair.pop()] = _A_FILE
    return result


def _admin(admin: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(admin.get("token_file"), str):
        return admin
    if "token" in admin:
        return {**admin, "token_file": _A_FILE}
    return {name: value for name, value in admin.items() if name != "token_file"}


def _tracing(tracing: dict[str, Any]) -> dict[str, Any]:
    return {**tracing, "enabled": False} if tracing.get("enabled") is True else tracing


def _is_reference(value: object) -> bool:
    match value:
        case {"file": str(), **rest} | {"env": str(), **rest}:
            return not rest
    return False
