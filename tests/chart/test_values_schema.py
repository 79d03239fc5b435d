"""The chart's values schema holds that of the configuration, and its files what is said elsewhere.

`python tests/chart/test_values_schema.py` writes them anew.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import yaml

import sidecar
from sidecar.core.kafka_rules import is_secret
from sidecar.settings import json_schema
from tests.chart.values import WHOLE

ROOT: Final = Path(__file__).parents[2]
HELM: Final = ROOT / "deploy" / "helm"
CHART: Final = HELM / "kafka-dispatch-sidecar"
SCHEMA: Final = CHART / "values.schema.json"
OWN_PART: Final = HELM / "values.schema.yaml"
ALERTS: Final = ROOT / "deploy" / "monitoring" / "alerts.yaml"
CHART_ALERTS: Final = CHART / "files" / "alerts.yaml"
DEFAULTS: Final = CHART / "files" / "defaults.yaml"
# A list merges with nothing and a later file of values may bring it: what is required, and what the
# chart sets itself, is said by its checks in a sentence, not by the schema.
_KEYWORDS: Final = frozenset(("title", "default", "format", "writeOnly", "examples"))


def values_schema() -> dict[str, Any]:
    """The hand-written part, with the configuration's own schema put in its place."""
    own: dict[str, Any] = yaml.safe_load(OWN_PART.read_text(encoding="utf-8"))
    config = json_schema()
    definitions = config.pop("$defs")
    config.pop("$schema")
    own["definitions"] = _moved(definitions)
    own["properties"]["sidecar"]["properties"]["config"] = _moved(config)
    return own


def _moved(node: Any, names: bool = False) -> Any:
    """As draft 7, which both Helm 3 and 4 know, and without what only editors need.

    names: the keys are names of settings, not keywords.
    """
    if isinstance(node, list):
        return [_moved(each) for each in node]
    if not isinstance(node, dict):
        if isinstance(node, str) and node.startswith("#/$defs/"):
            return node.replace("#/$defs/", "#/definitions/")
        return node
    inner = {"properties", "patternProperties"}
    return {
        key: _moved(value, names=key in inner and not names)
        for key, value in node.items()
        if names or key not in _KEYWORDS
    }


def defaults() -> dict[str, Any]:
    """What null stands for: values.yaml, without what Kubernetes knows better."""
    values: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    for path in WHOLE:
        *way, last = path.split(".")
        node = values
        for part in way:
            node = node[part]
        node[last] = {}
    values["podDisruptionBudget"]["maxUnavailable"] = None  # as it is for who prefers minAvailable
    return values


def defaults_text() -> str:
    head = "# Made of values.yaml by `python tests/chart/test_values_schema.py`.\n"
    return head + yaml.safe_dump(defaults(), sort_keys=False)


def schema_text() -> str:
    return json.dumps(values_schema(), indent=1, ensure_ascii=False) + "\n"


def test_the_schema_is_that_of_the_configuration() -> None:
    assert SCHEMA.read_text(encoding="utf-8") == schema_text(), (
        "run: python tests/chart/test_values_schema.py"
    )


def test_the_defaults_are_those_of_the_values() -> None:
    assert DEFAULTS.read_text(encoding="utf-8") == defaults_text(), (
        "run: python tests/chart/test_values_schema.py"
    )


def test_the_rules_are_those_of_the_project() -> None:
    if ALERTS.exists():
        assert CHART_ALERTS.read_bytes() == ALERTS.read_bytes(), (
            "run: python tests/chart/test_values_schema.py"
        )


def test_the_chart_has_the_projects_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert chart["appVersion"] == chart["version"] == sidecar.__version__


def test_every_default_has_its_place_in_the_schema() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    known = values_schema()["properties"]
    assert values.keys() <= known.keys()
    assert values["sidecar"].keys() <= known["sidecar"]["properties"].keys()
    assert values["app"].keys() <= known["app"]["properties"].keys()


def test_the_chart_knows_the_same_secrets_as_the_configuration() -> None:
    checks = (CHART / "templates" / "_checks_config.tpl").read_text(encoding="utf-8")
    assert "password|passphrase|secret|key[.]pem$|oauthbearer[.]config$" in checks
    assert is_secret("sasl.password")
    assert is_secret("ssl.key.pem")
    assert is_secret("sasl.oauthbearer.config")


if __name__ == "__main__":
    SCHEMA.write_text(schema_text(), encoding="utf-8")
    DEFAULTS.write_text(defaults_text(), encoding="utf-8")
    if ALERTS.exists():
        CHART_ALERTS.parent.mkdir(exist_ok=True)
        CHART_ALERTS.write_bytes(ALERTS.read_bytes())
