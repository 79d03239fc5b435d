"""The kinds of values that settings are made of, and the base of every section."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    WithJsonSchema,
)
from pydantic_core import PydanticCustomError

from sidecar.errors import Problem
from sidecar.settings.problems import NO_SUCH_FILE, refusal
from sidecar.settings.secrets import Secret

YEAR_SECONDS: Final = 31_536_000.0

KafkaValue = str | int | float | bool | SecretStr | Secret

KAFKA_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "additionalProperties": {
        "anyOf": [
            {"type": ["string", "number", "boolean"]},
            {
                "type": "object",
                "properties": {"file": {"type": "string"}},
                "required": ["file"],
                "additionalProperties": False,
            },
            {
                "type": "object",
                "properties": {"env": {"type": "string"}},
                "required": ["env"],
                "additionalProperties": False,
            },
        ]
    },
}


def _number(value: object) -> object:
    # pydantic reads true as 1
    if isinstance(value, bool):
        raise refusal([Problem("", f"must be a number, not {str(value).lower()}")])
    return value


Seconds = Annotated[
    float, BeforeValidator(_number), Field(ge=0, le=YEAR_SECONDS, allow_inf_nan=False)
]
PositiveSeconds = Annotated[
    float, BeforeValidator(_number), Field(gt=0, le=YEAR_SECONDS, allow_inf_nan=False)
]
RatePerSecond = Annotated[
    float, BeforeValidator(_number), Field(gt=0, le=1_000_000, allow_inf_nan=False)
]
Count = Annotated[int, BeforeValidator(_number)]


def _is_there(path: Path) -> Path:
    try:
        there = path.is_file()
    except OSError:  # as of a name that is too long for one
        there = False
    if not there:
        raise PydanticCustomError(NO_SUCH_FILE, "no such file")
    return path


File = Annotated[
    Path, AfterValidator(_is_there), WithJsonSchema({"type": "string", "format": "file-path"})
]


class Section(BaseModel):
    """A frozen part of the tree that refuses what it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)
