"""The chart, value by value, over parsed objects."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Final

import kubernetes_validate
import pytest
import yaml

from sidecar.cli.check import check_memory
from sidecar.settings import Settings, load_settings
from tests.chart.values import EVERYTHING, LEAST, Values, changed
from tests.rig.helm import CHART, Manifest, Refused, Rendered, render, run

pytestmark = pytest.mark.usefixtures("with_helm")
ROUTE: Final = "sidecar/config/routes/0"
CUSTOM: Final = ("PodMonitor", "PrometheusRule", "ScaledObject")


def pod_of(rendered: Rendered, kind: str = "Deployment") -> Manifest:
    spec: Manifest = rendered.of(kind)["spec"]["template"]["spec"]
    return spec


def container(pod: Manifest, name: str) -> Manifest:
    containers: list[Manifest] = [*pod.get("initContainers", ()), *pod["containers"]]
    (found,) = (each for each in containers if each["name"] == name)
    return found


def settings_of(rendered: Rendered, tmp_path: Path) -> Settings:
    """The configuration as the sidecar itself reads it; its secrets lie elsewhere."""
    text = rendered.of("ConfigMap")["data"]["sidecar.yaml"]
    secret = tmp_path / "secret"
    secret.write_text("hush", encoding="utf-8")
    file = tmp_path / "sidecar.yaml"
    file.write_text(text.replace("/run/secrets/kafka/password", str(secret)), encoding="utf-8")
    return load_settings(file, {})


# --- what is rendered -----------------------------------------------------------------------------


def test_by_default_there_is_what_a_deployment_needs_and_nothing_else() -> None:
    assert render(LEAST).kinds == ["ConfigMap", "Deployment", "Pod", "ServiceAccount"]


@pytest.mark.parametrize("values", [LEAST, EVERYTHING], ids=["least", "everything"])
def test_helm_finds_nothing_to_complain_about(values: Values, major: int, tmp_path: Path) -> None:
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(values), encoding="utf-8")
    told = run("lint", str(CHART), "--strict", "--values", str(file), major=major)
    assert "[ERROR]" not in told
    assert "[WARNING]" not in told


@pytest.mark.parametrize("minor", range(29, 38))
def test_kubernetes_takes_every_object(minor: int) -> None:
    version = f"1.{minor}.0"
    scaled = render(changed({"autoscaling/enabled": True}), kubernetes=version)
    objects = [
        *render(EVERYTHING, kubernetes=version).objects,
        scaled.of("HorizontalPodAutoscaler"),
    ]
    for each in objects:
        if each["kind"] not in CUSTOM:
            kubernetes_validate.validate(each, f"1.{minor}", strict=True)


def test_both_helms_render_the_same() -> None:
    assert render(EVERYTHING, major=3) == render(EVERYTHING, major=4)


def test_the_sidecar_is_there_before_the_app_and_goes_after_it() -> None:
    """K8S-1. A restartable init container, whose startup probe waits for nobody."""
    pod = pod_of(render(LEAST))
    (sidecar,) = pod["initContainers"]
    assert sidecar["restartPolicy"] == "Always"
    assert sidecar["startupProbe"]["httpGet"] == {"path": "/startupz", "port": "sidecar-admin"}
    assert [each["name"] for each in pod["containers"]] == ["app"]


def test_readiness_asks_for_what_neither_app_nor_broker_can_lower() -> None:
    """K8S-2."""
    sidecar = container(pod_of(render(LEAST)), "sidecar")
    assert sidecar["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert sidecar["livenessProbe"]["httpGet"]["path"] == "/livez"


@pytest.mark.parametrize("native", [True, False])
def test_the_app_stays_until_the_sidecar_has_drained(native: bool) -> None:
    """K8S-3. Both hooks begin together; the app's ends when the drain does."""
    pod = pod_of(render(changed({"sidecar/native": native, "sidecar/config/drain_seconds": 30.5})))
    hook = container(pod, "sidecar")["lifecycle"]["preStop"]["exec"]
    assert hook["command"] == ["sidecar", "drain", "--wait", "31s"]
    asked = container(pod, "app")["lifecycle"]["preStop"]["httpGet"]
    path = "/v1/drained?wait_seconds=31&begins_within_seconds=10"
    assert asked == {"path": path, "port": 8090}
    assert pod["terminationGracePeriodSeconds"] == 41


