"""sidecar inject: what it adds to manifests that people write, and what it leaves alone."""

from __future__ import annotations

import difflib
import io
from pathlib import Path
from typing import Any, Final

import kubernetes_validate
import pytest
import yaml

from sidecar.cli import main

CONFIG: Final = """\
# What goes where.
kafka: {bootstrap.servers: "kafka:9092", group.id: orders}
routes:
  - topics: [orders]
    target: http://127.0.0.1:8080/events/{topic}
drain_seconds: 24.5
"""

DEPLOYMENT: Final = """\
# The service, and its pods.
apiVersion: v1
kind: Service
metadata: {name: orders}   # spaces   are   kept
spec:
    ports: [ {port: 80} ]
    selector: { app: orders }
--- # the pods
# Two of them.
apiVersion: apps/v1
kind: Deployment
metadata:
  name: orders
spec:
  replicas: 2 # one per zone
  selector: {matchLabels: {app: orders}}
  template:
    metadata:
      labels: {app: orders}
    spec:
      containers:
      # The application itself.
      - name: orders
        image: "shop/orders:1.2"  # pinned
        env:
        - {name: LEVEL, value: 'on'}
        - {name: SINCE, value: "0123"}
        ports:
        - containerPort: 8080
"""

STATEFUL_SET: Final = """\
apiVersion: apps/v1
kind: StatefulSet
metadata:
  name: ledger
  namespace: shop
spec:
  serviceName: ledger
  selector:
    matchLabels:
      app: ledger
  template:
    metadata:
      labels:
        app: ledger
      annotations:
        note: |
          several
          lines
    spec:
      terminationGracePeriodSeconds: 120
      initContainers:
        - name: migrate   # before everything else
          image: shop/migrate:3
      containers:
        - name: ledger
          image: shop/ledger:3
          lifecycle:
            postStart:
              exec: {command: [warm-up]}
        - name: proxy
          image: envoy:1
      volumes:
        - name: data
          emptyDir: {}
"""

DAEMON_SET: Final = """\
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec: {containers: [{name: agent, image: agent:1}]}
"""

JOB: Final = """\
apiVersion: batch/v1
kind: Job
metadata: {name: import}
spec:
  template:
    spec:
      restartPolicy: Never
      containers:
        - name: import
          image: shop/import:1
"""

CRON_JOB: Final = """\
apiVersion: batch/v1
kind: CronJob
metadata:
  name: nightly
spec:
  schedule: "0 3 * * *"
  jobTemplate:
    spec:
      template:
        spec:
          restartPolicy: OnFailure
          containers:
            - name: nightly
              image: shop/nightly:1
"""

LIST: Final = """\
apiVersion: v1
kind: List
items:
- apiVersion: apps/v1
  kind: Deployment
  metadata: {name: one}
  spec:
    selector: {matchLabels: {app: one}}
    template:
      metadata: {labels: {app: one}}
      spec:
        containers:
        - name: one
          image: one:1
- apiVersion: v1
  kind: ConfigMap
  metadata: {name: other}
"""

ALL: Final = {
    "deployment": (DEPLOYMENT, []),
    "stateful-set": (STATEFUL_SET, ["--container", "ledger"]),
    "daemon-set": (DAEMON_SET, []),
    "job": (JOB, []),
    "cron-job": (CRON_JOB, []),
    "list": (LIST, []),
    "several": (f"{DAEMON_SET}---\n{JOB}---\n{CRON_JOB}", []),
}


