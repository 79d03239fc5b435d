"""sidecar inject on manifests as they lie in repositories: of any style, lines are only added."""

from __future__ import annotations

import copy
import difflib
from collections.abc import Sequence
from typing import Any, Final

import kubernetes_validate
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar.cli.inject import injected
from sidecar.cli.pod_parts import Parts
from sidecar.errors import SidecarError

CONFIG: Final = "kafka: {group.id: g}\nroutes: [{topics: [orders]}]\n"
OURS: Final = {"sidecar-config", "sidecar-run"}


def parts(**changes: Any) -> Parts:
    usual: dict[str, Any] = {
        "image": "kafka-dispatch-sidecar:0.1.0",
        "config_map": "kafka-sidecar",
        "checksum": "c" * 64,
        "drain_seconds": 25.0,
        "stop_seconds": 10,
        "port": 8090,
        "native": True,
        "app": None,
        "keep_pre_stop": False,
    }
    return Parts(**{**usual, **changes})


COMMENTS: Final = """\
# Comments at every depth, and what is commented out.
apiVersion: apps/v1      # the group
kind: Deployment
metadata:
  name:   orders   # three spaces
  # labels: {app: orders}

spec:
  # How many
  replicas: 2


  selector:
    matchLabels: {app: orders}
  template:
    metadata:
      labels: {app: orders}
      # annotations: {none: yet}
    spec:
      # The containers of the pod
      containers:
      # The app.
      - name: orders
        image: shop/orders:1   # pinned by hand
        # ports:
        # - containerPort: 8080
      # There may be a second one.

      # Where the volumes would be
      # volumes: []
# The end.
"""

FOUR_SPACES: Final = """\
apiVersion: apps/v1
kind: Deployment
metadata:
    name: orders
spec:
    selector:
        matchLabels:
            app: orders
    template:
        metadata:
            labels:
                app: orders
            annotations: {}
        spec:
            containers:
                -   name: orders
                    image: shop/orders:1
                    lifecycle:
            volumes: []   # none yet
            initContainers:
            nodeSelector:
                kubernetes.io/os: linux
"""

DASH_ALONE: Final = """\
---

apiVersion: apps/v1
kind: StatefulSet
metadata: {"name": "orders", "namespace": "shop"}
spec:
   serviceName: orders
   selector: {"matchLabels": {"app": "orders"}}
   template:
     metadata: {labels: {app: orders}}
     spec:
        initContainers:
         -
           name: migrate
           image: 'shop/migrate:1'
        containers:
          -
            # The app, with its dash alone.
            name: orders
            image: >-
              shop/orders:1

            command: ["/bin/sh", "-c"]
            args:
            - |
              set -e   # "quotes", 'quotes', and {braces}
              \texec orders --verbose

               # no comment, but text
...
"""

FLOW: Final = """\
{apiVersion: apps/v1, kind: Deployment, metadata: {name: orders},
 spec: {selector: {matchLabels: {app: orders}}, template: {
  metadata: {labels: {app: orders}, annotations: {}},
  spec: {
    # within braces
    containers: [
      {name: orders, image: 'shop/orders:1', env: [{name: A, value: "1"}, ], }, # the app
    ],
    volumes: [],
  }}}}
"""

JSON: Final = """\
{
    "apiVersion": "v1",
    "items": [
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "orders"},
            "spec": {
                "selector": {"matchLabels": {"app": "orders"}},
                "template": {
                    "metadata": {"labels": {"app": "orders"}},
                    "spec": {"containers": [{"image": "shop/orders:1", "name": "orders"}]}
                }
            }
        }
    ],
    "kind": "List"
}
"""

ANCHORS: Final = """\
x-labels: &labels {app: orders}
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: orders
  labels: &labels
    app: orders
spec:
  selector: {matchLabels: *labels}
  template:
    metadata:
      labels:
        <<: *labels
        tier: backend
    spec:
      containers: &containers
        - &app
          name: orders
          image: shop/orders:1
          env: &env
            - {name: A, value: "1"}
      initContainers:
        - name: migrate
          image: shop/orders:1
          env: *env
"""

SHARED: Final = """\
apiVersion: v1
kind: List
items:
- apiVersion: apps/v1
  kind: Deployment
  metadata: {name: one}
  spec: &spec
    selector: {matchLabels: {app: orders}}
    template:
      metadata: {labels: {app: orders}}
      spec:
        containers:
        - name: orders
          image: shop/orders:1
- apiVersion: apps/v1
  kind: Deployment
  metadata: {name: two}
  spec: *spec
"""

