"""sidecar inject: manifests in JSON stay JSON, as any reader of it takes them."""

from __future__ import annotations

import json
from typing import Any, Final

import kubernetes_validate
import pytest
import yaml

from sidecar.cli.inject import injected
from tests.unit.test_inject_manifests import CONFIG, parts

WORKLOAD: Final[dict[str, Any]] = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "orders", "annotations": {"note": 'a "quoted" größe\t/ \\'}},
    "spec": {
        "replicas": 2,
        "selector": {"matchLabels": {"app": "orders"}},
        "template": {
            "metadata": {"labels": {"app": "orders"}, "creationTimestamp": None},
            "spec": {
                "containers": [
                    {
                        "name": "orders",
                        "image": "shop/orders:1",
                        "env": [{"name": "SINCE", "value": "0123"}, {"name": "ON", "value": "yes"}],
                        "resources": {},
                    }
                ],
                "volumes": [],
            },
        },
    },
}
LIST: Final = {"apiVersion": "v1", "items": [WORKLOAD], "kind": "List", "metadata": {}}
STYLES: Final[dict[str, dict[str, Any]]] = {
    "four": {"indent": 4},
    "two": {"indent": 2, "ensure_ascii": False},
    "tabs": {"indent": "\t"},
    "one-line": {},
    "compact": {"separators": (",", ":")},
}


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("whole", [WORKLOAD, LIST], ids=["object", "list"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"], ids=["lf", "crlf"])
def test_what_comes_out_is_json(style: str, whole: Any, newline: str) -> None:
    text = f"{json.dumps(whole, **STYLES[style])}\n".replace("\n", newline)
    out = injected(text, CONFIG, parts())
    made = json.loads(out)
    assert made["kind"] == "List"
    workload, config_map = made["items"]
    assert config_map["data"]["sidecar.yaml"] == CONFIG
    kubernetes_validate.validate(config_map, "1.34", strict=True)
    spec = workload["spec"]["template"]["spec"]
    assert spec["initContainers"][0]["name"] == "sidecar"
    assert (
        spec["containers"][0]["env"] == WORKLOAD["spec"]["template"]["spec"]["containers"][0]["env"]
    )
    assert yaml.safe_load(out.replace("\t", " ")) == made
    assert out.count("\r\n") == (out.count("\n") if newline == "\r\n" else 0)


@pytest.mark.parametrize("style", STYLES)
def test_twice_is_once(style: str) -> None:
    text = json.dumps(WORKLOAD, **STYLES[style])
    once = injected(text, CONFIG, parts())
    assert injected(once, CONFIG, parts()) == once
    changed = json.loads(injected(once, "kafka: {}\n", parts(image="sidecar:2")))
    assert len(changed["items"]) == 2
    assert changed["items"][1]["data"] == {"sidecar.yaml": "kafka: {}\n"}


def test_what_was_written_stays() -> None:
    """In lines of its own, with a comma where something follows now; what is new looks the same."""
    text = json.dumps(WORKLOAD, indent=4)
    out = injected(text, CONFIG, parts())
    rest = iter(each.rstrip(",") for each in out.splitlines())
    lines = [each.rstrip(",") for each in text.splitlines() if "volumes" not in each]
    assert all(line in rest for line in lines)
    assert f'\n{" " * 16}"terminationGracePeriodSeconds": 35,\n{" " * 16}"initC' in out


def test_json_that_begins_with_a_mark_or_blanks_is_json() -> None:
    for text in (f"\ufeff{json.dumps(WORKLOAD)}", f"\n\n  {json.dumps(WORKLOAD, indent=2)}\n\n"):
        assert json.loads(injected(text, CONFIG, parts()).removeprefix("\ufeff"))["kind"] == "List"


def test_braces_that_are_no_json_get_a_document_more() -> None:
    text = json.dumps(WORKLOAD).replace('"kind"', "kind")
    assert injected(text, CONFIG, parts()).count("\n---\n") == 1
