"""checkov over what the chart renders for a careful team; what is not followed has its reason here.

`make chart-scan`; python -m tests.chart.scan PROGRAM.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import yaml

from tests.chart.values import EVERYTHING, Values, put
from tests.rig.helm import render

_OPTIONS: Final = ("--skip-download", "--framework=kubernetes", "--output=json", "--quiet")
_DIGEST: Final = f"sha256:{'a' * 64}"
_PROBE: Final = {"httpGet": {"path": "/healthz", "port": "http"}}
# What is the app's own: with it, nothing may be found that the chart could do better.
CAREFUL: Final[Values] = {
    "app/image/digest": _DIGEST,
    "app/resources": {
        "requests": {"cpu": "100m", "memory": "128Mi"},
        "limits": {"memory": "256Mi", "cpu": "1"},
    },
    "app/livenessProbe": _PROBE,
    "app/readinessProbe": _PROBE,
    "app/securityContext/readOnlyRootFilesystem": True,
    "podSecurityContext/runAsUser": 10001,
    "sidecar/image/digest": _DIGEST,
}
REASONS: Final = {
    "CKV_K8S_11": "no CPU limit on the sidecar: being throttled costs the membership of the group",
    "CKV_K8S_15": "IfNotPresent with a digest is as sure as Always, and needs no registry to start",
}
# The pod of `helm test` runs once, and ends.
REASONS_FOR_THE_CHECK: Final = {
    "CKV_K8S_8": "a liveness probe would restart what is about to end",
    "CKV_K8S_9": "nobody sends it anything",
    "CKV2_K8S_6": "it listens nowhere, and has to reach the brokers from where the pods are",
}


def findings(program: str) -> list[str]:
    values = put(EVERYTHING, CAREFUL)
    scaled = put(values, {"keda/enabled": False, "autoscaling/enabled": True})
    objects = [
        *render(values).objects,
        render(scaled).of("HorizontalPodAutoscaler"),
    ]
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "rendered.yaml"
        file.write_text(yaml.safe_dump_all(objects), encoding="utf-8")
        done = subprocess.run(
            [program, *_OPTIONS, "-f", str(file)],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
    told: dict[str, Any] = json.loads(done.stdout)
    return [
        f"{each['check_id']} {each['resource']}: {each['check_name']}"
        for each in told["results"]["failed_checks"]
        if each["check_id"] not in _reasons(each["resource"])
    ]


def _reasons(resource: str) -> set[str]:
    own = REASONS_FOR_THE_CHECK if resource.startswith("Pod.") else {}
    return {*REASONS, *own}


if __name__ == "__main__":
    found = findings(sys.argv[1])
    sys.stdout.write(
        "".join(f"{each}\n" for each in found or ["nothing is found without a reason"])
    )
    sys.exit(bool(found))
