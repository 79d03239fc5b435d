"""Where settings come from: flags, the environment, a YAML file, in this order of precedence.

Each is a pydantic-settings source that gives a part of the tree. A single field of a list's item
is overlaid by a mapping from index to item ({"routes": {0: {…}}}); with_lists turns what is left
of these into lists when everything is merged. Problems are collected, not raised.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Hashable, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource

from sidecar.core.kafka_properties import properties
from sidecar.core.kafka_rules import property_of_variable
from sidecar.errors import ConfigError, Problem
from sidecar.settings.problems import Path as TreePath
from sidecar.settings.problems import (
    annotation_at,
    dotted,
    is_mapping,
    item_of,
    may_be_null,
    model_of,
    parts_of,
)
from sidecar.settings.secrets import Secret, read_secret_file

PREFIX = "SIDECAR_"
_KAFKA = "kafka"
_ROUTES = "routes"

# What a kubelet sets for a Service whose name begins with sidecar: <NAME>_SERVICE_HOST and so on,
# and <NAME>_PORT, which is told from a mistyped setting by its value.
_SERVICE = re.compile(
    r"SIDECAR_([A-Z0-9_]+_)?(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?"
    r"|PORT_[0-9]+_(TCP|UDP|SCTP)(_(ADDR|PORT|PROTO))?)"
)
_SERVICE_URL = re.compile(r"(tcp|udp|sctp)://")

_MOST_VALUES = 100_000

Tree = dict[Any, Any]


class Layer(PydanticBaseSettingsSource):
    """One source's part of the tree."""

    def __init__(
        self,
        settings: type[BaseSettings],
        tree: Tree,
        env: Mapping[str, str],
        problems: list[Problem],
    ) -> None:
        super().__init__(settings)
        self._tree = tree
        self._env = env
        self._problems = problems

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        return self._tree.get(field_name), field_name, False

    def __call__(self) -> Tree:
        above = self.current_state
        tree = _below(self._tree, above)
        kafka = tree.get(_KAFKA)
        if isinstance(kafka, dict):
            # What was said before needs no second reference to be readable.
            said = above.get(_KAFKA)
            said = said if isinstance(said, dict) else {}
            mine = {name: value for name, value in kafka.items() if name not in said}
            tree[_KAFKA] = dict(_resolved(mine, self._env, self._problems))
        if _ROUTES in tree:
            said = above.get(_ROUTES)
            tree[_ROUTES] = _revealed(tree[_ROUTES], said, (_ROUTES,), self._env, self._problems)
        return tree


def sources_of(
    settings: type[BaseSettings],
    file: Path | None,
    env: Mapping[str, str],
    overrides: Mapping[str, Any],
    problems: list[Problem],
) -> tuple[PydanticBaseSettingsSource, ...]:
    """The sources by precedence. problems grows while they are read and when they are merged.

    Raises ConfigError where the file is no tree at all: what would be missing is not known.
    """
    trees = [dict(overrides), environment_tree(settings, env, problems)]
    if file is not None:
        try:
            trees.append(file_tree(file))
        except ConfigError as error:
            raise ConfigError([*problems, *error.problems]) from None
    return tuple(Layer(settings, tree, env, problems) for tree in trees)


def with_lists(tree: Any, path: TreePath = ()) -> Any:
    """The merged tree with lists in place of mappings by index."""
    if isinstance(tree, list):
        return [with_lists(item, (*path, index)) for index, item in enumerate(tree)]
    if not isinstance(tree, dict):
        return tree
    items = {key: with_lists(value, (*path, key)) for key, value in tree.items()}
    if not items or not all(isinstance(key, int) for key in items):
        return items
    # A hole becomes an item that nothing was said about: its required fields are reported.
    return [items.get(index, {}) for index in range(max(items) + 1)]


def _below(tree: Tree, above: Mapping[Any, Any]) -> Tree:
    """The tree with its lists by index wherever the layer above overlays single items."""
    result: Tree = {}
    for key, value in tree.items():
        over = above.get(key)
        if isinstance(over, dict):
            if isinstance(value, list) and all(isinstance(each, int) for each in over):
                value = dict(enumerate(value))
            if isinstance(value, dict):
                value = _below(value, over)
        result[key] = value
    return result


# --- references ---------------------------------------------------------------------------------


def _resolved(
    kafka: Mapping[str, Any], env: Mapping[str, str], problems: list[Problem]
) -> Iterator[tuple[str, Any]]:
    for name, value in kafka.items():
        if not isinstance(value, dict):
            yield name, value
            continue
        try:
            secret = SecretStr(_read_reference(value, env))
            yield name, Secret(secret, Path(value["file"])) if "file" in value else secret
        except ValueError as error:
            problems.append(Problem(dotted((_KAFKA, name)), str(error)))


