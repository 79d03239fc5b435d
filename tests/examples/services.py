"""The services of examples/: how each is built and started, and what it says of records.

Builds stay in the checkout's cache, so a second run compiles nothing. A toolchain that is missing
fails in CI and skips elsewhere.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import urllib.request
from base64 import b64decode
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from sidecar.model import Header
from tests.rig.distribution import exclusive
from tests.rig.ports import free_ports
from tests.rig.waiting import eventually

ROOT: Final = Path(__file__).parents[2]
EXAMPLES: Final = ROOT / "examples"
BUILDS: Final = ROOT / ".cache" / "examples"
BUILD_SECONDS: Final = 200.0
START_SECONDS: Final = 60.0


@dataclass(frozen=True)
class Language:
    """How its README says it is built and run; {port} and {builds} are filled in.

    headers_always and max_header_bytes are the route's settings its README asks for.
    """

    name: str
    folder: str
    run: Sequence[str]
    build: Sequence[str] = ()
    headers_always: bool = False
    max_header_bytes: int = 16_384

    @property
    def missing(self) -> list[str]:
        """The tools that it needs and this machine does not have."""
        tools = [each[0] for each in (self.build, self.run) if each and "{" not in each[0]]
        return [tool for tool in tools if shutil.which(tool) is None]


def _python(http: str) -> Language:
    options = "--no-access-log", "--http", http, "--port", "{port}"
    return Language(
        f"python-{http}", "python", (sys.executable, "-m", "uvicorn", "app:app", *options)
    )


_RUBY: Final = "puma", "--quiet", "--bind", "tcp://127.0.0.1:{port}"
_GO: Final = "{builds}/go/events"
_JAVA: Final = "{builds}/java"
LANGUAGES: Final = (
    _python("httptools"),
    _python("h11"),
    Language("javascript", "javascript", ["node", "server.mjs"]),
    Language("go", "go", [_GO], ["go", "build", "-o", _GO, "."]),
    Language(
        "java",
        "java",
        ["java", "-cp", _JAVA, "App"],
        ["javac", "-d", _JAVA, "App.java", "KafkaRecord.java"],
    ),
    Language(
        "rust",
        "rust",
        ["{builds}/rust/debug/events"],
        ["cargo", "build", "--quiet", "--locked", "--target-dir", "{builds}/rust"],
    ),
    Language("ruby", "ruby", _RUBY, headers_always=True, max_header_bytes=65_536),
)


class Decoded(NamedTuple):
    """What a service says of one record."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None
    key: bytes | None
    value: bytes | None
    headers: list[Header]
    attempt: int
    idempotency_key: str


class Service:
    """One running service. Its lines are read from the file that its output goes to."""

    def __init__(self, language: Language, directory: Path) -> None:
        _require(language)
        self.language = language
        self.port = free_ports(1)[0]
        self.output = directory / f"{language.name}.out"
        self._errors = directory / f"{language.name}.err"
        folder = EXAMPLES / language.folder
        places = {"port": self.port, "builds": BUILDS}
        if language.build:
            command = [each.format(**places) for each in language.build]
            # Without cgo Go needs no C compiler, and less time.
            environment = {**os.environ, "CGO_ENABLED": "0"}
            with exclusive(BUILDS / f"{language.name}.lock"):
                subprocess.run(
                    command, cwd=folder, env=environment, check=True, timeout=BUILD_SECONDS
                )
        with self.output.open("wb") as output, self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [each.format(**places) for each in language.run],
                cwd=folder,
                stdout=output,
                stderr=errors,
                env={**os.environ, "PORT": str(self.port), "PYTHONDONTWRITEBYTECODE": "1"},
            )
        try:
            eventually(self._healthy, f"{language.name} is healthy", within=START_SECONDS)
        except BaseException:
            self.stop()
            raise

    @property
    def target(self) -> str:
        return f"http://127.0.0.1:{self.port}/events/{{topic}}"

    def decoded(self, topic: str) -> list[Decoded]:
        """What it has said of the topic's records so far, in that order."""
        *whole, _ = self.output.read_text(encoding="utf-8").split("\n")
        lines = [json.loads(line) for line in whole if line.startswith("{")]
        return [_decoded(line) for line in lines if line["topic"] == topic]

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()

    def _healthy(self) -> bool:
        assert self._process.poll() is None, self._errors.read_text(encoding="utf-8")
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{self.port}/healthz", timeout=5).close()
        except OSError:
            return False
        return True


def _require(language: Language) -> None:
    if language.missing:
        found = f"the {language.folder} example needs {', '.join(language.missing)} on the path"
        if os.environ.get("CI"):
            pytest.fail(found, pytrace=False)
        pytest.skip(found)


def _decoded(line: dict[str, Any]) -> Decoded:
    return Decoded(
        line["topic"],
        line["partition"],
        line["offset"],
        line["timestamp"],
        _bytes(line["key"]),
        _bytes(line["value"]),
        [(name, _bytes(value)) for name, value in line["headers"]],
        line["attempt"],
        line["idempotency_key"],
    )


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text, validate=True)
