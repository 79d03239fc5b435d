"""What a check found: one line each, with the way out where there is something to do."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Grade(Enum):
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class Finding(NamedTuple):
    grade: Grade
    subject: str
    text: str

    def __str__(self) -> str:
        return f"{self.grade.value:<4}  {self.subject}: {' '.join(self.text.split())}"


def ok(subject: str, text: str) -> Finding:
    return Finding(Grade.OK, subject, text)


def warn(subject: str, text: str) -> Finding:
    return Finding(Grade.WARN, subject, text)


def fail(subject: str, text: str) -> Finding:
    return Finding(Grade.FAIL, subject, text)
