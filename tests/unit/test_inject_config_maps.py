"""sidecar inject: each workload has a ConfigMap of its own, and one alone."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from sidecar.cli.inject import injected
from sidecar.errors import SidecarError
from tests.unit.test_inject_manifests import CONFIG, parts

OTHER_CONFIG = CONFIG.replace("orders", "payments")


def deployment(name: str, namespace: str | None = None, kind: str = "Deployment") -> str:
    where = "" if namespace is None else f"\n  namespace: {namespace}"
    return f"""\
apiVersion: {"batch/v1" if kind == "Job" else "apps/v1"}
kind: {kind}
metadata:
  name: {name}{where}
spec:
  selector: {{matchLabels: {{app: a}}}}
  template:
    metadata: {{labels: {{app: a}}}}
    spec:
      containers:
      - name: app
        image: app:1
"""


def config_maps(text: str) -> dict[tuple[str | None, str], str]:
    """Their text, by namespace and name."""
    found = {}
    for each in yaml.safe_load_all(text):
        if each and each["kind"] == "ConfigMap":
            place = (each["metadata"].get("namespace"), each["metadata"]["name"])
            assert place not in found
            found[place] = each["data"]["sidecar.yaml"]
    return found


def used(text: str) -> list[str]:
    """The ConfigMaps that the pods mount."""
    found = []
    for each in yaml.safe_load_all(text):
        if each and each["kind"] != "ConfigMap":
            spec: dict[str, Any] = each["spec"]["template"]["spec"]
            found += [
                volume["configMap"]["name"]
                for volume in spec.get("volumes", [])
                if volume["name"] == "sidecar-config"
            ]
    return found


def test_two_services_of_a_namespace_do_not_share_one() -> None:
    one = injected(deployment("orders"), CONFIG, parts(config_map=None))
    other = injected(deployment("payments"), OTHER_CONFIG, parts(config_map=None))
    assert config_maps(one) == {(None, "orders-kafka-sidecar"): CONFIG}
    assert config_maps(other) == {(None, "payments-kafka-sidecar"): OTHER_CONFIG}
    assert used(one) == ["orders-kafka-sidecar"]


def test_the_workloads_of_a_file_have_one_each_wherever_they_are() -> None:
    text = "---\n".join([deployment("a"), deployment("b", "x"), deployment("b", "y")])
    out = injected(text, CONFIG, parts(config_map=None))
    assert [*config_maps(out)] == [
        (None, "a-kafka-sidecar"),
        ("x", "b-kafka-sidecar"),
        ("y", "b-kafka-sidecar"),
    ]
    assert injected(out, CONFIG, parts(config_map=None)) == out


def test_workloads_of_one_name_share_it() -> None:
    text = f"{deployment('a')}---\n{deployment('a', kind='Job')}"
    out = injected(text, CONFIG, parts(config_map=None))
    assert [*config_maps(out)] == [(None, "a-kafka-sidecar")]


def test_a_name_that_is_given_is_taken_once_a_namespace() -> None:
    text = "---\n".join([deployment("a", "x"), deployment("b", "x"), deployment("b", "y")])
    out = injected(text, CONFIG, parts(config_map="mine"))
    assert [*config_maps(out)] == [("x", "mine"), ("y", "mine")]


def test_the_one_of_an_older_version_is_renamed() -> None:
    """That was called kafka-sidecar for every service: nothing of it is left."""
    older = injected(deployment("orders", "shop"), CONFIG, parts(config_map="kafka-sidecar"))
    assert [*config_maps(older)] == [("shop", "kafka-sidecar")]
    newer = injected(older, OTHER_CONFIG, parts(config_map=None))
    assert config_maps(newer) == {("shop", "orders-kafka-sidecar"): OTHER_CONFIG}
    assert used(newer) == ["orders-kafka-sidecar"]
    assert injected(newer, OTHER_CONFIG, parts(config_map=None)) == newer


def test_an_older_one_of_several_workloads_becomes_one_each() -> None:
    text = f"{deployment('a')}---\n{deployment('b')}"
    older = injected(text, CONFIG, parts(config_map="kafka-sidecar"))
    newer = injected(older, CONFIG, parts(config_map=None))
    assert {*config_maps(newer)} == {(None, "a-kafka-sidecar"), (None, "b-kafka-sidecar")}
    assert used(newer) == ["a-kafka-sidecar", "b-kafka-sidecar"]


def test_an_older_one_that_another_workload_uses_stays() -> None:
    text = f"{deployment('a')}---\n{deployment('b')}"
    older = injected(text, CONFIG, parts(config_map="kafka-sidecar"))
    newer = injected(older, OTHER_CONFIG, parts(config_map=None), ["a"])
    assert config_maps(newer) == {
        (None, "kafka-sidecar"): CONFIG,
        (None, "a-kafka-sidecar"): OTHER_CONFIG,
    }
    assert used(newer) == ["a-kafka-sidecar", "kafka-sidecar"]


def test_a_config_map_with_more_in_it_is_nobody_elses_to_rename() -> None:
    older = injected(deployment("a"), CONFIG, parts(config_map="mine"))
    more = f"{older}  settings: somebody's\n"
    newer = injected(more, CONFIG, parts(config_map=None))
    assert [*config_maps(newer)] == [(None, "mine"), (None, "a-kafka-sidecar")]
    assert injected(more, OTHER_CONFIG, parts(config_map="mine")).count("somebody's") == 1


def test_the_longest_names_stay_within_what_kubernetes_takes() -> None:
    one, other = ("a" * 60 + "." + "b" * 60 + "." + "c" * 128 + end for end in "xy")
    out = injected(f"{deployment(one)}---\n{deployment(other)}", CONFIG, parts(config_map=None))
    names = [name for _, name in config_maps(out)]
    assert len({*names}) == 2
    assert all(len(name) <= 253 and name.endswith("-kafka-sidecar") for name in names)


def test_a_job_that_is_made_again_and_again_has_its_own_as_well() -> None:
    text = deployment("nightly-", kind="Job").replace("  name:", "  generateName:", 1)
    out = injected(text, CONFIG, parts(config_map=None))
    assert [*config_maps(out)] == [(None, "nightly-kafka-sidecar")]


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("''", "has a name that Kubernetes does not take"),
        ("Orders", "has a name that Kubernetes does not take"),
        ("null", "Deployment: has no name"),
        ("", "Deployment: has no name"),
        ('"{{ .Release.Name }}"', "a template has to be rendered first"),
        ("${NAME}", "has a name that Kubernetes does not take"),
    ],
)
def test_a_workload_without_a_name_is_refused(name: str, told: str) -> None:
    with pytest.raises(SidecarError) as refused:
        injected(deployment(name), CONFIG, parts(config_map=None))
    assert told in str(refused.value)


def test_one_in_a_list_is_found() -> None:
    items = "".join(f"- {line}" for line in [deployment("a").replace("\n", "\n  ").rstrip(" ")])
    text = f"apiVersion: v1\nkind: List\nitems:\n{items}"
    once = injected(text, CONFIG, parts(config_map=None))
    (_, behind) = once.split("---\n")
    within = f"{once.split('---')[0]}- {behind.replace(chr(10), chr(10) + '  ').rstrip()}\n"
    again = injected(within, OTHER_CONFIG, parts(config_map=None))
    assert again == within.replace("[orders]", "[payments]")


def test_the_configuration_of_a_workload_that_was_not_chosen_is_not_changed() -> None:
    """A Deployment and a StatefulSet of one name have one ConfigMap, by that name."""
    both = deployment("orders") + "---\n" + deployment("orders", kind="StatefulSet")
    what = parts(config_map=None)
    one = injected(both, CONFIG, what, ["deployment/orders"])
    with pytest.raises(SidecarError, match="Deployment orders has its configuration in"):
        injected(one, OTHER_CONFIG, what, ["statefulset/orders"])
    apart = injected(one, OTHER_CONFIG, parts(config_map="other"), ["statefulset/orders"])
    assert config_maps(apart) == {
        (None, "orders-kafka-sidecar"): CONFIG,
        (None, "other"): OTHER_CONFIG,
    }


def test_a_namespace_that_looks_like_a_number_stays_a_text() -> None:
    """As YAML 1.2 has numbers, 12e4 is one, and PyYAML writes it bare."""
    out = injected(deployment("orders", "'12e4'"), CONFIG, parts(config_map=None))
    assert 'namespace: "12e4"' in out
