"""sidecar inject on what is rare: refused in a sentence, or done with all else left as it was."""

from __future__ import annotations

import re
from typing import Any, Final

import pytest
import yaml

from sidecar.cli.inject import injected
from sidecar.errors import SidecarError
from tests.unit.test_inject_manifests import CONFIG, parts, pod_template, taken_away, workloads

POD: Final = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: orders
spec:
  selector: {matchLabels: {app: orders}}
  template:
    metadata:
      labels: {app: orders}
    spec:
      containers:
      - name: orders
        image: shop/orders:1
"""


def with_pod(lines: str) -> str:
    """More of the pod's spec."""
    return POD + "".join(f"      {line}\n" for line in lines.split("\n"))


def refusal(text: str, **changes: Any) -> str:
    with pytest.raises(SidecarError) as refused:
        injected(text, CONFIG, parts(**changes))
    assert "\n" not in str(refused.value)
    return str(refused.value)


NULLS: Final = {
    "volumes": with_pod("volumes:"),
    "init-containers": with_pod("initContainers: null"),
    "grace": with_pod("terminationGracePeriodSeconds:"),
    "security-context": with_pod("securityContext: ~"),
    "lifecycle": f"{POD}        lifecycle:   # later\n        ports: null\n        volumeMounts:\n",
    "labels": POD.replace("labels: {app: orders}", "labels:"),
    "template-metadata": POD.replace("metadata:\n      labels: {app: orders}\n", "metadata:\n"),
    "annotations": POD.replace("      labels: {", "      annotations: null\n      labels: {"),
    "other-documents": f"null\n---\n---\n~\n---\n{POD}---\n",
    "other-objects": f"kind: Service\nmetadata:\nspec:\n---\nkind: List\nitems:\n---\n{POD}",
    "selector-and-affinity": with_pod("nodeSelector:\naffinity:\nos:"),
}


@pytest.mark.parametrize("name", NULLS)
def test_what_is_empty_is_filled_or_left(name: str) -> None:
    text = NULLS[name]
    out = injected(text, CONFIG, parts())
    (workload,) = workloads(out)
    assert len(pod_template(workload)["spec"]["volumes"]) == 2
    assert injected(out, CONFIG, parts()) == out
    changed = taken_away(text, out)
    assert all(re.fullmatch(r" +[a-zA-Z]+:( null| ~| +# later)?\n", line) for line in changed)


@pytest.mark.parametrize(
    "text",
    [
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\nspec: null\n",
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\nspec: {template: }\n",
        "apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: a}\nspec: {jobTemplate: }\n",
        POD.replace("containers:", "containers: []\n      volumes:\n      - name: a #"),
        POD.partition("      - name")[0],
        with_pod("volumes: [null]"),
        with_pod("volumes: {name: a}"),
        with_pod("initContainers: [a]"),
    ],
)
def test_a_pod_that_is_none_is_refused(text: str) -> None:
    assert "is no workload with containers" in refusal(text)