LIVE: Final = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  annotations:
    deployment.kubernetes.io/revision: "3"
    kubectl.kubernetes.io/last-applied-configuration: |
      {"apiVersion":"apps/v1","kind":"Deployment","metadata":{"annotations":{},"name":"orders","namespace":"shop"}}
  creationTimestamp: "2026-03-01T08:00:00Z"
  generation: 3
  managedFields:
  - apiVersion: apps/v1
    fieldsType: FieldsV1
    fieldsV1:
      f:spec:
        f:template:
          f:spec:
            f:containers:
              k:{"name":"orders"}:
                .: {}
                f:image: {}
                f:ports:
                  .: {}
                  k:{"containerPort":8080,"protocol":"TCP"}:
                    .: {}
    manager: kubectl-client-side-apply
    operation: Update
    time: "2026-03-01T08:00:00Z"
  name: orders
  namespace: shop
  resourceVersion: "1234567"
  uid: 11111111-2222-3333-4444-555555555555
spec:
  progressDeadlineSeconds: 600
  replicas: 1
  selector:
    matchLabels:
      app: orders
  strategy:
    rollingUpdate:
      maxSurge: 25%
      maxUnavailable: 25%
    type: RollingUpdate
  template:
    metadata:
      labels:
        app: orders
    spec:
      containers:
      - image: shop/orders:1
        imagePullPolicy: IfNotPresent
        name: orders
        ports:
        - containerPort: 8080
          protocol: TCP
        resources: {}
        terminationMessagePath: /dev/termination-log
      dnsPolicy: ClusterFirst
      restartPolicy: Always
      schedulerName: default-scheduler
      securityContext: {}
      shareProcessNamespace: true
status:
  availableReplicas: 1
  conditions:
  - lastTransitionTime: "2026-03-01T08:00:10Z"
    lastUpdateTime: "2026-03-01T08:00:10Z"
    message: Deployment has minimum availability.
    reason: MinimumReplicasAvailable
    status: "True"
    type: Available
"""

MANY: Final = f"""\
# 🚀 Everything of the service — größtenteils.
apiVersion: v1
kind: Service
metadata: {{name: orders, annotations: {{emoji: "🛒\t🛒", note: 'it''s'}}}}
spec: {{ports: [{{port: 80}}], selector: {{app: orders}}}}
---
# A document of comments only.
---
{COMMENTS}---
apiVersion: batch/v1
kind: CronJob
metadata: {{name: nightly}}
spec:
  schedule: '*/5 * * * *'
  jobTemplate:
    spec:
      template:
        spec:
          containers:
          - name: nightly
            image: shop/nightly:1
            command: [run, "--since=${{SINCE}}"]
          restartPolicy: OnFailure
---
apiVersion: v1
kind: ConfigMap
metadata: {{name: rules}}
data:
  rules: |+
    summary: "{{{{ $labels.pod }}}} is down"