def test_another_hook_of_the_app_leaves_the_wait_for_the_drain() -> None:
    """K8S-3."""
    started = {"exec": {"command": ["warm-up"]}}
    pod = pod_of(render(changed({"app/lifecycle": {"postStart": started}})))
    hooks = container(pod, "app")["lifecycle"]
    assert hooks["postStart"] == started
    assert hooks["preStop"]["httpGet"]["path"].startswith("/v1/drained?")


def test_an_ordinary_container_where_clusters_are_old() -> None:
    pod = pod_of(render(changed({"sidecar/native": False}), kubernetes="1.28.0"))
    assert "initContainers" not in pod
    assert "restartPolicy" not in container(pod, "sidecar")


def readable_by_others(source: dict[str, Any]) -> bool:
    """By the sidecar's user, who owns no file of a volume."""
    return bool(source.get("defaultMode", 0o644) & 0o004)


def test_the_sidecars_user_reads_what_is_mounted_without_a_group() -> None:
    pod = pod_of(render(EVERYTHING), "Deployment")
    secrets = [each["secret"] for each in pod["volumes"] if "secret" in each]
    assert len(secrets) == 2
    assert all(map(readable_by_others, secrets))


def test_pods_are_restricted() -> None:
    """The pod security standard of that name, field by field."""
    pod = pod_of(render(LEAST))
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False
    for name in ("app", "sidecar"):
        context = container(pod, name)["securityContext"]
        assert context["allowPrivilegeEscalation"] is False
        assert context["capabilities"] == {"drop": ["ALL"]}
    own = container(pod, "sidecar")["securityContext"]
    assert own["readOnlyRootFilesystem"] is True
    assert own["runAsUser"] == 65532


def test_an_app_that_has_to_be_somebody_is_and_the_sidecar_stays_who_it_is() -> None:
    """Its own user, or root; what is not given stays restricted."""
    for given in ({"runAsUser": 1000}, {"runAsNonRoot": False, "runAsUser": 0}):
        pod = pod_of(render(changed({"app/securityContext": given})))
        app = container(pod, "app")["securityContext"]
        assert given.items() <= app.items()
        assert app["allowPrivilegeEscalation"] is False
        own = container(pod, "sidecar")["securityContext"]
        assert (own["runAsNonRoot"], own["runAsUser"]) == (True, 65532)


def test_a_change_of_configuration_rolls_the_pods_and_nothing_else_does() -> None:
    def checksum(changes: Values) -> object:
        template = render(changed(changes)).of("Deployment")["spec"]["template"]
        return template["metadata"]["annotations"]["checksum/sidecar-config"]

    assert checksum({}) == checksum({"replicaCount": 5})
    assert checksum({}) != checksum({f"{ROUTE}/executors": 17})


def test_an_autoscaler_has_the_replicas_to_itself() -> None:
    assert render(changed({"replicaCount": 0})).of("Deployment")["spec"]["replicas"] == 0
    for scaler in ("autoscaling", "keda"):
        assert (
            "replicas" not in render(changed({f"{scaler}/enabled": True})).of("Deployment")["spec"]
        )


def test_what_selects_pods_selects_these() -> None:
    rendered = render(EVERYTHING)
    labels = rendered.of("Deployment")["spec"]["template"]["metadata"]["labels"]
    assert labels["team"] == "shop"
    for kind, path in (
        ("PodDisruptionBudget", "selector"),
        ("NetworkPolicy", "podSelector"),
        ("PodMonitor", "selector"),
        ("Deployment", "selector"),
    ):
        wanted = rendered.of(kind)["spec"][path]["matchLabels"]
        assert wanted
        assert wanted.items() <= labels.items(), kind


