"""The chart's README holds every value with what is said of it in values.yaml.

`python tests/chart/test_chart_readme.py` writes it anew.
"""

from __future__ import annotations

import json
from typing import Any, Final

import yaml

from tests.chart.values import WHOLE
from tests.rig.helm import CHART

README: Final = CHART / "README.md"
HEAD: Final = """\
# kafka-dispatch-sidecar

An application with the Kafka dispatch sidecar beside it; or the sidecar's parts, for another chart.
`docs/kubernetes.md` leads from nothing to a running pod; `deploy/helm/example` takes the parts.

```sh
helm install orders deploy/helm/kafka-dispatch-sidecar -f values.yaml
helm test orders
```

Helm 3 and 4; Kubernetes 1.29 and newer, with `sidecar.native: false` from 1.25. Required are
`app.image.repository`, `sidecar.config.kafka` and `sidecar.config.routes`; what else
`sidecar.config` takes is in `docs/configuration.md`. Unknown keys, wrong types and values that
contradict each other are refused by name.

## Values

Made from `values.yaml` by `python tests/chart/test_chart_readme.py`.

| value | default | |
|---|---|---|
"""


def rows() -> list[tuple[str, Any, str]]:
    """Path, default, and the comments: above, and at the end of the line."""
    text = (CHART / "values.yaml").read_text(encoding="utf-8")
    lines = text.splitlines()
    root = yaml.compose(text)
    found: list[tuple[str, Any, str]] = []

    def walk(node: yaml.MappingNode, path: str, above: str) -> None:
        for key, value in node.value:
            here = f"{path}.{key.value}" if path else key.value
            said = comments(lines, key.start_mark.line, value.end_mark.line)
            if isinstance(value, yaml.MappingNode) and value.value and here not in WHOLE:
                walk(value, here, said)
                continue
            if here.endswith(".enabled") and above:
                said = f"{said}. {above}" if said else above
            found.append((here, yaml.safe_load(yaml.serialize(value)), said))

    assert isinstance(root, yaml.MappingNode)
    walk(root, "", "")
    return found


def comments(lines: list[str], first: int, last: int) -> str:
    said: list[str] = []
    line = first - 1
    while line >= 0 and lines[line].lstrip().startswith("#"):
        said.insert(0, lines[line].lstrip().removeprefix("# "))
        line -= 1
    if last in (first, first + 1) and " # " in lines[first]:
        said.append(lines[first].split(" # ", 1)[1])
    return " ".join(said)


def readme() -> str:
    table = [
        f"| `{path}` | `{json.dumps(value, ensure_ascii=False)}` | {said} |"
        for path, value, said in rows()
    ]
    return HEAD + "\n".join(table) + "\n"


def test_every_value_is_explained() -> None:
    assert [path for path, _, said in rows() if not said] == []


def test_the_readme_is_made_from_the_values() -> None:
    assert README.read_text(encoding="utf-8") == readme(), (
        "run: python tests/chart/test_chart_readme.py"
    )


if __name__ == "__main__":
    README.write_text(readme(), encoding="utf-8")