DONE: Final = {
    "equal-names-of-volumes": with_pod("volumes:\n- name: a\n- {name: a, emptyDir: {}}"),
    "grace-of-nothing": with_pod("terminationGracePeriodSeconds: 0  # at once"),
    "one-process-namespace": with_pod("shareProcessNamespace: true"),
    "quoted": POD.replace("kind: Deployment", '"kind": "Deployment"').replace("spec:", "'spec':"),
    "numbers-in-quotes": f"{POD}        env: [{{name: A, value: '1'}}]\n        args: ['0x1']\n",
    "numbers-of-all-kinds": f"{POD}        args: [0o17, 017, 1_000, 1:30, .inf, 0x1F, 1e3, 0b1]\n",
    "a-long-line": f"{POD}        command: [sh, -c, '{'echo lines; ' * 5000}']\n",
    "a-long-key": f"{POD}      {'k' * 900}: v\n",
    "another-separator": POD.replace("apiVersion", "# one\n--- # two\t\n# three\napiVersion"),
    "two-separators": f"---\n---\n{POD}---\n---\n",
    "document-ends": f"{POD}...\n# between\n...\n---\nkind: Service\n...\n",
    "directives": f"%YAML 1.2\n%TAG !e! tag:example,2000:\n---\n{POD}",
    "text-behind-the-dashes": f"--- {{kind: Service}}\n--- |\n text\n---\n{POD}",
    "mixed-line-ends": POD.replace("spec:\n", "spec:\r\n"),
    "a-tab-between": POD.replace("image: shop/orders:1", "image:\tshop/orders:1\t"),
    "tabs-between-brackets": f"{POD}        env: [\n\t\t{{name: A,\n\t\tvalue: b}}\n\t]\n",
    "other-groups": f"apiVersion: batch.volcano.sh/v1\nkind: Job\nspec: {{tasks: []}}\n---\n{POD}",
    "a-typed-list": "apiVersion: apps/v1\nkind: DeploymentList\nitems:\n- "
    + POD.replace("\n", "\n  ").rstrip(" "),
    "no-spaces-behind-dashes": POD.replace("      - name: orders", "      -\n        name: orders"),
    "explicit-tags": POD.replace("name: orders", "name: !!str orders"),
    "explicit-keys": POD.replace("        image: shop", "        ? image\n        : shop"),
    "an-anchor-of-all": POD.replace("spec:\n  sel", "spec: &all\n  sel"),
    "non-ascii": POD.replace("image:", "# ünïcode 🚀 \u2028 \u0085\n        image:"),
}  # fmt: skip


@pytest.mark.parametrize("name", DONE)
def test_what_is_rare_is_done(name: str) -> None:
    """Lines are only added, but for a grace period that is too short."""
    text = DONE[name]
    out = injected(text, CONFIG, parts())
    *_, workload = workloads(out.replace("\t", " "))
    assert pod_template(workload)["spec"]["initContainers"][-1]["name"] == "sidecar"
    assert pod_template(workload)["spec"]["terminationGracePeriodSeconds"] == 35
    assert all("terminationGrace" in line for line in taken_away(text, out))
    assert injected(out, CONFIG, parts()) == out


REFUSED: Final = {
    "terminationGracePeriodSeconds: '30'": "has a terminationGracePeriodSeconds that is no number",
    "terminationGracePeriodSeconds: 1.5": "has a terminationGracePeriodSeconds that is no number",
    "terminationGracePeriodSeconds: yes": "has a terminationGracePeriodSeconds that is no number",
    "os: {name: windows}": "runs on Windows",
    "nodeSelector: {beta.kubernetes.io/os: windows}": "runs on Windows",
    "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms:"
    " [{matchExpressions: [{key: kubernetes.io/os, operator: In, values: [windows]}]}]}}}":
        "runs on Windows",
    "hostNetwork: true": "uses the node's network",
    "initContainers: [{name: sidecar, image: a}]": "has a container named sidecar that is another",
    "volumes: [{name: sidecar-config, emptyDir: {}}]": "has a volume named sidecar-config",
    "initContainers: [{name: a, ports: [{containerPort: '8090'}]}]": "container a listens on 8090",
}  # fmt: skip


@pytest.mark.parametrize("line", REFUSED)
def test_what_cannot_be_done_is_refused(line: str) -> None:
    assert REFUSED[line] in refusal(with_pod(line))


def test_what_runs_on_several_systems_is_not_windows_alone() -> None:
    either = REFUSED.keys() & {each for each in REFUSED if "affinity" in each}
    line = either.pop().replace("[windows]", "[windows, linux]")
    assert "name: sidecar" in injected(with_pod(line), CONFIG, parts())


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (POD.replace("shop/orders:1", "!!int x"), "no YAML: a value is not what it looks like"),
        (POD.replace("shop/orders:1", "0x_"), "no YAML: a value is not what it looks like"),
        (POD.replace("shop/orders:1", "!!float x"), "no YAML: a value is not what it looks like"),
        (POD.replace("shop/orders:1", "1" * 5000), "no YAML: a value is not what it looks like"),
        (POD.replace("shop/orders:1", "!Ref x"), "no YAML"),
        (POD.replace("shop/orders:1", "@x"), "no YAML"),
        (POD.replace("shop/orders:1", "*nobody"), "no YAML"),
        (POD.replace("shop/orders:1", "\x07"), "no YAML"),
        (POD.replace("  selector", "\tselector"), "no YAML"),
        (POD + "{% if debug %}\n", "a template has to be rendered first"),
        (f"{'k' * 1100}: v\n---\n{POD}", "no YAML"),
        ("- a\n- b\n", "no Deployment, StatefulSet"),
        ("just text\n", "no Deployment, StatefulSet"),
        (f'{POD}---\n{{"a": 1}}{{"b": 2}}\n', "no YAML"),
    ],
)
def test_what_is_no_manifest_is_refused(text: str, told: str) -> None:
    assert told in refusal(text)