def test_who_reaches_what() -> None:
    spec = render(EVERYTHING).of("NetworkPolicy")["spec"]
    app, admin = spec["ingress"]
    assert app == {"ports": [{"port": 8080, "protocol": "TCP"}]}
    assert [each["port"] for each in admin["ports"]] == [8090]
    assert admin["from"]
    assert [each["port"] for each in spec["egress"][0]["ports"]] == [53, 53]
    assert spec["egress"][1]["ports"][0]["port"] == 9092


def test_alert_rules_arrive_as_they_are_written(tmp_path: Path) -> None:
    """What Prometheus fills in is not filled in by Helm."""
    chart = tmp_path / CHART.name
    shutil.copytree(CHART, chart)
    rules = {"groups": [{"name": "g", "rules": [{"alert": "A", "expr": "{{ $value }} > 1"}]}]}
    (chart / "files").mkdir(exist_ok=True)
    (chart / "files" / "alerts.yaml").write_text(yaml.safe_dump(rules), encoding="utf-8")
    assert (
        render(changed({"prometheusRule/enabled": True}), chart=chart).of("PrometheusRule")["spec"]
        == rules
    )


def test_secrets_are_mounted_and_never_rendered(tmp_path: Path) -> None:
    rendered = render(EVERYTHING)
    pod = pod_of(rendered)
    mounts = {each["mountPath"]: each["name"] for each in container(pod, "sidecar")["volumeMounts"]}
    volumes = {each["name"]: each for each in pod["volumes"]}
    for path, secret in (
        ("/run/secrets/kafka", "kafka-credentials"),
        ("/run/secrets/sidecar-admin", "sidecar-token"),
    ):
        assert volumes[mounts[path]]["secret"]["secretName"] == secret
    config = yaml.safe_load(rendered.of("ConfigMap")["data"]["sidecar.yaml"])
    assert config["admin"]["token_file"] == "/run/secrets/sidecar-admin/token"


def test_the_check_of_helm_test_runs_where_the_sidecar_does_and_leaves_the_app_out() -> None:
    (check,) = render(EVERYTHING).of("Pod")["spec"]["containers"]
    sidecar = container(pod_of(render(EVERYTHING)), "sidecar")
    assert check["args"] == ["check", "--no-app", "-c", "/etc/sidecar/sidecar.yaml"]
    assert check["image"] == sidecar["image"]
    assert check["volumeMounts"] == sidecar["volumeMounts"]


# --- values survive -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("kafka/message.max.bytes", 1_000_000_000),
        ("kafka/queued.max.messages.kbytes", 2_097_151),
        ("kafka/socket.keepalive.enable", False),
        ("kafka/client.rack", "0123"),
        ("kafka/group.instance.id", "1e3"),
        ("kafka/client.id", "on"),
        ("kafka/sasl.username", "12:30:45"),
        ("routes/0/executors", 0),
        ("routes/0/threshold_bytes", 9_007_199_254_740_991),
        ("routes/0/headers_always", False),
        ("routes/0/leave_after_held_seconds", 0),
        ("revoke_seconds", 0.25),
    ],
)
def test_a_value_arrives_as_it_was_given(
    path: str, value: object, major: int, tmp_path: Path
) -> None:
    """Helm reads numbers as floats, and YAML reads text as numbers: neither shows."""
    rendered = render(changed({f"sidecar/config/{path}": value}), major=major)
    node: Any = yaml.safe_load(rendered.of("ConfigMap")["data"]["sidecar.yaml"])
    for part in path.split("/"):
        node = node[int(part) if part.isdigit() else part]
    assert (type(node), node) == (type(value), value)
    assert settings_of(rendered, tmp_path).drain_seconds == 25


def test_the_sidecar_reads_what_is_rendered(tmp_path: Path) -> None:
    del_token = changed({"sidecar/config/drain_seconds": 30})
    settings = settings_of(render(del_token), tmp_path)
    assert settings.grace_seconds == 40
    assert settings.admin.host == "0.0.0.0"
    assert settings.routes[0].topics == ("orders",)


