"""What lies in deploy/monitoring, as the tests read it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from sidecar.telemetry.metrics import PREFIX

_MONITORING: Final = Path(__file__).parents[2] / "deploy" / "monitoring"
ALERTS: Final = _MONITORING / "alerts.yaml"
DASHBOARD: Final = _MONITORING / "dashboard.json"


def alerts() -> list[dict[str, Any]]:
    groups = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def dashboard() -> Any:
    return json.loads(DASHBOARD.read_text(encoding="utf-8"))


def expressions() -> Iterator[str]:
    """Those of the dashboard, with its variables filled in."""
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", ()):
            expression = target["expr"].replace("$__rate_interval", "1m")
            yield re.sub(r'"\$(job|route)"', '".*"', expression)


def names_in(expression: str) -> set[str]:
    return set(re.findall(rf"{PREFIX}[a-z_]+", expression))