def test_a_text_at_the_end_keeps_what_it_is() -> None:
    """Behind it a line end would be one more character of it, unless it says that none is."""
    text = f"{POD}---\nkind: ConfigMap\ndata:\n  a: |\n    last"
    assert "ends in a block of text without a line end" in refusal(text)
    assert "    last\n---\n" in injected(text.replace("|", "|-"), CONFIG, parts())


def test_lines_that_end_by_a_return_alone_are_refused_or_kept() -> None:
    assert "rare way of writing" in refusal(POD.replace("\n", "\r"))


# --- what the sidecar's user may read -------------------------------------------------------------

MOUNTED: Final = yaml.safe_load("""\
- {secret: {secretName: a, defaultMode: 256}}
- {secret: {secretName: a, defaultMode: 288}}
- {secret: {secretName: a, defaultMode: 400}}
- {secret: {secretName: a, items: [{key: a, path: a}, {key: b, path: b, mode: 256}]}}
- {configMap: {name: a, defaultMode: 416}}
- {projected: {defaultMode: 288, sources: [{secret: {name: a}}]}}
- {projected: {sources: [{secret: {name: a, items: [{key: a, path: a, mode: 256}]}}]}}
- {downwardAPI: {defaultMode: 256}}
""")


def mounting(volume: dict[str, Any], pod: dict[str, Any]) -> str:
    """A pod that is injected, with a volume that somebody added for the sidecar."""
    (workload, config_map) = yaml.safe_load_all(injected(POD, CONFIG, parts()))
    spec = workload["spec"]["template"]["spec"]
    spec["volumes"].append({"name": "kafka", **volume})
    spec["initContainers"][0]["volumeMounts"].append({"name": "kafka", "mountPath": "/run/kafka"})
    return yaml.safe_dump_all([{**workload, "spec": {**workload["spec"]}}, config_map]).replace(
        "      containers:", f"      securityContext: {pod}\n      containers:"
    )


@pytest.mark.parametrize("volume", MOUNTED, ids=str)
def test_files_that_its_user_cannot_read_are_refused(volume: dict[str, Any]) -> None:
    """Unless the pod has a group for its files."""
    told = refusal(mounting(volume, {}))
    assert "a volume kafka for the sidecar whose files (" in told
    assert "securityContext: {fsGroup: 65532}" in told
    text = mounting(volume, {"fsGroup": 2000})
    assert injected(text, CONFIG, parts()) == text


def test_files_that_others_may_read_are_no_matter() -> None:
    for mode in (0o444, 0o644, 0o755):
        text = mounting({"secret": {"secretName": "a", "defaultMode": mode}}, {})
        assert injected(text, CONFIG, parts()) == text


def test_the_apps_own_files_are_no_matter() -> None:
    volumes = "volumes:\n- name: key\n  secret: {secretName: a, defaultMode: 0400}"
    assert "name: sidecar" in injected(with_pod(volumes), CONFIG, parts())


def test_a_volume_of_the_name_of_a_secrets_is_not_taken() -> None:
    text = with_pod("volumes: [{name: sidecar-secret-kafka, secret: {secretName: mine}}]")
    told = refusal(text, secrets=(("kafka", "orders-kafka"),))
    assert "has a volume named sidecar-secret-kafka that is another one" in told