"""

VAULT: Final = COMMENTS.replace(
    "      # annotations: {none: yet}\n",
    "      annotations:\n"
    "        vault.hashicorp.com/agent-inject-template-db: |-\n"
    '          {{- with secret "database/creds/app" -}}\n'
    "          user={{ .Data.username }}\n"
    "          {{- end }}\n",
)

MANIFESTS: Final = {
    "comments": COMMENTS,
    "four-spaces": FOUR_SPACES,
    "dash-alone": DASH_ALONE,
    "flow": FLOW,
    "json": JSON,
    "anchors": ANCHORS,
    "shared": SHARED,
    "live": LIVE,
    "many": MANY,
    "annotations-with-templates": VAULT,
    "crlf": COMMENTS.replace("\n", "\r\n"),
    "bom": f"\ufeff{COMMENTS}",
    "no-newline-at-the-end": COMMENTS.replace("\n# The end.\n", ""),
    "trailing-blanks": COMMENTS.replace("replicas: 2", "replicas: 2   ").replace(
        "kind: Deployment", "kind: Deployment\t # a tab"
    ),
    "directive": f"%YAML 1.1\n---\n{COMMENTS}...\n",
}


def documents(text: str) -> list[Any]:
    return [each for each in yaml.safe_load_all(text.replace("\t #", " #")) if each]


def objects(text: str, kinds: Sequence[str]) -> list[Any]:
    each_document = (each for each in documents(text) if isinstance(each, dict))
    each_item = (item for each in each_document for item in each.get("items", [each]) or [])
    # What was shared by an anchor is not shared any more.
    return [copy.deepcopy(each) for each in each_item if each.get("kind") in kinds]


def workloads(text: str) -> list[Any]:
    return objects(text, KINDS)


KINDS: Final = ("Deployment", "StatefulSet", "DaemonSet", "Job", "CronJob")


def pod_template(workload: Any) -> Any:
    spec = workload["spec"]
    return spec.get("jobTemplate", {}).get("spec", spec)["template"]


def without_sidecar(workload: Any) -> Any:
    """As it was: what inject adds is taken out of the data again."""
    template = pod_template(workload)
    spec = template["spec"]
    grace = spec.pop("terminationGracePeriodSeconds")
    spec["initContainers"] = [
        each for each in spec["initContainers"] if each["name"] != "sidecar"
    ] or None
    spec["volumes"] = [each for each in spec["volumes"] if each["name"] not in OURS] or None
    for each in spec["containers"]:
        if hook := each.get("lifecycle", {}).pop("preStop", None):
            assert hook["httpGet"]["path"] == "/v1/drained?wait_seconds=25&begins_within_seconds=10"
    del template["metadata"]["annotations"]["checksum/sidecar-config"]
    assert grace == 35
    return workload


def bare(node: Any) -> Any:
    """Nothing, an empty list and an empty mapping mean the same here."""
    if isinstance(node, dict):
        inner = {key: bare(value) for key, value in node.items()}
        return {key: value for key, value in inner.items() if value not in (None, [], {})}
    return [bare(each) for each in node] if isinstance(node, list) else node


def taken_away(before: str, after: str) -> list[str]:
    told = difflib.ndiff(before.splitlines(keepends=True), after.splitlines(keepends=True))
    return [line[2:] for line in told if line.startswith("- ")]


@pytest.mark.parametrize("name", MANIFESTS)
def test_what_comes_out_is_what_went_in_and_the_sidecar(name: str) -> None:
    text = MANIFESTS[name]
    out = injected(text, CONFIG, parts())
    for was, now in zip(workloads(text), workloads(out), strict=True):
        assert bare(without_sidecar(now)) == bare(was)
    *_, config_map = objects(out, ["ConfigMap"])
    assert config_map["data"] == {"sidecar.yaml": CONFIG}
    assert injected(out, CONFIG, parts()) == out


@pytest.mark.parametrize("name", MANIFESTS)
def test_kubernetes_takes_what_comes_out(name: str) -> None:
    for each in workloads(injected(MANIFESTS[name], CONFIG, parts())):
        # Nothing there is refused, but the library knows no null.
        kubernetes_validate.validate(bare(each), "1.34", strict=True)


@pytest.mark.parametrize("name", MANIFESTS)
def test_every_other_byte_stays(name: str) -> None:
    """Lines are only added; what stood between brackets has grown, and what was empty is filled."""
    text = MANIFESTS[name]
    out = injected(text, CONFIG, parts())
    lost = taken_away(text if text.endswith("\n") else f"{text}\n", out)
    assert [line for line in lost if not any(each in line for each in ("{", "[", "]", "}"))] == []
    if name in ("flow", "json"):
        rest = iter(out)
        assert all(each in rest for each in text.replace("[]", "").replace("{}", ""))


def test_comments_stay_with_what_they_are_about() -> None:
    out = injected(COMMENTS, CONFIG, parts())
    assert "        # - containerPort: 8080\n        lifecycle:\n" in out
    assert "      # There may be a second one.\n" in out
    assert out.index("# There may be") < out.index("initContainers:")
    assert out.index("# The end.") > out.index("sidecar-run")


def test_lines_end_as_the_others_do() -> None:
    out = injected(MANIFESTS["crlf"], CONFIG, parts())
    assert out.count("\n") == out.count("\r\n")


def test_lists_are_indented_as_the_others_are() -> None:
    assert "      initContainers:\n      - name: sidecar\n" in injected(COMMENTS, CONFIG, parts())
    indented = injected(ANCHORS, CONFIG, parts())
    assert "      volumes:\n        - name: sidecar-config\n" in indented


def test_what_somebody_added_to_the_sidecar_stays() -> None:
    """A secret by reference, more memory: a newer image is put in beside them."""
    once = injected(COMMENTS, CONFIG, parts())
    own = once.replace(
        "        env:\n        - name: SIDECAR_ADMIN__HOST\n",
        "        env:\n"
        "        - name: PASSWORD  # of Kafka\n"
        "          valueFrom: {secretKeyRef: {name: kafka, key: password}}\n"
        "        - name: SIDECAR_ADMIN__HOST\n",
    ).replace("memory: 256Mi", "memory: 512Mi")
    assert own != once
    assert injected(own, CONFIG, parts()) == own
    newer = injected(own, CONFIG, parts(image="kafka-dispatch-sidecar:0.2.0"))
    assert taken_away(own, newer) == ["        image: kafka-dispatch-sidecar:0.1.0\n"]
    classic = injected(own, CONFIG, parts(native=False))
    assert "512Mi" in classic
    assert "PASSWORD" in classic


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (COMMENTS.replace("orders:1", "orders:{{ .Values.tag }}"), "is a template"),
        (COMMENTS.replace("  replicas: 2", "  replicas: {{ .Values.replicas }}"), "rendered first"),
        (COMMENTS.replace("  replicas: 2", "{{- if .Values.x }}\n  replicas: 2"), "rendered first"),
        (COMMENTS.replace("      containers:", "      nodeSelector: {kubernetes.io/os: windows}\n"
                          "      containers:"), "runs on Windows"),
        (COMMENTS.replace("        image:", "        ports: [{containerPort: 8090}]\n"
                          "        image:"), "container orders listens on 8090"),
        (COMMENTS + "      volumes: [{name: sidecar-run}]\n", "has a volume named sidecar-run"),
        (COMMENTS.replace("      containers:", "      hostNetwork: true\n"
                          "      containers:"), "uses the node's network"),
        (FOUR_SPACES.replace("    name: orders\n", "\tname: orders\n", 1), "no YAML"),
        (f"a: &a [*a]\n---\n{COMMENTS}", "nested too deeply"),
        ("[" * 2000, "nested too deeply"),
        ("a: &a [1,1,1,1,1,1,1,1,1,1]\n"
         + "".join(f"{b}: &{b} [{', '.join([f'*{a}'] * 10)}]\n" for a, b in
                   zip("abcdefg", "bcdefgh", strict=True)), "too large"),
        (COMMENTS.replace("spec:\n  # How", "spec: &s\n  terminationGracePeriodSeconds: 1\n  # How")
         + "---\napiVersion: apps/v1\nkind: Job\nmetadata: {name: j}\nspec: {template: {spec: "
           "{containers: x}}}\n", "Job j: is no workload"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_refused(text: str, told: str) -> None:
    with pytest.raises(SidecarError) as refused:
        injected(text, CONFIG, parts())
    assert told in str(refused.value)
    assert "\n" not in str(refused.value)


def test_what_is_shared_is_changed_for_both_or_not_at_all() -> None:
    """An anchor is edited once. Where the other place must not change with it, that is said."""
    assert injected(SHARED, CONFIG, parts()).count("name: sidecar\n") == 1
    both = """\
