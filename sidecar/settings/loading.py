"""From a file, the environment and flags to the frozen tree, or to everything that is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from sidecar.errors import ConfigError, Problem
from sidecar.settings.kafka_schema import DEFINITIONS, kafka_schema
from sidecar.settings.problems import dotted, problems_of
from sidecar.settings.sources import PREFIX, path_of_variable, sources_of
from sidecar.settings.tree import Settings

_PATH_SHOWN: Final = 200
_MESSAGE_SHOWN: Final = 1000


def load_settings(
    file: Path | None,
    env: Mapping[str, str],
    overrides: Mapping[str, Any] | None = None,
) -> Settings:
    """The settings of flags over environment over file; ConfigError names every problem."""
    problems: list[Problem] = []
    sources = sources_of(Settings, file, env, overrides or {}, problems)
    settings = None
    try:
        # BaseSettings takes its sources this way; the signature made of the fields hides it.
        settings = Settings(_build_sources=(sources, {}))  # type: ignore[call-arg]
    except ValidationError as error:
        try:
            problems += problems_of(error, Settings)
        except UnicodeEncodeError:  # a flag, which the environment and the file cannot bring
            problems.append(Problem("", "something that was given is not UTF-8 text"))
    if settings is None or problems:
        # The validation error holds the raw input, secrets included: it must not be chained.
        raise ConfigError(_told(problems, env)) from None
    return settings


def json_schema() -> dict[str, Any]:
    """The JSON schema of the configuration file."""
    schema = Settings.model_json_schema()
    schema["properties"]["kafka"] |= kafka_schema()
    schema["$defs"] |= DEFINITIONS
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _told(problems: list[Problem], env: Mapping[str, str]) -> list[Problem]:
    """The problems in one line each, with the variable's name where a variable is the cause."""
    variables = {
        dotted(path): name
        for name in env
        if name.startswith(PREFIX) and (path := path_of_variable(Settings, name))
    }
    return [
        Problem(
            _printable(problem.path, _PATH_SHOWN),
            _printable(problem.message, _MESSAGE_SHOWN)
            + (f" (set by {variables[problem.path]})" if problem.path in variables else ""),
        )
        for problem in problems
    ]


def _printable(text: str, most: int) -> str:
    """In one line that a person reads."""
    shown = text if len(text) <= most else f"{text[:most]}…"
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in shown)