def _read_reference(reference: Mapping[str, Any], env: Mapping[str, str]) -> str:
    match reference:
        case {"file": str(path), **rest} if not rest:
            return read_secret_file(Path(path))
        case {"env": str(variable), **rest} if not rest:
            if not env.get(variable):
                raise ValueError(f"the environment has no {variable}, or it is empty")
            return env[variable]
    raise ValueError("must be a value, {file: PATH} or {env: NAME}")


def _revealed(
    node: Any, above: Any, path: TreePath, env: Mapping[str, str], problems: list[Problem]
) -> Any:
    """The node with secrets in place of {env: NAME}; files are for the settings to read."""
    if isinstance(node, list):
        return [
            _revealed(each, None, (*path, index), env, problems) for index, each in enumerate(node)
        ]
    if not isinstance(node, dict):
        return node
    result: Tree = {}
    for key, value in node.items():
        over = above.get(key) if isinstance(above, dict) else None
        if isinstance(value, dict) and value.keys() == {"env"}:
            if over is None:
                try:
                    result[key] = SecretStr(_read_reference(value, env))
                except ValueError as error:
                    problems.append(Problem(dotted((*path, key)), str(error)))
        else:
            result[key] = _revealed(value, over, (*path, key), env, problems)
    return result


# --- file ---------------------------------------------------------------------------------------


class _StrictLoader(yaml.SafeLoader):
    """Refuses what YAML would let pass in silence: a key given twice, a key that is not text.

    And what it would stumble over.
    """

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (ValueError, LookupError, AttributeError, TypeError, OverflowError):
            raise yaml.MarkedYAMLError(
                problem="a value is not what it looks like: put it in quotes",
                problem_mark=node.start_mark,
            ) from None

    def construct_scalar(self, node: yaml.ScalarNode | yaml.MappingNode) -> Any:
        if isinstance(node, yaml.ScalarNode) and not _is_text(node.value):
            raise yaml.MarkedYAMLError(
                problem="half of a pair of \\u characters", problem_mark=node.start_mark
            )
        return super().construct_scalar(node)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str):
                told = f" {key_node.value}" if isinstance(key_node, yaml.ScalarNode) else ""
                raise yaml.MarkedYAMLError(
                    problem=f"the key{told} is not text: put it in quotes",
                    problem_mark=key_node.start_mark,
                )
            if key in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"{key} is given twice: remove one",
                    problem_mark=key_node.start_mark,
                )
            seen.add(key)
        return super().construct_mapping(node, deep)


def file_tree(file: Path) -> Tree:
    """What the file holds. Raises ConfigError with one problem."""
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError([Problem(str(file), f"cannot be read: {error.strerror}")]) from None
    except UnicodeDecodeError:
        raise ConfigError([Problem(str(file), "is not UTF-8 text")]) from None
    return text_tree(text, str(file))


def text_tree(text: str, where: str) -> Tree:
    """What a file of that name holds. Raises ConfigError with one problem."""
    try:
        tree = _StrictLoader(text).get_single_data()
    except yaml.MarkedYAMLError as error:
        if mark := error.problem_mark or error.context_mark:
            where = f"{where}:{mark.line + 1}:{mark.column + 1}"
        said = f"is not valid YAML: {_reason(error)}"
    except yaml.YAMLError as error:
        said = f"is not valid YAML: {str(error).splitlines()[0]}"
    except RecursionError:
        said = "is nested too deeply"
    else:
        if isinstance(tree, dict):
            if _values_in(tree, {}) <= _MOST_VALUES:
                return tree
            raise ConfigError([Problem(where, "holds too many values, by its aliases")])
        said = "is empty" if tree is None else "must hold a mapping of settings"
        said += "; it begins with kafka: and routes:"
    raise ConfigError([Problem(where, said)])


def _values_in(node: Any, known: dict[int, float]) -> float:
    """How many there are where each alias stands for all it means; infinite where one is inside."""
    if not isinstance(node, dict | list):
        return 1
    if id(node) not in known:
        known[id(node)] = math.inf  # until it is counted
        inside = node.values() if isinstance(node, dict) else node
        known[id(node)] = 1 + sum(_values_in(each, known) for each in inside)
    return known[id(node)]


def _reason(error: yaml.MarkedYAMLError) -> str:
    """What is wrong, without the value that is wrong: a password may begin with * or !."""
    problem = error.problem or ""
    for beginning, what in (("found undefined alias", "*"), ("could not determine a cons", "!")):
        if problem.startswith(beginning):
            return f"a value that begins with {what} is not text: put it in quotes"
    return " ".join(filter(None, (error.context, problem)))


# --- environment --------------------------------------------------------------------------------