apiVersion: batch/v1
kind: Job
metadata: {name: both}
spec:
  template:
    spec:
      restartPolicy: Never
      containers:
      - name: both
        image: shop/both:1
        lifecycle: &hook
          postStart: {exec: {command: [warm-up]}}
      initContainers:
      - name: other
        image: shop/both:1
        restartPolicy: Always
        lifecycle: *hook
"""
    with pytest.raises(SidecarError, match="an anchor is shared"):
        injected(both, CONFIG, parts())


# --- whatever can be written ----------------------------------------------------------------------

NAMES: Final = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), min_size=1)
VALUES: Final = st.one_of(
    st.integers(), st.booleans(), st.none(), st.text(max_size=12), st.just("a: b # c"), NAMES
)
EXTRA: Final = st.dictionaries(
    NAMES.map(lambda name: f"x-{name}"),
    st.recursive(VALUES, lambda inner: st.lists(inner, max_size=3), max_leaves=5)
    | st.dictionaries(NAMES, VALUES, max_size=3),
    max_size=2,
)


@st.composite
def manifests(draw: st.DrawFn) -> str:
    """A Deployment with anything else in it, in any of many styles."""
    app = {"name": "app", "image": "app:1", **draw(EXTRA)}
    spec: dict[str, Any] = {"containers": [app], **draw(EXTRA)}
    for name in ("initContainers", "volumes"):
        if draw(st.booleans()):
            spec[name] = [{"name": "other"}]
    template = {"metadata": draw(st.sampled_from([{}, {"annotations": {"a": "b"}}]))}
    tree: dict[str, Any] = {
        "kind": "Deployment",
        "metadata": {"name": "orders"},
        "spec": {"template": {**template, "spec": dict(draw(st.permutations([*spec.items()])))}},
        **draw(EXTRA),
    }
    writer = Writer(draw)
    lines = writer.mapping(tree, 0)
    newline = draw(st.sampled_from(["\n", "\r\n"]))
    return newline.join([*lines, ""])


class Writer:
    """YAML with comments, blank lines, and a style that is drawn for every value."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw
        self._step = draw(st.integers(1, 4))
        self._indents_lists = draw(st.booleans())

    def mapping(self, value: dict[str, Any], column: int) -> list[str]:
        lines = []
        for key, inner in value.items():
            lines += self._between(column)
            lines += self._under(f"{' ' * column}{self._inline(key)}:", inner, column)
        return lines

    def _under(self, head: str, value: Any, column: int) -> list[str]:
        block = isinstance(value, dict | list) and value and self._draw(st.integers(0, 9)) > 1
        if block and isinstance(value, dict):
            return [head + self._behind(), *self.mapping(value, column + self._step)]
        if block:
            inner = column + (self._step if self._indents_lists else 0)
            return [head + self._behind(), *self._items(value, inner)]
        return [f"{head} {self._inline(value)}{self._behind()}"]

    def _items(self, value: list[Any], column: int) -> list[str]:
        lines = []
        for each in value:
            lines += self._between(column)
            if isinstance(each, dict) and each:
                wide = self._draw(st.integers(1, 3))
                inner = self.mapping(each, column + 1 + wide)
                at = next(at for at, line in enumerate(inner) if line.strip()[:1] not in ("", "#"))
                lines += inner[:at]
                lines += [f"{' ' * column}-{' ' * wide}{inner[at].lstrip(' ')}", *inner[at + 1 :]]
            else:
                lines.append(f"{' ' * column}- {self._inline(each)}{self._behind()}")
        return lines

    def _inline(self, value: Any) -> str:
        style = self._draw(st.sampled_from([None, "'", '"']))
        text: str = yaml.safe_dump(
            value, default_flow_style=True, width=1e9, allow_unicode=True, default_style=style
        )
        return " ".join(text.removesuffix("...\n").split("\n")).strip()

    def _between(self, column: int) -> list[str]:
        kinds = ["", " " * column, f"{' ' * column}# said about the next", "# at the margin"]
        return self._draw(st.lists(st.sampled_from(kinds), max_size=1))

    def _behind(self) -> str:
        return self._draw(st.sampled_from(["", "", " ", "  # why: {so}"]))


@given(manifests())
@settings(max_examples=25, deadline=None)
def test_of_any_manifest_every_byte_stays(text: str) -> None:
    """And twice is once, and what comes out is the input and the sidecar."""
    was = workloads(text)
    out = injected(text, CONFIG, parts())
    assert injected(out, CONFIG, parts()) == out
    assert [bare(without_sidecar(each)) for each in workloads(out)] == bare(was)
    rest = iter(out.splitlines(keepends=True))
    whole = [line for line in text.splitlines(keepends=True) if not set("[]{}") & set(line)]
    assert all(line in rest for line in whole)


@given(st.sampled_from(sorted(MANIFESTS)), st.data())
@settings(max_examples=25, deadline=None)
def test_a_spoiled_manifest_is_refused_or_done_right(name: str, data: st.DataObject) -> None:
    text = MANIFESTS[name]
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 30)))
    spoiled = (
        text[:start] + data.draw(st.sampled_from(["", "[]", "x", "- ", "{", "\n"])) + text[end:]
    )
    try:
        out = injected(spoiled, CONFIG, parts())
    except SidecarError:
        return
    assert injected(out, CONFIG, parts()) == out
