"""Every value of values.yaml: what it changes, where. A value without a line here fails."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import pytest
import yaml

from tests.chart.values import WHOLE, Values, changed
from tests.rig.helm import CHART, Rendered, render

POD: Final = "Deployment/spec/template/spec"
APP: Final = f"{POD}/containers/app"
SIDECAR: Final = f"{POD}/initContainers/sidecar"
NAME: Final = "orders-kafka-dispatch-sidecar"
CONFIG: Final = "ConfigMap/data/sidecar.yaml"
DIGEST: Final = f"sha256:{'a' * 64}"
PROBE: Final = {"httpGet": {"path": "/healthz", "port": 8080}}
ENV: Final = [{"name": "A", "value": "0"}, {"name": "B", "value": "false"}]
ENV_FROM: Final = [{"secretRef": {"name": "some"}}]
MOUNTS: Final = [{"name": "data", "mountPath": "/data", "readOnly": False}]
RESOURCES: Final = {"limits": {"memory": "1Gi"}, "requests": {"cpu": 0}}
PEERS: Final = [{"podSelector": {"matchLabels": {"app": "it"}}}]
ABSENT: Final = object()
GIVEN: Final = object()


@dataclass(frozen=True)
class Case:
    """A value, and what is found at a place then."""

    value: Any
    place: str
    expected: Any = GIVEN
    beside: Values = field(default_factory=dict)


def of(name: str, **beside: Any) -> Values:
    return {f"{name}/enabled": True, **{f"{name}/{key}": value for key, value in beside.items()}}


KEDA: Final = of("keda")
BACKLOG: Final = of(
    "keda",
    **{
        "minReplicas": 1,
        "lag/enabled": False,
        "backlog/enabled": True,
        "backlog/serverAddress": "http://p",
    },
)
ALONE: Final = {
    "workload/enabled": False,
    "autoscaling/target/name": "it",
    "keda/target/name": "it",
}
LAG: Final = "ScaledObject/spec/triggers/0/metadata"

CASES: Final = {
    "nameOverride": Case("short", "ConfigMap/metadata/name", "orders-short"),
    "fullnameOverride": Case("whole", "Deployment/metadata/name"),
    "commonLabels": Case({"a": "1"}, f"{POD.removesuffix('/spec')}/metadata/labels/a", "1"),
    "workload.enabled": Case(False, "Deployment", ABSENT),
    "replicaCount": Case(0, "Deployment/spec/replicas"),
    "strategy": Case({"type": "Recreate"}, "Deployment/spec/strategy"),
    "minReadySeconds": Case(7, "Deployment/spec/minReadySeconds"),
    "revisionHistoryLimit": Case(0, "Deployment/spec/revisionHistoryLimit"),
    "annotations": Case({"a": "1e3"}, "Deployment/metadata/annotations"),
    "podAnnotations": Case({"a": "0"}, "Deployment/spec/template/metadata/annotations/a", "0"),
    "podLabels": Case({"a": "0123"}, "Deployment/spec/template/metadata/labels/a", "0123"),
    "imagePullSecrets": Case([{"name": "registry"}], f"{POD}/imagePullSecrets"),
    "nodeSelector": Case({"disk": "false"}, f"{POD}/nodeSelector"),
    "tolerations": Case([{"key": "a", "operator": "Exists"}], f"{POD}/tolerations"),
    "affinity": Case({"podAntiAffinity": {}}, f"{POD}/affinity"),
    "topologySpreadConstraints": Case(
        [{"maxSkew": 1, "topologyKey": "zone"}], f"{POD}/topologySpreadConstraints"
    ),
    "priorityClassName": Case("high", f"{POD}/priorityClassName"),
    "extraInitContainers": Case(
        [{"name": "migrate", "image": "m:1"}],
        f"{POD}/initContainers/1",
        {"name": "migrate", "image": "m:1"},
    ),
    "extraContainers": Case(
        [{"name": "envoy", "image": "e:1"}],
        f"{POD}/containers/envoy",
        {"name": "envoy", "image": "e:1"},
    ),
    "extraVolumes": Case(
        [{"name": "data", "emptyDir": {}}],
        f"{POD}/volumes/data",
        {"name": "data", "emptyDir": {}},
    ),
    "extraPodSpec": Case({"runtimeClassName": "gvisor"}, f"{POD}/runtimeClassName", "gvisor"),
    "terminationGracePeriodSeconds": Case(120, f"{POD}/terminationGracePeriodSeconds"),
    "podSecurityContext": Case(
        {"runAsUser": 1001}, f"{POD}/securityContext/runAsUser", 1001
    ),
    "app.image.repository": Case("r/app", f"{APP}/image", "r/app:1.2"),
    "app.image.tag": Case("1e3", f"{APP}/image", "shop/orders:1e3"),
    "app.image.digest": Case(DIGEST, f"{APP}/image", f"shop/orders@{DIGEST}"),
    "app.image.pullPolicy": Case("Always", f"{APP}/imagePullPolicy"),
    "app.command": Case(["run", "0"], f"{APP}/command"),
    "app.args": Case(["true", "1e3"], f"{APP}/args"),
    "app.ports": Case([{"name": "web", "containerPort": 80}], f"{APP}/ports"),
    "app.env": Case(ENV, f"{APP}/env"),
    "app.envFrom": Case(ENV_FROM, f"{APP}/envFrom"),
    "app.volumeMounts": Case(MOUNTS, f"{APP}/volumeMounts"),
    "app.resources": Case(RESOURCES, f"{APP}/resources"),
    "app.startupProbe": Case(PROBE, f"{APP}/startupProbe"),
    "app.livenessProbe": Case(PROBE, f"{APP}/livenessProbe"),
    "app.readinessProbe": Case(PROBE, f"{APP}/readinessProbe"),
    "app.lifecycle": Case({"preStop": {"sleep": {"seconds": 30}}}, f"{APP}/lifecycle"),
    "app.stopSeconds": Case(1, f"{POD}/terminationGracePeriodSeconds", 26),
    "app.securityContext": Case(
        {"readOnlyRootFilesystem": True}, f"{APP}/securityContext/readOnlyRootFilesystem", True
    ),
    "sidecar.native": Case(False, f"{POD}/containers/sidecar/name", "sidecar"),
    "sidecar.image.repository": Case("r/s", f"{SIDECAR}/image", "r/s:0.1.0"),
    "sidecar.image.tag": Case("2.0", f"{SIDECAR}/image", "kafka-dispatch-sidecar:2.0"),
    "sidecar.image.digest": Case(DIGEST, f"{SIDECAR}/image", f"kafka-dispatch-sidecar@{DIGEST}"),
    "sidecar.image.pullPolicy": Case("Never", f"{SIDECAR}/imagePullPolicy"),
    "sidecar.config.admin.host": Case("::", f"{CONFIG}/admin/host"),
    "sidecar.config.admin.port": Case(9000, f"{SIDECAR}/ports/sidecar-admin/containerPort"),
    "sidecar.secretMounts": Case(
        [{"name": "tls", "secretName": "kafka-tls"}],
        f"{POD}/volumes/sidecar-secret-tls/secret/secretName",
        "kafka-tls",
    ),
    "sidecar.adminToken.secretName": Case(
        "it", f"{POD}/volumes/sidecar-admin-token/secret/secretName"
    ),
    "sidecar.adminToken.key": Case(
        "t",
        f"{CONFIG}/admin/token_file",
        "/run/secrets/sidecar-admin/t",
        {"sidecar/adminToken/secretName": "it"},
    ),
    "sidecar.env": Case(ENV, f"{SIDECAR}/env"),
    "sidecar.envFrom": Case(ENV_FROM, f"{SIDECAR}/envFrom"),
    "sidecar.extraVolumeMounts": Case(
        MOUNTS, f"{SIDECAR}/volumeMounts/data/mountPath", "/data"
    ),
    "sidecar.resources": Case({"limits": {"memory": "1Gi"}}, f"{SIDECAR}/resources/limits/memory",
                              "1Gi"),
    "sidecar.securityContext": Case(
        {"runAsUser": 1000710000}, f"{SIDECAR}/securityContext/runAsUser", 1000710000
    ),
    "serviceAccount.create": Case(False, "ServiceAccount", ABSENT),
    "serviceAccount.name": Case("it", f"{POD}/serviceAccountName"),
    "serviceAccount.annotations": Case({"role": "arn"}, "ServiceAccount/metadata/annotations"),
    "serviceAccount.automountToken": Case(True, f"{POD}/automountServiceAccountToken"),
    "podDisruptionBudget.enabled": Case(True, "PodDisruptionBudget/spec/maxUnavailable", 1),
    "podDisruptionBudget.minAvailable": Case(
        "50%",
        "PodDisruptionBudget/spec/minAvailable",
        beside=of("podDisruptionBudget", maxUnavailable=None),
    ),
    "podDisruptionBudget.maxUnavailable": Case(
        0, "PodDisruptionBudget/spec/maxUnavailable", beside=of("podDisruptionBudget")
    ),
    "podDisruptionBudget.unhealthyPodEvictionPolicy": Case(
        "IfHealthyBudget",
        "PodDisruptionBudget/spec/unhealthyPodEvictionPolicy",
        beside=of("podDisruptionBudget"),
    ),
    "networkPolicy.enabled": Case(True, "NetworkPolicy/spec/policyTypes", ["Ingress"]),
    "networkPolicy.appFrom": Case(
        PEERS, "NetworkPolicy/spec/ingress/0/from", beside=of("networkPolicy")
    ),
    "networkPolicy.adminFrom": Case(
        PEERS, "NetworkPolicy/spec/ingress/1/from", beside=of("networkPolicy")
    ),
    "networkPolicy.egress": Case(
        [{"ports": [{"port": 9092}]}],
        "NetworkPolicy/spec/egress/1",
        {"ports": [{"port": 9092}]},
        of("networkPolicy"),
    ),
    "podMonitor.enabled": Case(True, "PodMonitor/spec/podMetricsEndpoints/0/path", "/metrics"),
    "podMonitor.labels": Case({"a": "1"}, "PodMonitor/metadata/labels/a", "1", of("podMonitor")),
    "podMonitor.interval": Case(
        "5s", "PodMonitor/spec/podMetricsEndpoints/0/interval", beside=of("podMonitor")
    ),
    "prometheusRule.enabled": Case(True, "PrometheusRule/metadata/name", NAME),
    "prometheusRule.labels": Case(
        {"a": "1"}, "PrometheusRule/metadata/labels/a", "1", of("prometheusRule")
    ),
    "autoscaling.enabled": Case(
        True, "HorizontalPodAutoscaler/spec/scaleTargetRef/name", NAME
    ),
    "autoscaling.minReplicas": Case(
        2, "HorizontalPodAutoscaler/spec/minReplicas", beside=of("autoscaling")
    ),
    "autoscaling.maxReplicas": Case(
        64, "HorizontalPodAutoscaler/spec/maxReplicas", beside=of("autoscaling")
    ),
    "autoscaling.backlogPerPod": Case(
        1_000_000_000,
        "HorizontalPodAutoscaler/spec/metrics/0/pods/target/averageValue",
        "1000000000",
        of("autoscaling"),
    ),
    "autoscaling.behavior": Case(
        {"scaleDown": {"stabilizationWindowSeconds": 0}},
        "HorizontalPodAutoscaler/spec/behavior",
        beside=of("autoscaling"),
    ),
    "autoscaling.target.kind": Case(
        "StatefulSet",
        "HorizontalPodAutoscaler/spec/scaleTargetRef/kind",
        beside={**of("autoscaling"), **ALONE},
    ),
    "autoscaling.target.name": Case(
        "it", "HorizontalPodAutoscaler/spec/scaleTargetRef/name", beside=of("autoscaling")
    ),
    "keda.enabled": Case(True, "ScaledObject/spec/minReplicaCount", 0),
    "keda.minReplicas": Case(1, "ScaledObject/spec/minReplicaCount", beside=KEDA),
    "keda.maxReplicas": Case(12, "ScaledObject/spec/maxReplicaCount", beside=KEDA),
    "keda.pollingInterval": Case(5, "ScaledObject/spec/pollingInterval", beside=KEDA),
    "keda.cooldownPeriod": Case(0, "ScaledObject/spec/cooldownPeriod", beside=KEDA),
    "keda.lag.enabled": Case(False, "ScaledObject/spec/triggers/0/type", "prometheus", BACKLOG),
    "keda.lag.threshold": Case(10_000_000, f"{LAG}/lagThreshold", "10000000", KEDA),
    "keda.lag.activationThreshold": Case(9, f"{LAG}/activationLagThreshold", "9", KEDA),
    "keda.backlog.enabled": Case(True, "ScaledObject/spec/triggers/0/type", "prometheus", BACKLOG),
    "keda.backlog.serverAddress": Case("http://q:9090", f"{LAG}/serverAddress", beside=BACKLOG),
    "keda.backlog.threshold": Case(5_000_000, f"{LAG}/threshold", "5000000", BACKLOG),
    "keda.authenticationRef": Case(
        "it", "ScaledObject/spec/triggers/0/authenticationRef/name", beside=KEDA
    ),
    "keda.advanced": Case(
        {"restoreToOriginalReplicaCount": False}, "ScaledObject/spec/advanced", beside=KEDA
    ),
    "keda.target.kind": Case(
        "StatefulSet", "ScaledObject/spec/scaleTargetRef/kind", beside={**KEDA, **ALONE}
    ),
    "keda.target.name": Case("it", "ScaledObject/spec/scaleTargetRef/name", beside=KEDA),
    "test.enabled": Case(False, "Pod", ABSENT),
}  # fmt: skip


def leaves(node: Values, path: str = "") -> Iterator[str]:
    """The paths of what can be set; what Kubernetes knows better is one value."""
    for key, value in node.items():
        here = f"{path}.{key}" if path else key
        if isinstance(value, dict) and value and here not in WHOLE:
            yield from leaves(value, here)
        else:
            yield here


def at(rendered: Rendered, place: str) -> Any:
    """What is there; lists by name or number, the configuration as it is read."""
    kind, *way = place.split("/")
    found = rendered.all(kind)
    if not found:
        return ABSENT
    node: Any = found[0]
    for part in way:
        inner = yaml.safe_load(node) if isinstance(node, str) else node
        if isinstance(inner, list):
            inner = {str(at): each for at, each in enumerate(inner)} | {
                each["name"]: each for each in inner if "name" in each
            }
        node = inner.get(part, ABSENT) if isinstance(inner, dict) else ABSENT
    return node


def test_no_value_is_without_its_line() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    assert set(leaves(values)) == CASES.keys()


@pytest.mark.usefixtures("with_helm")
@pytest.mark.parametrize("path", CASES)
def test_a_value_does_what_it_says(path: str) -> None:
    """The same type as it was given, `0` and `false` and numbers in quotes included; not before."""
    case = CASES[path]
    expected = case.value if case.expected is GIVEN else case.expected
    values = changed({**case.beside, path.replace(".", "/"): case.value})
    found = at(render(values), case.place)
    assert (type(found), found) == (type(expected), expected)
    if path.replace(".", "/") not in case.beside:
        assert at(render(changed(case.beside)), case.place) != expected
