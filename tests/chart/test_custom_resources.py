"""KEDA and the Prometheus operator take what the chart renders for them."""

from __future__ import annotations

import copy
import os
from typing import Any

import jsonschema
import pytest

from tests.chart.values import EVERYTHING, Values, changed
from tests.rig.custom_resources import DEFINITIONS, NoDefinition, validate
from tests.rig.helm import render

pytestmark = pytest.mark.usefixtures("with_helm")
RULES: Values = {"prometheusRule/enabled": True, "prometheusRule/labels": {"release": "p"}}
PATTERN: Values = {
    "sidecar/config/routes/0": {"pattern": "^orders", "target": "http://127.0.0.1:8080/"},
    "keda/enabled": True,
    "keda/authenticationRef": "kafka",
    "keda/advanced": {"horizontalPodAutoscalerConfig": {"name": "orders"}},
}


def checked(resource: dict[str, Any]) -> None:
    try:
        validate(resource)
    except NoDefinition as missing:
        if os.environ.get("CI"):
            pytest.fail(str(missing), pytrace=False)
        pytest.skip(str(missing))


@pytest.mark.parametrize("kind", DEFINITIONS)
def test_their_definitions_take_it(kind: str) -> None:
    every = [EVERYTHING, changed(RULES), changed(PATTERN)]
    found = [each for values in every for each in render(values).all(kind)]
    assert found
    for each in found:
        checked(each)
        spoiled = copy.deepcopy(each)
        spoiled["spec"]["unheard"] = True
        with pytest.raises(jsonschema.ValidationError, match="unheard"):
            checked(spoiled)
