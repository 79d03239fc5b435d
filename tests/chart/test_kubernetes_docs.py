"""What docs/kubernetes.md shows can be rendered, and what it names is there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from sidecar.cli import COMMANDS
from tests.chart.values import LEAST
from tests.rig.helm import CHART, render

PAGE: Final = (Path(__file__).parents[2] / "docs" / "kubernetes.md").read_text(encoding="utf-8")
EXAMPLES: Final = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.usefixtures("with_helm")
@pytest.mark.parametrize("example", EXAMPLES)
def test_every_example_renders(example: str) -> None:
    values: dict[str, Any] = {"app": LEAST["app"], **yaml.safe_load(example)}
    assert "Deployment" in render(values).kinds


def test_every_template_named_is_there() -> None:
    defined = "".join(each.read_text(encoding="utf-8") for each in CHART.glob("templates/*.tpl"))
    named = re.findall(r"^\| `(kafka-dispatch-sidecar\.\w+)`", PAGE, re.MULTILINE)
    assert len(named) == 6
    for name in named:
        assert f'define "{name}"' in defined, name


def test_every_command_named_is_there() -> None:
    code = " ".join(re.findall(r"`[^`\n]+`|```sh\n.*?```", PAGE, re.DOTALL))
    named = set(re.findall(r"(?<![\w/.-])sidecar ([a-z][a-z-]*)", code))
    assert named <= COMMANDS.keys()


def test_every_value_named_is_there() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    ours = "|".join(each for each in values if each != "sidecar")
    pattern = rf"(?<=`)(?:(?:{ours})\.|sidecar\.(?!yaml|config))[a-zA-Z.]+(?=[:`])"
    named = set(re.findall(pattern, PAGE)) - {"app.health", "values.yaml"}
    assert len(named) >= 8, named
    for said in named:
        node = values
        for part in said.split("."):
            assert part in node, said
            node = node[part]
