"""A value that is null, or has nothing behind its colon, is as if it was not given."""

from __future__ import annotations

import copy
from typing import Any, Final

import pytest
import yaml

from tests.chart.test_every_value import leaves
from tests.chart.values import EVERYTHING, LEAST, WHOLE, Values, changed
from tests.rig.helm import CHART, Refused, render

pytestmark = pytest.mark.usefixtures("with_helm")
DEFAULTS: Final[Values] = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
# Null is a value there: how many pods a budget says nothing of.
NULL_SAYS: Final = ("podDisruptionBudget.maxUnavailable",)


def with_nulls(given: Values, paths: list[str]) -> Values:
    """Null wherever nothing is given."""
    values = copy.deepcopy(given)
    for path in paths:
        node: Any = values
        *way, last = path.split(".")
        for part in way:
            node = None if node is None else node.setdefault(part, {})
        if node is not None:
            node.setdefault(last, None)
    return values


def sections(node: Values, path: str = "") -> list[str]:
    """The paths of what holds values, the outer ones first."""
    inner = {key: value for key, value in node.items() if isinstance(value, dict) and value}
    here = [f"{path}{key}" for key in inner if f"{path}{key}" not in WHOLE]
    return here + [each for key in here for each in sections(inner[key.split(".")[-1]], f"{key}.")]


@pytest.mark.parametrize("given", [LEAST, EVERYTHING], ids=["least", "everything"])
def test_every_value_may_be_null(given: Values, major: int) -> None:
    paths = [path for path in leaves(DEFAULTS) if path not in (*NULL_SAYS, *WHOLE)]
    assert len(paths) > 80
    assert render(with_nulls(given, paths), major=major) == render(given, major=major)


@pytest.mark.parametrize("given", [LEAST, EVERYTHING], ids=["least", "everything"])
def test_every_section_may_be_null(given: Values, major: int) -> None:
    assert render(with_nulls(given, sections(DEFAULTS)), major=major) == render(given, major=major)


def test_set_null_on_the_command_line_is_the_same(major: int) -> None:
    paths = [path for path in sections(DEFAULTS) if "." not in path and path not in LEAST]
    paths += ["sidecar.config.admin", "sidecar.image", "sidecar.adminToken", "nodeSelector"]
    nulls = [f"--set={path}=null" for path in paths]
    assert render(LEAST, *nulls, major=major) == render(LEAST, major=major)


@pytest.mark.parametrize("path", WHOLE)
def test_what_kubernetes_knows_better_is_empty_then(path: str) -> None:
    """As a cluster needs it that assigns users itself."""
    rendered = render(changed({path.replace(".", "/"): None}))
    pod = rendered.of("Deployment")["spec"]["template"]["spec"]
    where: Any = pod
    if path != "podSecurityContext":
        name = path.partition(".")[0]
        (where,) = (
            each for each in (*pod["initContainers"], *pod["containers"]) if each["name"] == name
        )
    field = "resources" if path.endswith("resources") else "securityContext"
    assert not where.get(field)


@pytest.mark.parametrize(
    "changes",
    [
        {"sidecar/config": None},
        {"sidecar/config/kafka": None},
        {"sidecar/config/routes": None},
        {"sidecar/config/routes": [None]},
        {"sidecar/config/routes/0/target": None},
        {"sidecar/config/routes/0/retry": None},
        {"sidecar/config/kafka/sasl.password": None},
        {"sidecar/config/revoke_seconds": None},
        {"sidecar/config/admin/token": None},
        {"sidecar/config/admin/token_file": None},
        {"sidecar/config/admin/socket": None},
        {"sidecar/config/app": None},
        {"app/ports": [None]},
        {"app/ports": [{"containerPort": None}]},
        {"app/lifecycle": {"preStop": None}},
        {"extraVolumes": [None]},
        {"extraContainers": [None]},
        {"sidecar/secretMounts": [None]},
        {"sidecar/secretMounts": [{"name": None, "secretName": None}]},
        {"sidecar/extraVolumeMounts": [{"name": "x", "mountPath": None}]},
        {"commonLabels": {"a": None}},
        {"podSecurityContext": {"runAsNonRoot": None}},
        {"networkPolicy": {"enabled": True, "egress": [None]}},
    ],
    ids=str,
)
def test_any_other_null_means_nothing_or_is_told_in_a_sentence(changes: Values) -> None:
    try:
        render(changed(changes))
    except Refused as refused:
        told = str(refused)
        assert "execution error at" in told or "schema" in told, told
        assert "nil pointer" not in told
        assert "error calling" not in told


def test_what_a_route_may_leave_out_may_be_null() -> None:
    names = ("pattern", "loss_budget", "group_id", "dead_letter", "batch", "cloudevents", "auth",
             "tls", "max_records_per_second")  # fmt: skip
    nulls = {f"sidecar/config/routes/0/{name}": None for name in names}
    assert "Deployment" in render(changed({**nulls, "keda/enabled": True})).kinds