def environment_tree(
    settings: type[BaseModel], env: Mapping[str, str], problems: list[Problem]
) -> Tree:
    tree: Tree = {}
    own = [name for name in env if name.startswith(PREFIX)]
    # A whole list or mapping first, so that single fields overlay it.
    for name in sorted(own, key=lambda name: (name.count("__"), name)):
        path = path_of_variable(settings, name)
        if path is None:
            if not _is_service_variable(name, env[name]):
                problems.append(Problem(name, _unknown_variable(settings, name)))
            continue
        try:
            _put(tree, path, _parsed(settings, path, env[name]))
        except ValueError as error:
            problems.append(Problem(name, str(error)))
    return tree


def path_of_variable(settings: type[BaseModel], name: str) -> TreePath | None:
    """("routes", 0, "executors") for SIDECAR_ROUTES__0__EXECUTORS; None if there is no such."""
    parts = name.removeprefix(PREFIX).split("__")
    if any(part != part.upper() for part in parts):
        return None
    if parts[0] == _KAFKA.upper() and len(parts) > 1:
        reference = tuple(part.lower() for part in parts[2:])
        if not all(parts) or reference not in ((), ("file",), ("env",)):
            return None
        return (_KAFKA, property_of_variable(parts[1]), *reference)
    path: TreePath = ()
    for part in parts:
        inside = annotation_at(settings, path)
        model = model_of(inside)
        if model is not None and part.lower() in model.model_fields:
            path = (*path, part.lower())
        elif Secret in parts_of(inside) and part == "FILE":
            path = (*path, "file")
        elif item_of(inside) is not None and re.fullmatch(r"[0-9]{1,3}", part):
            path = (*path, int(part))
        else:
            return None
    return path


def _is_service_variable(name: str, value: str) -> bool:
    if name.endswith("_PORT") and _SERVICE_URL.match(value):
        return True
    return _SERVICE.fullmatch(name) is not None


def _unknown_variable(settings: type[BaseModel], name: str) -> str:
    # Without the prefix, which would make everything alike.
    known = [
        variable.removeprefix(PREFIX)
        for variable in (*_variables(settings, "SIDECAR"), *_kafka_variables())
    ]
    index = re.search(r"__([0-9]+)(?=__)", name)
    comparable = re.sub(r"__[0-9]+(?=__)", "__0", name, count=1).removeprefix(PREFIX).upper()
    matches = get_close_matches(comparable, known, n=1, cutoff=0.6)
    if not matches:
        return "unknown variable: remove it, or see docs/configuration.md for the names"
    nearest = matches[0].replace("__0", f"__{index[1]}") if index else matches[0]
    return f"unknown variable; did you mean {PREFIX}{nearest}?"


def _variables(model: type[BaseModel], prefix: str) -> Iterator[str]:
    separator = "_" if prefix == "SIDECAR" else "__"
    for name, field in model.model_fields.items():
        variable = f"{prefix}{separator}{name.upper()}"
        yield variable
        item = item_of(field.annotation)
        inner = model_of(field.annotation) or model_of(item)
        if inner is not None:
            yield from _variables(inner, variable if item is None else f"{variable}__0")


def _kafka_variables() -> Iterator[str]:
    for name, known in properties().items():
        if known.consumer:
            yield f"{PREFIX}KAFKA__{name.replace('.', '_').upper()}"


def _parsed(settings: type[BaseModel], path: TreePath, text: str) -> Any:
    if not _is_text(text):
        raise ValueError("is not UTF-8 text")
    annotation = annotation_at(settings, path)
    if not text and may_be_null(annotation):
        return None
    if model_of(annotation) or item_of(annotation) is not None or is_mapping(annotation):
        try:
            return json.loads(text)
        except RecursionError:
            raise ValueError("must hold JSON that is nested less deeply") from None
        except ValueError as error:
            raise ValueError(f"must hold JSON: {error}") from None
    return text


def _is_text(value: str) -> bool:
    """Whether it is of characters alone: what is none of UTF-8 comes as half a pair."""
    return not re.search("[\ud800-\udfff]", value)


def _put(tree: Tree, path: TreePath, value: Any) -> None:
    """Set a value, making mappings on the way; an item of a list that was given stays there."""
    node: Any = tree
    for part in path[:-1]:
        node = _step(node, part)
    last = path[-1]
    _step(node, last)
    node[last] = value


def _step(node: Any, part: str | int) -> Any:
    if isinstance(node, list) and isinstance(part, int):
        if part >= len(node):
            raise ValueError(f"the list has no item {part}: it has {len(node)}")
        return node[part]
    if isinstance(node, dict):
        return node.setdefault(part, {})
    raise ValueError("its parent was given as a single value")
