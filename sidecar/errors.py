"""The exception tree and the exit codes. Library errors are mapped where they enter the process.

    SidecarError
    ├── ConfigError        what the operator wrote cannot be run        (exit code 2)
    ├── NotFound           what was asked about is not there
    ├── Conflict           it cannot be done as things stand
    ├── Busy               it can be done, once what is under way has ended
    └── SourceError        the record source could not do what was asked
        ├── CommitFailed   the broker refused a commit: nothing was committed
        ├── CommitUnknown  no answer to a commit: it may or may not have been applied
        └── FatalSource    the client is dead and will not recover      (exit code 1)

A SourceError that is none of the three is passing trouble: the same call may work later.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum


class ExitCode(IntEnum):
    """How the process ends."""

    CLEAN = 0
    FAILURE = 1
    USAGE = 2


class SidecarError(Exception):
    """Base of everything this package raises on purpose."""


@dataclass(frozen=True)
class Problem:
    """One thing wrong with a configuration: where it is, what is wrong, the way out."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class ConfigError(SidecarError):
    """The configuration cannot be run; carries every problem found, not only the first."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in problems))


class NotFound(SidecarError):
    """What somebody asked about is not there."""


class Conflict(SidecarError):
    """What somebody asked for cannot be done as things stand; the text says why."""


class Busy(SidecarError):
    """What somebody asked for has to wait for what is under way: ask again in a moment."""


class SourceError(SidecarError):
    """The record source could not do what was asked; trying again may help."""


class CommitFailed(SourceError):
    """The broker refused the commit (or it was never sent): nothing was committed."""


class CommitUnknown(SourceError):
    """The commit was sent and not answered: read the committed offsets back before acting."""


class FatalSource(SourceError):
    """The client is dead (fenced, authentication revoked ...): the process must end."""