@pytest.fixture
def inject(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Any:
    """The command: its output, or its exit code and what it says."""

    def run(text: str, *arguments: str, config: str = CONFIG) -> Any:
        file = tmp_path / "sidecar.yaml"
        file.write_text(config, encoding="utf-8")
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        code = main(["inject", "-f", "-", "-c", str(file), *arguments])
        told = capsys.readouterr()
        return told.out if code == 0 else (code, told.err)

    return run


def pods(text: str) -> list[dict[str, Any]]:
    found = []
    for document in yaml.safe_load_all(text):
        for each in document.get("items", [document]):
            spec = each.get("spec", {})
            spec = spec.get("jobTemplate", {}).get("spec", spec)
            if "template" in spec:
                found.append(spec["template"]["spec"])
    return found


@pytest.mark.parametrize("name", ALL)
def test_every_workload_gets_one_sidecar(inject: Any, name: str) -> None:
    text, arguments = ALL[name]
    out = inject(text, *arguments)
    for pod in pods(out):
        *_, sidecar = pod["initContainers"]
        assert (sidecar["name"], sidecar["restartPolicy"]) == ("sidecar", "Always")
        app = pod["containers"][0]
        assert app["lifecycle"]["preStop"]["httpGet"]["path"] == (
            "/v1/drained?wait_seconds=25&begins_within_seconds=10"
        )
        assert pod["terminationGracePeriodSeconds"] >= 35
        assert {each["name"] for each in pod["volumes"]} >= {"sidecar-config", "sidecar-run"}
    for document in yaml.safe_load_all(out):
        for each in document.get("items", [document]):
            kubernetes_validate.validate(each, "1.34", strict=True)


@pytest.mark.parametrize("name", ALL)
def test_twice_is_once(inject: Any, name: str) -> None:
    text, arguments = ALL[name]
    once = inject(text, *arguments)
    assert inject(once, *arguments) == once
    assert once != text


@pytest.mark.parametrize("name", ALL)
def test_it_only_adds(inject: Any, name: str) -> None:
    """Every line that somebody wrote is still there, in order, comments included."""
    text, arguments = ALL[name]
    before, after = text.splitlines(), inject(text, *arguments).splitlines()
    removed = [line[2:] for line in difflib.ndiff(before, after) if line.startswith("- ")]
    # What was written on one line and has grown is written anew.
    assert [line for line in removed if "{" not in line] == []


def test_what_is_not_changed_stays_byte_by_byte(inject: Any) -> None:
    service = DEPLOYMENT.partition("---")[0]
    assert inject(DEPLOYMENT).startswith(f"{service}--- # the pods\n# Two of them.\n")


def test_values_that_look_like_others_stay_what_they_were(inject: Any) -> None:
    (pod,) = pods(inject(DEPLOYMENT))
    assert [each["value"] for each in pod["containers"][0]["env"]] == ["on", "0123"]


def test_a_longer_grace_period_stays_and_is_told_to_the_sidecar(inject: Any) -> None:
    (pod,) = pods(inject(STATEFUL_SET, "--container", "ledger"))
    assert pod["terminationGracePeriodSeconds"] == 120
    migrate, sidecar = pod["initContainers"]
    assert migrate["name"] == "migrate"
    assert {"name": "SIDECAR_GRACE_SECONDS", "value": "120"} in sidecar["env"]


def test_the_configuration_comes_along_and_a_change_rolls_the_pods(inject: Any) -> None:
    first = inject(STATEFUL_SET, "--container", "ledger")
    workload, config_map = yaml.safe_load_all(first)
    assert config_map["data"]["sidecar.yaml"] == CONFIG
    assert config_map["metadata"] == {"name": "ledger-kafka-sidecar", "namespace": "shop"}
    second = inject(first, "--container", "ledger", config=CONFIG.replace("24.5", "40"))
    changed, again = yaml.safe_load_all(second)
    assert "drain_seconds: 40" in again["data"]["sidecar.yaml"]
    checksum = [each["spec"]["template"]["metadata"]["annotations"] for each in (workload, changed)]
    assert checksum[0]["note"] == checksum[1]["note"]
    assert checksum[0]["checksum/sidecar-config"] != checksum[1]["checksum/sidecar-config"]


def test_it_can_be_changed_into_an_ordinary_container_and_back(inject: Any) -> None:
    native = inject(DEPLOYMENT)
    (pod,) = pods(inject(native, "--classic"))
    assert "initContainers" not in pod
    assert [each["name"] for each in pod["containers"]] == ["orders", "sidecar"]
    assert pods(inject(inject(native, "--classic"))) == pods(native)


def test_diff_shows_what_would_be_added(inject: Any) -> None:
    out = inject(DEPLOYMENT, "--diff")
    assert out.startswith("--- -\n+++ injected\n@@")
    assert not [line for line in out.splitlines()[2:] if line.startswith("-")]
    assert inject(inject(DEPLOYMENT), "--diff") == ""


OWN_HOOK: Final = DEPLOYMENT + "        lifecycle: {preStop: {sleep: {seconds: 5}}}\n"


def test_the_apps_own_hook_is_kept_when_asked(inject: Any) -> None:
    (pod,) = pods(inject(OWN_HOOK, "--keep-pre-stop"))
    assert pod["containers"][0]["lifecycle"] == {"preStop": {"sleep": {"seconds": 5}}}


@pytest.mark.parametrize(
    ("text", "arguments", "told"),
    [
        (STATEFUL_SET, [], "which container is the application: ledger, proxy? Say --container"),
        (STATEFUL_SET, ["--container", "x"], "has no container x, only ledger, proxy"),
        (OWN_HOOK, [], "has a preStop hook of its own"),
        (JOB, ["--classic"], "Job import: would never complete beside an ordinary container"),
        (DEPLOYMENT.replace("8080", "8090"), [], "container orders listens on 8090 as the sidecar"),
        (DEPLOYMENT.replace("name: orders\n        image", "name: sidecar\n        image"), [],
         "has a container named sidecar that is another one"),
        (DEPLOYMENT.replace("      containers:", "      hostNetwork: true\n      containers:"), [],
         "uses the node's network"),
        (DEPLOYMENT.replace("containers:", "contaners:"), [], "is no workload with containers"),
        (f"{DEPLOYMENT}---\n{JOB}", ["--workload", "job/orders"],
         "no workload job/orders in it, only Deployment orders, Job import"),
        ("kind: Service\n", [], "no Deployment, StatefulSet"),
        ("", [], "no Deployment, StatefulSet"),
        ("a: {{ .Values.a }}\n", [], "a template has to be rendered first"),
        ("a: [", [], "no YAML"),
        ("a: 1\na: 2\n", [], "no YAML"),
        ("kind: Deployment\nmetadata: {name: a}\nspec: 5\n", [], "is no workload with containers"),
        ("kind: Job\nmetadata: {name: a}\nspec: {template: {spec: {containers: [x]}}}\n", [],
         "is no workload"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_refused_with_the_reason(
    inject: Any, text: str, arguments: list[str], told: str
) -> None:
    code, error = inject(text, *arguments)
    assert code == 1
    assert told in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ("kafka: {}\n", "routes: is required"),
        (CONFIG + "admin: {socket: /tmp/x}\n", "admin.socket: must stay /run/sidecar"),
        (CONFIG + "admin: {socket: null}\n", "admin.socket: must stay /run/sidecar"),
        (CONFIG + "admin: {port: 0}\n", "admin.port: must be known to probes"),
        (CONFIG.replace("24.5", "4000"), "drain_seconds: must not be above 3600 in a pod"),
    ],
)
def test_a_configuration_that_no_pod_can_have_is_refused(
    inject: Any, config: str, told: str
) -> None:
    code, error = inject(DEPLOYMENT, config=config)
    assert code == 2
    assert told in error


WRONG: Final = {
    "timeout_seconds: 30": "routes[0].timeout_seconds: (30) must be below drain_seconds (24.5)",
    "timeout: 5": "routes[0].timeout: unknown setting; did you mean timeout_seconds?",
    "guarantee: at_most_once": "routes[0].loss_budget: is required by at_most_once",
    "executors: many": "routes[0].executors: must be a whole number",
    "on_exhausted: park": "routes[0].on_exhausted: park needs a place",
    "headers: {Host: a}": "routes[0].headers.Host: is the sidecar's own header",
    "batch: {max_records: 2000}": "routes[0].batch.max_records: (2000) must not be above threshold",
}


@pytest.mark.parametrize("line", WRONG)
def test_a_configuration_is_refused_as_at_the_start(
    inject: Any, line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the sidecar's own words, and with its exit code; and nothing is written."""
    config = CONFIG.replace("    target:", f"    {line}\n    target:")
    code, error = inject(DEPLOYMENT, config=config)
    assert main(["run", "-c", str(tmp_path / "sidecar.yaml")]) == code == 2
    assert capsys.readouterr().err == error
    assert WRONG[line] in error


@pytest.mark.parametrize("content", [None, b"\xff", b"", b"a: [", b"a: 1\na: 2\n"])
def test_a_file_that_is_none_is_refused_as_at_the_start(
    content: bytes | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest, config = tmp_path / "deployment.yaml", tmp_path / "sidecar.yaml"
    manifest.write_text(DEPLOYMENT, encoding="utf-8")
    if content is not None:
        config.write_bytes(content)
    assert main(["inject", "-f", str(manifest), "-c", str(config)]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert main(["run", "-c", str(config)]) == 2
    assert capsys.readouterr().err == told.err


def test_everything_that_is_wrong_is_told_at_once(inject: Any) -> None:
    config = """\
kafka: {bootstrap.servers: "kafka:9092", group.id: a, sasl.password: hush, acks: 1}
routes: [{topics: [a b], target: "ftp://x", auth: {bearer: hush}}]
"""
    code, error = inject(DEPLOYMENT, config=config)
    assert code == 2
    for told in ("kafka.sasl.password", "kafka.acks", "routes[0].target", "routes[0].auth.bearer"):
        assert f"sidecar: {told}: " in error
    assert "hush" not in error


def test_what_is_in_the_pod_need_not_be_here(inject: Any) -> None:
    config = """\
kafka:
  bootstrap.servers: "kafka:9092"
  group.id: orders
  security.protocol: SASL_SSL
  sasl.mechanisms: AWS_MSK_IAM
  sasl.password: {env: KAFKA_PASSWORD}
  ssl.ca.location: /run/secrets/kafka/ca.crt
routes:
  - topics: [orders]
    target: https://127.0.0.1:8080/
    auth: {bearer: {file: /run/secrets/app/token}, signature: {env: KEY}}
    headers: {X-Api-Key: {file: /run/secrets/app/key}}
    tls: {ca_file: /run/ca.crt, cert_file: /run/tls.crt, key_file: /run/tls.key}
admin: {token_file: /run/secrets/sidecar/token}
tracing: {enabled: true}
grace_seconds: 5
"""
    assert "kind: ConfigMap" in inject(DEPLOYMENT, config=config)


@pytest.mark.parametrize("name", ["Authorization", "authorization", "X-API-Key", "Cookie"])
def test_credentials_among_the_headers_are_refused_in_plain_text(inject: Any, name: str) -> None:
    route = "    target:"
    config = CONFIG.replace(route, f"    headers: {{{name}: Bearer hush, X-Team: shop}}\n{route}")
    code, error = inject(DEPLOYMENT, config=config)
    assert code == 2
    assert f"routes[0].headers.{name}: stands there in plain text, and a ConfigMap is no" in error
    assert "hush" not in error
    assert "X-Team" not in error


def test_a_secret_is_mounted_where_the_configuration_finds_it(inject: Any) -> None:
    """Of a mode that the sidecar's user may read, whatever the pod's group is."""
    arguments = ["--secret", "kafka=orders-kafka"]
    once = inject(DEPLOYMENT, *arguments)
    (pod,) = pods(once)
    (sidecar,) = pod["initContainers"]
    mount = {"name": "sidecar-secret-kafka", "mountPath": "/run/secrets/kafka", "readOnly": True}
    assert mount in sidecar["volumeMounts"]
    volume = {"name": "sidecar-secret-kafka", "secret": {"secretName": "orders-kafka"}}
    assert volume in pod["volumes"]
    assert "securityContext" not in pod
    assert inject(once, *arguments) == inject(once) == once


@pytest.mark.parametrize("text", ["kafka", "kafka=", "=orders", "a/b=c", "kafka=Orders"])
def test_a_secret_without_its_names_is_refused(inject: Any, text: str) -> None:
    with pytest.raises(SystemExit) as ended:
        inject(DEPLOYMENT, f"--secret={text}")
    assert ended.value.code == 2


@pytest.mark.parametrize("name", ["Orders", "a_b", "-a", "a" * 254, ""])
def test_a_name_that_kubernetes_does_not_take_is_refused(inject: Any, name: str) -> None:
    with pytest.raises(SystemExit) as ended:
        inject(DEPLOYMENT, f"--config-map={name}")
    assert ended.value.code == 2


def test_one_of_several_workloads_is_chosen(inject: Any) -> None:
    text = f"{DEPLOYMENT}---\n{JOB}---\n{CRON_JOB}"
    out = inject(text, "--workload", "import", "--workload", "CronJob/nightly")
    deployment, job, cron_job = pods(out)
    assert "initContainers" not in deployment
    assert job["initContainers"][0]["name"] == cron_job["initContainers"][0]["name"] == "sidecar"
    maps = [each for each in yaml.safe_load_all(out) if each["kind"] == "ConfigMap"]
    assert len(maps) == 2


def test_a_container_is_named_where_there_are_several_alone(inject: Any) -> None:
    """A file may hold other pods, which have one."""
    out = inject(f"{STATEFUL_SET}---\n{JOB}", "--container", "ledger")
    ledger, job = (pod["containers"][0] for pod in pods(out))
    assert "preStop" in ledger["lifecycle"]
    assert "preStop" in job["lifecycle"]


@pytest.mark.parametrize("seconds", ["0", "-1", "1.5", "ten"])
def test_the_end_of_the_app_takes_a_second_at_least(inject: Any, seconds: str) -> None:
    """Else the sidecar would not start: its own end needs that beyond its drain."""
    with pytest.raises(SystemExit) as ended:
        inject(DEPLOYMENT, f"--stop-seconds={seconds}")
    assert ended.value.code == 2
