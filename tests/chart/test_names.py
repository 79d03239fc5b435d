"""Names that users choose, against each other and against the chart's own."""

from __future__ import annotations

from typing import Final

import pytest

from tests.chart.values import Values, changed
from tests.rig.helm import Refused, render

pytestmark = pytest.mark.usefixtures("with_helm")
MOUNT: Final = {"name": "data", "mountPath": "/etc/sidecar/"}
TWICE: Final = [{"name": "kafka", "secretName": "a"}, {"name": "kafka", "secretName": "b"}]
VOLUME: Final = {"name": "data", "emptyDir": {}}
OWN: Final = (
    "app.kubernetes.io/name",
    "app.kubernetes.io/instance",
    "app.kubernetes.io/version",
    "app.kubernetes.io/managed-by",
    "helm.sh/chart",
)
SIDECAR_PORT: Final = [{"name": "sidecar-admin", "containerPort": 9000}]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"sidecar/secretMounts": TWICE}, "sidecar.secretMounts: kafka is taken"),
        (
            {"sidecar/secretMounts": [{"name": "sidecar-admin", "secretName": "a"}]},
            "sidecar.secretMounts: sidecar-admin is taken",
        ),
        ({"sidecar/secretMounts": [{"name": "a" * 49, "secretName": "a"}]}, "secretMounts"),
        (
            {"sidecar/extraVolumeMounts": [MOUNT]},
            "sidecar.extraVolumeMounts: at /etc/sidecar is its configuration already",
        ),
        (
            {
                "sidecar/secretMounts": [{"name": "kafka", "secretName": "a"}],
                "sidecar/extraVolumeMounts": [{"name": "x", "mountPath": "/run/secrets/kafka"}],
            },
            "sidecar.extraVolumeMounts: at /run/secrets/kafka is sidecar.secretMounts already",
        ),
        ({"extraVolumes": [VOLUME, VOLUME]}, "extraVolumes: data is the name of another volume"),
        (
            {"extraVolumes": [{"name": "sidecar-run", "emptyDir": {}}]},
            "extraVolumes: sidecar-run is the name of another volume",
        ),
        (
            {
                "sidecar/secretMounts": [{"name": "kafka", "secretName": "a"}],
                "extraVolumes": [{"name": "sidecar-secret-kafka", "emptyDir": {}}],
            },
            "extraVolumes: sidecar-secret-kafka is the name of another volume",
        ),
        (
            {
                "sidecar/adminToken/secretName": "a",
                "extraVolumes": [{"name": "sidecar-admin-token", "emptyDir": {}}],
            },
            "extraVolumes: sidecar-admin-token is the name of another volume",
        ),
        ({"extraVolumes": [{"emptyDir": {}}]}, "extraVolumes"),
        ({"extraContainers": [{"name": "app"}]}, "app is the name of another container"),
        ({"extraInitContainers": [{"name": "sidecar"}]}, "sidecar is the name of another"),
        (
            {"extraInitContainers": [{"name": "x"}], "extraContainers": [{"name": "x"}]},
            "x is the name of another container",
        ),
        ({"app/ports": SIDECAR_PORT}, "app.ports: sidecar-admin is the name of the sidecar's"),
        (
            {"extraContainers": [{"name": "x", "ports": [{"containerPort": 8090}]}]},
            "extraContainers: x: ports: 8090 is also sidecar.config.admin.port",
        ),
        (
            {"podAnnotations": {"checksum/sidecar-config": "x"}},
            "podAnnotations: checksum/sidecar-config is an annotation of the chart's own",
        ),
        ({"sidecar/image/repository": ""}, "sidecar.image.repository is empty"),
        ({"podMonitor/labels": {OWN[0]: "x"}}, f"podMonitor.labels: {OWN[0]} is a label"),
        ({"prometheusRule/labels": {OWN[4]: "x"}}, f"prometheusRule.labels: {OWN[4]} is a label"),
        *(({"commonLabels": {label: "x"}}, f"commonLabels: {label} is a label") for label in OWN),
        *(
            ({"podLabels": {label: "x"}}, f"podLabels: {label} is what the Deployment selects")
            for label in OWN[:2]
        ),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_a_name_that_is_taken_is_refused(changes: Values, told: str) -> None:
    with pytest.raises(Refused) as refused:
        render(changed(changes))
    assert told in str(refused.value)


def test_labels_and_annotations_of_one_name_are_there_once() -> None:
    """The narrower wins; parsers differ in what they make of a key given twice."""
    container = "kubectl.kubernetes.io/default-container"
    rendered = render(
        changed(
            {
                "commonLabels": {"team": "all", "release": "all"},
                "podLabels": {"team": "pods", "app.kubernetes.io/version": "1.2"},
                "podMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
                "podAnnotations": {container: "sidecar"},
            }
        )
    )
    pod = rendered.of("Deployment")["spec"]["template"]["metadata"]
    assert pod["labels"]["team"] == "pods"
    assert pod["labels"]["app.kubernetes.io/version"] == "1.2"
    assert pod["annotations"][container] == "sidecar"
    assert rendered.of("PodMonitor")["metadata"]["labels"]["release"] == "prometheus"
