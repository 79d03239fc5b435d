"""What docs/kubernetes.md shows can be rendered, and what it names is there."""

from __future__ import annotations

import re
from argparse import ArgumentParser
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from sidecar.cli import COMMANDS, inject
from tests.chart.values import LEAST
from tests.rig.helm import CHART, render

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = (ROOT / "docs" / "kubernetes.md").read_text(encoding="utf-8")
EXAMPLES: Final = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.usefixtures("with_helm")
@pytest.mark.parametrize("example", EXAMPLES)
def test_every_example_renders(example: str) -> None:
    values: dict[str, Any] = {"app": LEAST["app"], **yaml.safe_load(example)}
    assert "Deployment" in render(values).kinds


@pytest.mark.usefixtures("with_helm")
def test_the_commands_fit_what_the_first_example_renders() -> None:
    """Names of objects, containers and ports, as they come of the values above them."""
    pod = render(yaml.safe_load(EXAMPLES[0]))
    deployment = pod.of("Deployment")
    spec = deployment["spec"]["template"]["spec"]
    containers = {each["name"]: each for each in [*spec["initContainers"], *spec["containers"]]}
    assert set(re.findall(r"\bdeploy/([\w-]+)(?= |`|$)", PAGE, re.MULTILINE)) == {
        deployment["metadata"]["name"]
    }
    assert set(re.findall(r"kubectl exec \S+ -c (\w+)", PAGE)) <= containers.keys()
    (port,) = containers["sidecar"]["ports"]
    assert re.findall(r"kubectl port-forward \S+ (\d+)", PAGE) == [str(port["containerPort"])]
    for path in re.findall(r"helm (?:install|upgrade) orders (\S+) -f values.yaml", PAGE):
        assert ROOT / path == CHART


def test_the_injected_command_takes_its_options() -> None:
    lines = re.findall(r"^sidecar inject (.*?)(?: +#.*|\|.*)?$", PAGE, re.MULTILINE)
    assert len(lines) == 2
    for line in lines:
        parser = ArgumentParser(exit_on_error=False)
        inject.add_arguments(parser)
        assert parser.parse_args(line.split()).config


def test_every_link_leads_somewhere() -> None:
    """In both pages that operators read: files, and headings in them."""
    for page in (ROOT / "docs" / "kubernetes.md", ROOT / "docs" / "operations.md"):
        for target in re.findall(r"\]\((?!https?:)([^)]+)\)", page.read_text(encoding="utf-8")):
            file, _, anchor = target.partition("#")
            there = (page.parent / file).resolve() if file else page
            assert there.exists(), target
            if anchor:
                text = there.read_text(encoding="utf-8")
                headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
                slugs = {
                    re.sub(r"[^\w -]", "", each.lower()).replace(" ", "-") for each in headings
                }
                assert anchor in slugs, target


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
