"""Descriptions and examples of fields, from the text that stands below them in their class.

Read from the source, and only when somebody wants the API's description: importing costs nothing.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
from collections.abc import Mapping
from types import ModuleType
from typing import Any, Final

_EXAMPLE: Final = re.compile(r" ?\(e\.g\. (.+)\)$")


def describe(schemas: Mapping[str, dict[str, Any]], module: ModuleType) -> None:
    """Add to the schemas of the module's classes what is said of their fields."""
    try:
        tree = ast.parse(inspect.getsource(module))
    except OSError:  # shipped without its source
        return
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and "properties" in schemas.get(node.name, {}):
            _describe(schemas[node.name]["properties"], node)


def _describe(properties: Mapping[str, dict[str, Any]], node: ast.ClassDef) -> None:
    for field, following in zip(node.body, node.body[1:], strict=False):
        match field, following:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(told))),
            ):
                text = inspect.cleandoc(told).replace("\n", " ")
                if example := _EXAMPLE.search(text):
                    text = text[: example.start()]
                    properties[name]["examples"] = [json.loads(example[1])]
                if text:
                    properties[name]["description"] = text