def test_the_default_limit_holds_what_the_process_needs(tmp_path: Path) -> None:
    """A route, and four more; not ten."""
    limit = container(pod_of(render(LEAST)), "sidecar")["resources"]["limits"]["memory"]
    assert limit == "256Mi"
    for routes, enough in ((1, True), (5, True), (10, False)):
        many = [{"topics": [f"t{at}"], "target": "http://127.0.0.1:8080/"} for at in range(routes)]
        settings = settings_of(render(changed({"sidecar/config/routes": many})), tmp_path)
        assert ("but the limit" not in check_memory(settings, 256 << 20).text) is enough


def test_spans_are_switched_on_and_sent_where_the_variables_say(tmp_path: Path) -> None:
    variables = [
        {"name": "OTEL_EXPORTER_OTLP_ENDPOINT", "value": "http://collector:4318"},
        {"name": "OTEL_TRACES_SAMPLER_ARG", "value": "0.10"},
        {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
    ]
    rendered = render(
        changed({"sidecar/config/tracing": {"enabled": True}, "sidecar/env": variables})
    )
    assert settings_of(rendered, tmp_path).tracing.enabled is True
    assert container(pod_of(rendered), "sidecar")["env"] == variables


# --- bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"app/image": {}}, "app.image.repository is missing"),
        ({"sidecar/config/routes": []}, "routes"),
        ({ROUTE: {"topics": ["a"]}}, "target"),
        ({f"{ROUTE}/executor": 4}, "executor"),
        ({f"{ROUTE}/executors": "four"}, "executors"),
        ({f"{ROUTE}/executors": -1}, "executors"),
        ({"sidecar/confg": {}}, "confg"),
        ({"replicas": 2}, "replicas"),
        ({"app/image/tag": 1.2}, "tag"),
        ({"extraPodSpec": {"volumes": []}}, "extraPodSpec.volumes has a value of its own"),
        ({"sidecar/config/kafka": {"group.id": "g"}}, "bootstrap.servers is missing"),
        ({"sidecar/config/kafka": {"bootstrap.servers": "b:1"}}, "group.id is missing"),
        ({"sidecar/config/kafka/sasl.password": "hush"}, "sasl.password is a secret"),
        ({f"{ROUTE}/guarantee": "at_most_once"}, "routes[0].loss_budget is required"),
        ({f"{ROUTE}/loss_budget": 5}, "routes[0].loss_budget belongs to guarantee"),
        ({f"{ROUTE}/pattern": "^a"}, "routes[0].pattern is given as well as topics"),
        ({f"{ROUTE}/topics": None}, "routes[0].topics is missing"),
        ({f"{ROUTE}/timeout_seconds": 25}, "routes[0].timeout_seconds (25) must be below"),
        ({"terminationGracePeriodSeconds": 30}, "terminationGracePeriodSeconds (30) is below"),
        (
            {"sidecar/config/drain_seconds": 100, "terminationGracePeriodSeconds": 100},
            "sidecar.config.drain_seconds (100) and app.stopSeconds (10)",
        ),
        ({"app/stopSeconds": 0}, "stopSeconds"),
        ({"sidecar/config/grace_seconds": 60}, "grace_seconds is set by the chart"),
        ({"sidecar/config/admin/token": "hush"}, "admin.token would show in a ConfigMap"),
        ({f"{ROUTE}/auth": {"bearer": "hush"}}, "routes[0].auth.bearer is a secret and would show"),
        (
            {f"{ROUTE}/auth": {"signature": "hush"}},
            "routes[0].auth.signature is a secret and would show",
        ),
        (
            {f"{ROUTE}/headers": {"AUTHORIZATION": "Basic hush"}},
            "routes[0].headers.AUTHORIZATION is a secret by its name and would show",
        ),
        (
            {f"{ROUTE}/headers": {"X-Team": "blue", "X-Api-Key": "hush"}},
            "routes[0].headers.X-Api-Key is a secret by its name and would show",
        ),
        ({"sidecar/config/admin/host": "127.0.0.1"}, "admin.host (127.0.0.1) is loopback"),
        ({"sidecar/config/admin/port": 0}, "admin.port is 0"),
        ({"sidecar/config/admin/port": 8080}, "8080 is also sidecar.config.admin.port"),
        ({"sidecar/config/admin/socket": None}, "admin.socket is set by the chart"),
        ({"autoscaling/enabled": True, "keda/enabled": True}, "two autoscalers"),
        ({"keda": {"enabled": True, "lag": {"enabled": False}}}, "enable what to scale by"),
        ({"keda": {"enabled": True, "backlog": {"enabled": True}}}, "serverAddress is missing"),
        (
            {"autoscaling": {"enabled": True, "minReplicas": 5, "maxReplicas": 2}},
            "autoscaling.maxReplicas (2) is below",
        ),
        (
            {"workload/enabled": False, "keda/enabled": True},
            "keda.target.name is missing",
        ),
        (
            {"podDisruptionBudget": {"enabled": True, "minAvailable": 1}},
            "minAvailable and maxUnavailable are both given",
        ),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_nonsense_is_refused_by_the_name_of_the_value(changes: Values, told: str) -> None:
    with pytest.raises(Refused) as refused:
        render(changed(changes))
    assert told in str(refused.value)


def test_a_credential_in_a_header_is_taken_by_reference(tmp_path: Path) -> None:
    headers = {
        "Authorization": {"file": "/run/secrets/kafka/password"},
        "X-Api-Key": {"file": "/run/secrets/kafka/password"},
        "X-Team": "blue",
    }
    settings = settings_of(render(changed({f"{ROUTE}/headers": headers})), tmp_path)
    assert settings.routes[0].headers["Authorization"].known == "hush"


def test_native_sidecars_are_refused_where_there_are_none() -> None:
    with pytest.raises(Refused, match=r"sidecar\.native needs Kubernetes 1\.29"):
        render(LEAST, kubernetes="1.28.3")


@pytest.mark.parametrize("said", ["true", "True", "TRUE", True])
def test_a_choice_is_taken_in_the_spellings_of_the_sidecar(said: object) -> None:
    checked = "enable.ssl.certificate.verification"
    assert render(changed({f"sidecar/config/kafka/{checked}": said}))


# --- as a library ---------------------------------------------------------------------------------


def test_another_chart_takes_the_parts(tmp_path: Path) -> None:
    example = tmp_path / "example"
    shutil.copytree(CHART.parent / "example", example)
    shutil.copytree(CHART, example / "charts" / CHART.name)
    rendered = render({}, chart=example)
    assert rendered.kinds == ["ConfigMap", "Pod", "ServiceAccount", "StatefulSet"]
    pod = pod_of(rendered, "StatefulSet")
    assert container(pod, "sidecar")["restartPolicy"] == "Always"
    assert container(pod, "orders")["lifecycle"]["preStop"]["httpGet"]["port"] == 8090
    assert pod["terminationGracePeriodSeconds"] == 45
    # Whatever group another chart's pod has, or none.
    assert "securityContext" not in pod
    (secret,) = (each["secret"] for each in pod["volumes"] if "secret" in each)
    assert secret["secretName"] == "orders-kafka"
    assert readable_by_others(secret)
    (config,) = (each for each in pod["volumes"] if each["name"] == "sidecar-config")
    assert config["configMap"]["name"] == rendered.of("ConfigMap")["metadata"]["name"]


@pytest.mark.parametrize("enabled", [True, False])
def test_a_chart_that_depends_on_it_may_switch_it(
    enabled: bool, major: int, tmp_path: Path
) -> None:
    """By a condition, which helm leaves among the values; and global ones come with it."""
    parent = tmp_path / "parent"
    shutil.copytree(CHART, parent / "charts" / CHART.name)
    needed = {
        "name": CHART.name,
        "version": "0.1.0",
        "repository": "",
        "condition": f"{CHART.name}.enabled",
    }
    chart = {"apiVersion": "v2", "name": "parent", "version": "1.0.0", "dependencies": [needed]}
    (parent / "Chart.yaml").write_text(yaml.safe_dump(chart), encoding="utf-8")
    values = {CHART.name: {**LEAST, "enabled": enabled}, "global": {"region": "eu"}}
    assert ("Deployment" in render(values, chart=parent, major=major).kinds) is enabled
