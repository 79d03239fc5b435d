"""What is added to a manifest: in lines of its own, or within brackets that are there."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeGuard

import yaml

_STEP: Final = 2
# What YAML 1.2 and Go's parser take for a number, and PyYAML for a text: 12e4.
_is_float: Final = re.compile(r"[-+]?[0-9.]+[eE][-+]?[0-9]+").fullmatch


class _Dumper(yaml.SafeDumper):
    """Quotes what other parsers take for something else, or stumble over within brackets."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def text(self, value: str) -> yaml.ScalarNode:
        style = '"' if "?" in value or "\n" in value or _is_float(value) else None
        return self.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _Dumper.text)


def inline(value: object) -> str:
    """On one line."""
    text: str = yaml.dump(
        value,
        Dumper=_Dumper,
        default_flow_style=True,
        width=float("inf"),
        sort_keys=False,
        allow_unicode=True,
    )
    return text.removesuffix("\n").removesuffix("\n...")


def as_json(value: object, step: str, indent: str) -> str:
    """On one line where there is no step, else on several, which go on behind the indent."""
    text = json.dumps(value, ensure_ascii=False, indent=step or None)
    return text.replace("\n", f"\n{indent}")


def json_members(value: object, step: str, indent: str) -> str:
    """What stands between its brackets; on lines of their own where there is a step."""
    text = as_json(value, step, "")[1:-1].strip("\n")
    return "\n".join(f"{indent}{each.removeprefix(step)}" for each in text.split("\n"))


def entries(mapping: Mapping[Any, Any], column: int, *, lists_indented: bool) -> Iterator[str]:
    """Lines of a mapping whose keys stand in a column; without their ends."""
    for key, value in mapping.items():
        head = f"{' ' * column}{inline(key)}:"
        if is_literal(value):
            yield f"{head} {literal_head(value)}"
            yield from literal_lines(value, column + _STEP)
        elif _is_short(value):
            yield f"{head} {inline(value)}"
        elif isinstance(value, dict):
            yield head
            yield from entries(value, column + _STEP, lists_indented=lists_indented)
        else:
            yield head
            inner = column + (_STEP if lists_indented else 0)
            yield from items(value, inner, lists_indented=lists_indented)


def items(sequence: Sequence[Any], column: int, *, lists_indented: bool) -> Iterator[str]:
    """Lines of a list whose dashes stand in a column."""
    for value in sequence:
        if isinstance(value, dict) and value:
            first, *rest = entries(value, column + _STEP, lists_indented=lists_indented)
            yield f"{' ' * column}- {first.lstrip(' ')}"
            yield from rest
        else:
            yield f"{' ' * column}- {inline(value)}"


def _is_short(value: object) -> bool:
    nested = value if isinstance(value, list) else ()
    return not (isinstance(value, dict) and value) and not any(
        isinstance(each, dict | list) for each in nested
    )


def is_literal(value: object) -> TypeGuard[str]:
    """Text of several lines, which can be shown as it is."""
    return (
        isinstance(value, str)
        and "\n" in value
        and bool(value.strip())
        and all(each.isprintable() or each in "\n\t" for each in value)
    )


def literal_head(text: str) -> str:
    indent = str(_STEP) if text.lstrip("\n").startswith((" ", "\t")) else ""
    if not text.endswith("\n"):
        return f"|{indent}-"
    return f"|{indent}+" if text.endswith("\n\n") else f"|{indent}"


def literal_lines(text: str, column: int) -> Iterator[str]:
    for line in text.removesuffix("\n").split("\n"):
        yield f"{' ' * column}{line}" if line else ""
