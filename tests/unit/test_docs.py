"""What the documents name is there, and what they show can be run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest
import yaml

from sidecar.cli import COMMANDS
from sidecar.settings import load_settings

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = sorted(
    page.relative_to(ROOT) for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
)
_LINK: Final = re.compile(r"\]\((?!https?://|#)([^)#]+)")
_TEST: Final = re.compile(r"`(tests/[a-z0-9_/]+(?:\.py)?)`")
_YAML: Final = re.compile(r"```yaml\n(.*?)```", re.DOTALL)
_COMMAND: Final = re.compile(r"(?<![\w/.-])sidecar ([a-z-]+)")
_MODULE: Final = re.compile(r"^\| `([a-z_]+(?:/|\.py))`", re.MULTILINE)


def text_of(page: Path) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_links_and_tests_lead_somewhere(page: Path) -> None:
    text = text_of(page)
    for link in _LINK.findall(text):
        assert (ROOT / page.parent / link).exists(), link
    for path in _TEST.findall(text):
        assert (ROOT / path).exists(), path


@pytest.mark.parametrize("page", ["README.md", "docs/operations.md"])
def test_commands_exist(page: str) -> None:
    """In code only: prose may begin with the project's name."""
    code = " ".join(re.findall(r"`[^`]+`|```sh\n.*?```", text_of(Path(page)), re.DOTALL))
    named = set(_COMMAND.findall(code))
    assert named
    assert named <= COMMANDS.keys()


def test_the_readmes_configuration_loads(tmp_path: Path) -> None:
    (example,) = _YAML.findall(text_of(Path("README.md")))
    assert yaml.safe_load(example)
    file = tmp_path / "sidecar.yaml"
    file.write_text(example, encoding="utf-8")
    assert load_settings(file, {}).routes[0].name == "orders"


def test_the_file_map_is_complete() -> None:
    """Every part of the package has its line in the architecture's table."""
    named = set(_MODULE.findall(text_of(Path("docs/architecture.md"))))
    there = {
        f"{each.name}/" if each.is_dir() else each.name
        for each in (ROOT / "sidecar").iterdir()
        if not each.name.startswith("__") and (each.is_dir() or each.suffix == ".py")
    }
    assert named == there
