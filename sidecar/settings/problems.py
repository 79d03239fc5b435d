"""What is wrong with a configuration, said in the operator's words.

Turns pydantic's validation errors into errors.Problem: a dotted path, what is wrong and the way
out. Values are repeated only where they cannot be secrets. Walks the models by their fields, so
that names suggested here and names accepted by the models are the same ones.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from enum import Enum
from typing import Any

from pydantic import BaseModel, SecretStr, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from sidecar.errors import Problem

Path = tuple[str | int, ...]

NO_SUCH_FILE = "no_such_file"
_REFUSED = "refused"
_NUMBER_TYPES = frozenset(
    {"float_parsing", "float_type", "int_parsing", "int_type", "int_from_float", "finite_number"}
)
_SHOWN_LENGTH = 60


def refusal(problems: Sequence[Problem]) -> PydanticCustomError:
    """Several problems raised as one error from inside a validator; paths are relative to it."""
    summary = "; ".join(str(problem) for problem in problems)
    return PydanticCustomError(_REFUSED, "{summary}", {"summary": summary, "problems": problems})


def dotted(path: Iterable[str | int]) -> str:
    """("routes", 0, "name") as routes[0].name."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{part}" if text else part
    return text


def nearest(name: str, known: Iterable[str]) -> str:
    """A clause that names the known name nearest to this one, or nothing."""
    matches = get_close_matches(name.lower(), list(known), n=1, cutoff=0.6)
    return f"; did you mean {matches[0]}?" if matches else ""


def parts_of(annotation: Any) -> list[Any]:
    """The alternatives of an annotation, without None and without Annotated's extras."""
    origin = typing.get_origin(annotation)
    if origin is typing.Annotated:
        return parts_of(typing.get_args(annotation)[0])
    if origin in (typing.Union, types.UnionType):
        arguments = typing.get_args(annotation)
        return [part for each in arguments if each is not type(None) for part in parts_of(each)]
    return [annotation]


def may_be_null(annotation: Any) -> bool:
    return types.NoneType in typing.get_args(annotation)


def model_of(annotation: Any) -> type[BaseModel] | None:
    for part in parts_of(annotation):
        if isinstance(part, type) and issubclass(part, BaseModel):
            return part
    return None


def is_mapping(annotation: Any) -> bool:
    return any(typing.get_origin(part) is Mapping for part in parts_of(annotation))


def item_of(annotation: Any) -> Any:
    """The type of a tuple[X, ...]'s items, or None."""
    for part in parts_of(annotation):
        if typing.get_origin(part) is tuple:
            return typing.get_args(part)[0]
    return None


def annotation_at(root: type[BaseModel], path: Sequence[str | int]) -> Any:
    """The declared type at a path, or None where the models declare nothing."""
    annotation: Any = root
    for part in path:
        if isinstance(part, int):
            annotation = item_of(annotation)
        else:
            model = model_of(annotation)
            field = model.model_fields.get(part) if model else None
            annotation = field.annotation if field else None
        if annotation is None:
            return None
    return annotation


def problems_of(error: ValidationError, root: type[BaseModel]) -> list[Problem]:
    """Every error of a failed validation, each as one line for the operator."""
    problems: list[Problem] = []
    details = error.errors(include_url=False)
    for detail in details:
        path = detail["loc"]
        if detail["type"] == "too_short" and any(
            other["loc"][: len(path)] == path and other is not detail for other in details
        ):
            continue  # pydantic counts the items that are right, not those that were given
        if detail["type"] == _REFUSED:
            problems.extend(
                Problem(_join(dotted(path), problem.path), problem.message)
                for problem in detail["ctx"]["problems"]
            )
        elif detail["type"] != "default_factory_not_called":
            problems.append(Problem(dotted(path), _message(detail, root, path)))
    return problems


def _join(outer: str, inner: str) -> str:
    if not (outer and inner):
        return outer or inner
    return outer + inner if inner.startswith("[") else f"{outer}.{inner}"


def _message(detail: ErrorDetails, root: type[BaseModel], path: Path) -> str:
    annotation = annotation_at(root, path)
    shown = _shown(detail["input"], annotation)
    match detail["type"]:
        case "missing":
            return "is required" + _described(root, path)
        case "extra_forbidden":
            model = model_of(annotation_at(root, path[:-1]))
            known = [] if model is None else list(model.model_fields)
            return "unknown setting" + (
                nearest(str(path[-1]), known) or f"; known here: {', '.join(known)}"
            )
        case "enum" | "literal_error":
            return f"must be one of {detail['ctx']['expected']}{shown}".replace("'", "")
        case "model_type" | "model_attributes_type" | "mapping_type" | "dict_type":
            return "must be a mapping of settings"  # what stands there may be the secret itself
        case "tuple_type":
            return f"must be a list{shown}"
        case "string_type":
            return f"must be text{shown}; put it in quotes if it is meant as text"
        case "too_short":
            return "must not be empty"
        case kind if kind == NO_SUCH_FILE:
            looks_like_one = str(detail["input"]).startswith(("/", "."))
            return f"no such file{shown}" if looks_like_one else "no such file: a path is meant"
        case kind if kind in _NUMBER_TYPES:
            whole = "a whole number" if kind.startswith("int") else "a number"
            unit = str(path[-1]).rsplit("_", 1)[-1]
            of_what = f" of {unit}" if unit in ("seconds", "bytes") else ""
            return f"must be {whole}{of_what}{shown}"
    text = detail["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
    if detail["type"] == "value_error":
        return text
    return f"must be {text}{shown}"


def _described(root: type[BaseModel], path: Path) -> str:
    model = model_of(annotation_at(root, path[:-1]))
    field = model.model_fields.get(str(path[-1])) if model else None
    return f": {field.description}" if field and field.description else ""


def _shown(value: object, annotation: Any) -> str:
    """The refused value as a clause, unless it could be a secret, or long, or not one word."""
    if SecretStr in parts_of(annotation) or isinstance(value, SecretStr):
        return ""
    if isinstance(value, Enum) or not isinstance(value, (str, int, float)):
        return "" if value is not None else ", not empty"
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if len(text) > _SHOWN_LENGTH or not text.isprintable():
        return ""
    return f", not {text!r}" if isinstance(value, str) else f", not {text}"
