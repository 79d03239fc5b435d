"""YAML read with the places where it is written, and as plain data.

An alias keeps its own place in the tree. In the data it is written out, as Kubernetes does it: no
two places share an object, so one can be changed without the other.
"""

from __future__ import annotations

from typing import Any, Final

import yaml
from yaml.composer import Composer
from yaml.constructor import ConstructorError
from yaml.error import Mark
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from sidecar.errors import SidecarError

_MERGE: Final = "tag:yaml.org,2002:merge"
_TEXT: Final = frozenset(("tag:yaml.org,2002:value", "tag:yaml.org,2002:timestamp"))
_MOST_NODES: Final = 1_000_000  # with aliases written out


class Alias(ScalarNode):
    """Where a value is named that is written elsewhere."""

    def __init__(self, target: Node, start: Mark, end: Mark) -> None:
        super().__init__("alias", "", start, end)
        self.target: Final = target


class Tree(yaml.SafeLoader):
    """The documents of a text. Raises SidecarError."""

    def __init__(self, text: str) -> None:
        self.dashes: Final[list[int]] = []  # where the items of block sequences begin
        self.keys: Final[dict[int, Any]] = {}  # of a key's node, by its id; not of merges
        self._nodes = 0
        self.documents: Final[list[Node]] = []
        try:
            super().__init__(text)
            while self.check_node():
                if (node := self.get_node()) is not None:
                    self.documents.append(node)
            self.values: Final = [self._plain(document) for document in self.documents]
        except yaml.YAMLError as error:
            raise SidecarError(f"no YAML: {' '.join(str(error).split())[:200]}") from None
        except (ValueError, LookupError, AttributeError, TypeError, OverflowError):
            raise SidecarError("no YAML: a value is not what it looks like") from None
        except RecursionError:
            raise SidecarError("no YAML: it is nested too deeply") from None

    def fetch_block_entry(self) -> None:
        super().fetch_block_entry()
        self.dashes.append(self.tokens[-1].start_mark.index)

    def scan_to_next_token(self) -> None:
        """A tab separates like a space, except where it would indent."""
        super().scan_to_next_token()
        while self.peek() == "\t" and self._may_separate():
            self.forward()
            super().scan_to_next_token()

    def _may_separate(self) -> bool:
        begin = self.pointer - self.column
        return bool(self.flow_level or self.buffer[begin : self.pointer].strip())

    def compose_node(self, parent: Node | None, index: Any) -> Node | None:
        if not self.check_event(yaml.AliasEvent):
            return Composer.compose_node(self, parent, index)
        event: Any = self.get_event()  # type: ignore[no-untyped-call]
        target = self.anchors.get(event.anchor)
        if target is None:
            raise ConstructorError(
                None, None, f"there is no anchor {event.anchor}", event.start_mark
            )
        return Alias(target, event.start_mark, event.end_mark)

    def _plain(self, node: Node) -> Any:
        self._nodes += 1
        if self._nodes > _MOST_NODES:
            raise SidecarError("no YAML: too large once its aliases are written out")
        if isinstance(node, Alias):
            return self._plain(node.target)
        if isinstance(node, MappingNode):
            return self._mapping(node)
        if isinstance(node, SequenceNode):
            return [self._plain(each) for each in node.value]
        return node.value if node.tag in _TEXT else self.construct_object(node)

    def _mapping(self, node: MappingNode) -> dict[Any, Any]:
        own: dict[Any, Any] = {}
        merged: dict[Any, Any] = {}
        for key_node, value_node in node.value:
            value = self._plain(value_node)
            if key_node.tag == _MERGE:
                for each in reversed(value if isinstance(value, list) else [value]):
                    merged |= each if isinstance(each, dict) else {}
                continue
            key = self._plain(key_node)
            if isinstance(key, dict | list):
                raise ConstructorError(
                    None, None, "found a key that is no text", key_node.start_mark
                )
            if key in own:
                raise ConstructorError(None, None, f"found {key} twice", key_node.start_mark)
            own[key] = value
            self.keys[id(key_node)] = key
        return {**merged, **own}
