"""The kinds of values that settings are made of, and the base of every section."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

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

from sidecar.core.topic_names import LONGEST, TOPIC_PATTERN
from sidecar.errors import Problem
from sidecar.settings.problems import NO_SUCH_FILE, refusal
from sidecar.settings.secrets import Secret

YEAR_SECONDS: Final = 31_536_000.0

KafkaValue = str | int | float | bool | SecretStr | Secret


def _number(value: object) -> object:
    # pydantic reads true as 1
    if isinstance(value, bool):
        raise refusal([Problem("", f"must be a number, not {str(value).lower()}")])
    return value


Number = Annotated[float, BeforeValidator(_number)]  # its range is the field's
# The range stands first, or the JSON schema would not have it; a field's own would be lost here.
Seconds = Annotated[float, Field(ge=0, le=YEAR_SECONDS), BeforeValidator(_number)]
PositiveSeconds = Annotated[float, Field(gt=0, le=YEAR_SECONDS), BeforeValidator(_number)]
RatePerSecond = Annotated[float, Field(gt=0, le=1_000_000), BeforeValidator(_number)]
Count = Annotated[int, BeforeValidator(_number)]
Budget = Annotated[int, Field(ge=1, le=1_000_000), BeforeValidator(_number)]
# What is no legal name is told by the checks, in words.
TopicName = Annotated[
    str, WithJsonSchema({"type": "string", "pattern": f"^{TOPIC_PATTERN}$", "maxLength": LONGEST})
]


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
