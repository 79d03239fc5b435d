"""Secrets that may change while the sidecar runs: given as text, by a variable, or as a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler, SecretStr
from pydantic_core import CoreSchema, core_schema

from sidecar.errors import Problem
from sidecar.settings.problems import refusal

HIDDEN: Final = "**********"

SECRET_SCHEMA: Final[dict[str, Any]] = {
    "anyOf": [
        {"type": "string", "minLength": 1},
        *(
            {
                "type": "object",
                "properties": {kind: {"type": "string"}},
                "required": [kind],
                "additionalProperties": False,
            }
            for kind in ("file", "env")
        ),
    ]
}


def read_secret_file(path: Path) -> str:
    """The file's text without its last line end. Raises ValueError."""
    try:
        text = path.read_text(encoding="utf-8").rstrip("\r\n")
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not UTF-8 text") from None
    if not text:
        raise ValueError(f"{path} is empty")
    return text


@dataclass(frozen=True, slots=True)
class Secret:
    """text is what it was when the settings were read; file is where it is read anew."""

    text: SecretStr
    file: Path | None = None

    @property
    def known(self) -> str:
        return self.text.get_secret_value()

    def now(self) -> str:
        """What it is at this moment. Raises ValueError."""
        return self.known if self.file is None else read_secret_file(self.file)

    def latest(self) -> str:
        """What it is at this moment; if it cannot be read, what it was at the start."""
        try:
            return self.now()
        except ValueError:
            return self.known

    @classmethod
    def parse(cls, value: object) -> Self:
        match value:
            case Secret():
                return cls(value.text, value.file)
            case SecretStr() | str():
                text = value.get_secret_value() if isinstance(value, SecretStr) else value
                if text:
                    return cls(SecretStr(text))
                raise refusal([Problem("", "must not be empty")])
            case {"file": str() | Path() as file, **rest} if not rest:
                try:
                    return cls(SecretStr(read_secret_file(Path(file))), Path(file))
                except ValueError as error:
                    raise refusal([Problem("", str(error))]) from None
        raise refusal([Problem("", "must be text, {file: PATH} or {env: NAME}")])

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            cls.parse, serialization=core_schema.plain_serializer_function_ser_schema(_hide)
        )

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return dict(SECRET_SCHEMA)


def _hide(_: object) -> str:
    return HIDDEN


def hide_all(secrets: Mapping[str, Secret]) -> dict[str, str]:
    return dict.fromkeys(secrets, HIDDEN)
