"""Prometheus: its tool, and a server that scrapes one process.

Where it is not installed the tests skip; in CI (variable CI set) they fail.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest
import yaml

from tests.rig.ports import free_ports
from tests.rig.waiting import eventually


def _command(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        missing = f"{name} is not installed (Debian: apt-get install prometheus)"
        if os.environ.get("CI"):
            pytest.fail(missing, pytrace=False)
        pytest.skip(missing)
    return found


def promtool(*arguments: str, stdin: bytes = b"") -> None:
    """Run it; what it finds fault with fails the test."""
    ran = subprocess.run(
        [_command("promtool"), *arguments],
        input=stdin,
        capture_output=True,
        check=False,
        timeout=60,
    )
    told = (ran.stdout + ran.stderr).decode()
    assert ran.returncode == 0, told


class Prometheus:
    """A server that scrapes one target every second."""

    def __init__(self, directory: Path, target: str, rules: Path | None = None) -> None:
        self._port = free_ports(1)[0]
        file = directory / "prometheus.yml"
        file.write_text(
            yaml.safe_dump(
                {
                    "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
                    "rule_files": [str(rules)] if rules else [],
                    "scrape_configs": [
                        {"job_name": "sidecar", "static_configs": [{"targets": [target]}]}
                    ],
                }
            ),
            encoding="utf-8",
        )
        self._log = (directory / "prometheus.log").open("wb")
        self._process = subprocess.Popen(
            [
                _command("prometheus"),
                f"--config.file={file}",
                f"--storage.tsdb.path={directory / 'data'}",
                f"--web.listen-address=127.0.0.1:{self._port}",
            ],
            stdout=self._log,
            stderr=self._log,
        )

    def __enter__(self) -> Self:
        eventually(self._is_ready, "Prometheus is ready")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait()
        self._log.close()

    def get(self, path: str, **parameters: str) -> Any:
        """The data of an answer of its API; an error raises."""
        asked = urllib.parse.urlencode(parameters)
        url = f"http://127.0.0.1:{self._port}/api/v1/{path}?{asked}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            return json.load(answer)["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.get("query", query=expression)["result"]
        return found

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/-/ready", timeout=2):
                return True
        except OSError:
            return False
