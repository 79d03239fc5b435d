"""What is shipped besides our own code, and under which licences.

python tests/unit/test_dependencies.py writes the table of docs/dependencies.md anew.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any, Final

import pytest

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "dependencies.md"
# Those that ask for nothing but their text and names to be kept; of MPL-2.0, changes of its files.
ALLOWED: Final = {"MIT", "BSD-2-Clause", "BSD-3-Clause", "Apache-2.0", "PSF-2.0", "MPL-2.0"}
# What packages wrote before there were expressions.
_SPELT: Final = {
    "MIT License": "MIT",
    "MIT": "MIT",
    "3-Clause BSD License": "BSD-3-Clause",
    "BSD License": "BSD-3-Clause",  # of the packages here, looked up in what they ship
    "Apache Software License": "Apache-2.0",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
}
_CLASSIFIER: Final = "License :: OSI Approved :: "
_LOCKED: Final = re.compile(r"^([a-z0-9._-]+)==[^ ;\\]+ *(;[^\\]*)?", re.MULTILINE)


def locked() -> list[str]:
    """The packages of requirements.lock, which is what an image holds."""
    return [name for name, _ in _LOCKED.findall((ROOT / "requirements.lock").read_text("utf-8"))]


def installed() -> Iterator[Distribution]:
    """Those that this platform needs."""
    for name in locked():
        try:
            yield distribution(name)
        except PackageNotFoundError:
            marked = re.search(rf"^{re.escape(name)}==[^\n]*;", _text(), re.MULTILINE)
            assert marked, f"{name} is locked for every platform, and not installed"


def _text() -> str:
    return (ROOT / "requirements.lock").read_text(encoding="utf-8")


def licence(package: Distribution) -> str:
    """As an SPDX expression."""
    told: Any = package.metadata
    if expression := told.get("License-Expression"):
        return str(expression)
    short = (told.get("License") or "").strip()
    if short in ALLOWED or short in _SPELT:
        return _SPELT.get(short, short)
    named = [each for each in told.get_all("Classifier") or () if each.startswith(_CLASSIFIER)]
    found = sorted({_SPELT.get(name := each.removeprefix(_CLASSIFIER), name) for each in named})
    return " OR ".join(found) or "none told"


def table() -> str:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["otel"]]
    direct = {_normal(re.split(r"[>=\[]", each)[0]) for each in wanted}
    lines = ["| package | licence | asked for by |", "|---|---|---|"]
    for package in sorted(installed(), key=lambda each: _normal(each.name)):
        by = "us" if _normal(package.name) in direct else "those"
        lines.append(f"| {_normal(package.name)} | {licence(package)} | {by} |")
    return "\n".join(lines) + "\n"


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def page_with(text: str) -> str:
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition("| package |")
    return before + text + "\n" + rest.partition("\n\n")[2]


@pytest.mark.parametrize("package", list(installed()), ids=lambda each: str(each.name))
def test_every_licence_is_one_that_lets_everybody_use_it(package: Distribution) -> None:
    parts = set(re.split(r" AND | OR ", licence(package)))
    assert parts <= ALLOWED, f"{package.name} is under {licence(package)}"


def test_the_page_lists_what_is_locked() -> None:
    again = "run: python tests/unit/test_dependencies.py"
    assert page_with(table()) == PAGE.read_text(encoding="utf-8"), again


if __name__ == "__main__":
    PAGE.write_text(page_with(table()), encoding="utf-8")
