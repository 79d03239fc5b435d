"""`sidecar inject` and the chart put the same container into a pod."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from sidecar.cli.inject import injected
from tests.chart.values import LEAST
from tests.rig.helm import render
from tests.unit.test_inject import DAEMON_SET
from tests.unit.test_inject_manifests import parts


@pytest.mark.usefixtures("with_helm")
def test_both_make_the_same_container() -> None:
    what = parts(config_map="orders-kafka-dispatch-sidecar")
    workload = next(yaml.safe_load_all(injected(DAEMON_SET, "routes: []\n", what)))
    ours: dict[str, Any] = workload["spec"]["template"]["spec"]
    charts = render(LEAST).of("Deployment")["spec"]["template"]["spec"]
    (one,), (other,) = ours["initContainers"], charts["initContainers"]
    del one["env"]  # the chart writes these into the file
    del other["imagePullPolicy"]
    assert one == other
    assert ours["volumes"] == charts["volumes"]
    assert ours["containers"][0]["lifecycle"] == charts["containers"][0]["lifecycle"]
    assert ours["terminationGracePeriodSeconds"] == charts["terminationGracePeriodSeconds"]
