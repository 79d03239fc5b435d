"""docs/delivery.md says what is so: its table, its examples, its few lines of Python."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sidecar.core.answers import answer_table, parse_statuses
from sidecar.core.classify import classify
from sidecar.core.credentials import signing_keys
from sidecar.core.presets import Preset
from sidecar.delivery.request import RequestEncoder, split_head
from sidecar.delivery.signature import Signer
from sidecar.model import Answer, Assignment, Partition, Record
from sidecar.settings import load_settings

PAGE = (Path(__file__).parents[2] / "docs" / "delivery.md").read_text(encoding="utf-8")
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
NOW = 1_700_000_000


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_the_table_of_answers_is_that_of_the_presets() -> None:
    """Status by status; of two rows that hold it the narrower counts."""
    section = PAGE.partition("## The answer")[2].partition("\n\n`200-202`")[0]
    header, _, *rows = [cells(line) for line in section.splitlines() if line.startswith("|")]
    assert header[1:] == [preset.value for preset in Preset]
    for column, name in enumerate(header[1:], start=1):
        table = answer_table(Preset(name), {})
        for status in range(200, 600):
            holding = [row for row in rows if status in parse_statuses(row[0])]
            told = min(holding, key=lambda row: len(parse_statuses(row[0])))[column]
            verdict = classify(Answer(status), table, answered_before=True)
            assert verdict.outcome.value == told, (name, status)


EXAMPLES = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES)
def test_every_example_loads(example: str, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("hush", encoding="utf-8")
    file = tmp_path / "sidecar.yaml"
    file.write_text(re.sub(r"/run/secrets/[a-z/]+", str(secret), example), encoding="utf-8")
    assert load_settings(file, {}).routes


def shown() -> Callable[[dict[str, str], bytes, str], bool]:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)
    names["time"] = type("Clock", (), {"time": staticmethod(lambda: NOW)})
    verify: Callable[[dict[str, str], bytes, str], bool] = names["verify"]
    return verify


@pytest.mark.parametrize(
    ("age", "tamper", "right"),
    [(0, b"", True), (299, b"", True), (400, b"", False), (0, b"x", False)],
)
def test_the_verification_shown_verifies(age: int, tamper: bytes, right: bool) -> None:
    record = Record(Assignment(Partition("a.b", 0), 1), 7, -1, None, b"body", None, 4)
    signer = Signer(signing_keys(SECRET), lambda: NOW - age)
    encoder = RequestEncoder("/", "app", "text/plain", 16_384, sign=signer)
    head, body = encoder.encode(record, 1)
    headers = {name.decode().lower(): value.decode() for name, value in split_head(head)}
    assert shown()(headers, body + tamper, SECRET) is right
