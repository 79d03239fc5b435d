"""Edits of YAML where it stands: what changes in the data, changes in the text, and nothing else.

The data before and after are compared along the tree of what is written. What is new is inserted
behind what is there; every other byte stays. In the end the text is read again: unless that gives
the data that were wanted (an anchor may be shared by places that are to differ), it is refused.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import takewhile
from typing import Any, Final, NamedTuple

from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from sidecar.cli import yaml_text
from sidecar.cli.yaml_tree import Alias, Tree
from sidecar.errors import SidecarError

_NAMES: Final = ("name", "mountPath")  # by which items of lists are the same


class _CannotEdit(Exception):
    """The way it is written leaves no place for the change."""


class _Edit(NamedTuple):
    start: int
    end: int
    text: str
    lines: bool = False  # begins a line


class Manifests:
    """A text, and the data of its documents. Raises SidecarError if it is no YAML.

    What is JSON stays JSON: one document, which becomes a List if others are added to it.
    """

    def __init__(self, text: str) -> None:
        self._text: Final = text
        self._tree: Final = Tree(text)
        self._newline: Final = "\r\n" if text.count("\r\n") * 2 > text.count("\n") else "\n"
        self._is_json: Final = _is_json(text)
        self._lists_indented = False
        self._edits: list[_Edit] = []

    @property
    def values(self) -> list[Any]:
        return self._tree.values

    def edited(self, wanted: list[Any], added: list[dict[str, Any]]) -> str:
        """The text with the data that are wanted, and more documents. Raises SidecarError."""
        self._edits = []
        text, whole = "", [*wanted, *added]
        if self._is_json and added:
            whole = [self._listed(wanted[0], added)]
        try:
            for document, before, after in zip(
                self._tree.documents, self.values, wanted, strict=True
            ):
                self._lists_indented = self._indents_lists(document)
                self._value(document, before, after, None, flow=False)
            text = self._applied()
            if not self._is_json:
                text += self._documents(added, text)
            done = Tree(text).values == whole
        except (_CannotEdit, SidecarError):
            done = False
        if not done and self._ends_in_text():
            raise SidecarError("ends in a block of text without a line end, which counts: add one")
        if not done:
            raise SidecarError(
                "cannot be edited where it stands, because an anchor is shared by places that are"
                " to differ, or for a rare way of writing: write it out"
            )
        return text

    def _ends_in_text(self) -> bool:
        node = self._tree.documents[-1]
        while isinstance(node, MappingNode | SequenceNode) and node.value:
            node = _last(node.value[-1])
        return _is_block_scalar(node) and not self._text.endswith("\n")

    def _listed(self, document: dict[str, Any], added: list[dict[str, Any]]) -> dict[str, Any]:
        """JSON has no second document: they go into its List, or into one around it."""
        if document.get("kind") == "List":
            document["items"] = [*document["items"], *added]
            return document
        node = self._tree.documents[0]
        step = self._step
        line = "\n" if step else ""
        head = f'{{"apiVersion": "v1", "kind": "List", "items": [{line}'
        tail = "".join(f",{line or ' '}{yaml_text.as_json(each, step, '')}" for each in added)
        start, end = node.start_mark.index, node.end_mark.index
        self._edits += [_Edit(start, start, head), _Edit(end, end, f"{tail}{line}]}}")]
        return {"apiVersion": "v1", "kind": "List", "items": [document, *added]}

    def _documents(self, added: list[dict[str, Any]], text: str) -> str:
        """Behind the text, each with its line of dashes."""
        lines = ["" if text.endswith("\n") else "\n"]
        for each in added:
            lines.append("---\n")
            lines += [f"{line}\n" for line in yaml_text.entries(each, 0, lists_indented=False)]
        return "".join(lines if added else ()).replace("\n", self._newline)

    def _applied(self) -> str:
        parts, position = [""], 0
        # At one place the inner ones come first, as they were found; a shared node is edited once.
        for edit in sorted(dict.fromkeys(self._edits), key=lambda each: each.start):
            if edit.start < position:
                raise _CannotEdit
            parts.append(self._text[position : edit.start])
            before = next((each for each in reversed(parts) if each), "\n")
            if edit.lines and not before.endswith("\n"):
                parts.append(self._newline)
            parts.append(edit.text.replace("\n", self._newline))
            position = edit.end
        parts.append(self._text[position:])
        return "".join(parts)

    # --- along the tree ---------------------------------------------------------------------------

    def _value(
        self, node: Node, before: Any, after: Any, column: int | None, *, flow: bool
    ) -> None:
        """column: of the key whose value it is, where there is one in lines of its own."""
        if before == after:
            return
        target = node.target if isinstance(node, Alias) else node
        if isinstance(target, MappingNode) and isinstance(after, dict) and before:
            self._mapping(target, before, after)
        elif isinstance(target, SequenceNode) and isinstance(after, list) and before:
            self._sequence(target, before, after)
        else:
            self._replace(node, after, column, flow=flow)

    def _mapping(self, node: MappingNode, before: dict[Any, Any], after: dict[Any, Any]) -> None:
        written = set()
        for index, (key_node, value_node) in enumerate(node.value):
            if id(key_node) not in self._tree.keys:
                continue  # merged in from elsewhere
            key = self._tree.keys[id(key_node)]
            written.add(key)
            if key not in after:
                self._remove(node, index, self._line_of(key_node.start_mark.index))
            else:
                column = None if node.flow_style else key_node.start_mark.column
                flow = bool(node.flow_style)
                self._value(value_node, before[key], after[key], column, flow=flow)
        added = {
            key: value
            for key, value in after.items()
            if key not in written and (key not in before or before[key] != value)
        }
        if not added:
            return
        if node.flow_style:
            self._into_brackets(node, added)
        else:
            column = node.value[0][0].start_mark.column
            lines = yaml_text.entries(added, column, lists_indented=self._lists_indented)
            self._behind(node, column, lines)

    def _sequence(self, node: SequenceNode, before: list[Any], after: list[Any]) -> None:
        kept = list(range(len(before)))
        if len(before) > len(after):
            kept = [at for at in kept if any(_same(before[at], each) for each in after)]
        for index in sorted(set(range(len(before))) - set(kept)):
            self._remove(node, index, self._line_of(self._dash(node.value[index])))
        if len(kept) > len(after):
            raise _CannotEdit
        for index, wanted in zip(kept, after, strict=False):
            flow = bool(node.flow_style)
            self._value(node.value[index], before[index], wanted, None, flow=flow)
        added = after[len(kept) :]
        if not added:
            return
        if node.flow_style:
            self._into_brackets(node, added)
        else:
            column = self._column(self._dash(node.value[-1]))
            lines = yaml_text.items(added, column, lists_indented=self._lists_indented)
            self._behind(node, column, lines)

    # --- the edits --------------------------------------------------------------------------------

    def _replace(self, node: Node, value: Any, column: int | None, *, flow: bool) -> None:
        start, end = node.start_mark.index, node.end_mark.index
        collection = isinstance(value, dict | list) and bool(value)
        if flow or not (collection or yaml_text.is_literal(value)):
            if _is_block_scalar(node):
                raise _CannotEdit
            text = self._inline(value, start)
            self._edits.append(_Edit(start, end, f" {text}" if start == end else text))
            return
        if column is None:
            raise _CannotEdit
        head, lines = self._block(value, column)
        if _is_block_scalar(node):
            self._edits.append(_Edit(start, self._next_line(node), "\n".join([head, *lines, ""])))
            return
        before = self._text[:start].rstrip(" \t")
        self._edits.append(_Edit(len(before), end, f" {head}" if head else ""))
        self._lines(self._next_line(node), lines)

    def _block(self, value: Any, column: int) -> tuple[str, list[str]]:
        """What stands behind the key, and in the lines below."""
        if isinstance(value, str):
            return yaml_text.literal_head(value), [*yaml_text.literal_lines(value, column + 2)]
        indented = self._lists_indented
        if isinstance(value, dict):
            return "", [*yaml_text.entries(value, column + 2, lists_indented=indented)]
        inner = column + 2 if indented else column
        return "", [*yaml_text.items(value, inner, lists_indented=indented)]

    def _inline(self, value: Any, index: int) -> str:
        if not self._is_json:
            return yaml_text.inline(value)
        return yaml_text.as_json(value, self._step, self._indent(index))

    def _into_brackets(
        self, node: MappingNode | SequenceNode, added: dict[Any, Any] | list[Any]
    ) -> None:
        end = self._end(node.value[-1])
        if not self._is_json:
            text = f" {yaml_text.inline(added)[1:-1]}"
        elif self._line_of(_first(node.value[-1]).start_mark.index) is None:
            text = f" {yaml_text.json_members(added, '', '')}"
        else:
            indent = self._indent(_first(node.value[-1]).start_mark.index)
            text = f"\n{yaml_text.json_members(added, self._step or '  ', indent)}"
        self._edits.append(_Edit(end, end, f",{text}"))

    def _behind(self, node: Node, column: int, lines: Iterable[str]) -> None:
        self._lines(self._past_comments(self._next_line(node), column), lines)

    def _lines(self, position: int, lines: Iterable[str]) -> None:
        self._edits.append(_Edit(position, position, "".join(f"{each}\n" for each in lines), True))

    def _remove(self, node: MappingNode | SequenceNode, index: int, line: int | None) -> None:
        entry = node.value[index]
        if not node.flow_style:
            if line is None:
                raise _CannotEdit
            self._edits.append(_Edit(line, self._next_line(_last(entry)), ""))
        elif index:
            self._edits.append(_Edit(self._end(node.value[index - 1]), self._end(entry), ""))
        else:
            rest = node.value[1:]
            end = _first(rest[0]).start_mark.index if rest else self._end(entry)
            self._edits.append(_Edit(_first(entry).start_mark.index, end, ""))

    # --- places -----------------------------------------------------------------------------------

    def _end(self, entry: Any) -> int:
        """Where an entry between brackets ends."""
        end: int = _last(entry).end_mark.index
        return end

    def _dash(self, item: Node) -> int:
        return self._tree.dashes[bisect_left(self._tree.dashes, item.start_mark.index) - 1]

    def _column(self, index: int) -> int:
        return index - (self._text.rfind("\n", 0, index) + 1)

    @property
    def _step(self) -> str:
        """By which the lines of JSON are indented, if it has several."""
        first = _first(self._tree.documents[0].value[0]).start_mark.index
        return "" if self._line_of(first) is None else self._indent(first)

    def _indent(self, index: int) -> str:
        """Of the line where this is."""
        start = self._text.rfind("\n", 0, index) + 1
        line = self._text[start : index + 1]
        return line[: len(line) - len(line.lstrip(" \t"))]

    def _line_of(self, index: int) -> int | None:
        """Where the line begins, if there is nothing before this in it."""
        start = self._text.rfind("\n", 0, index) + 1
        return None if self._text[start:index].strip() else start

    def _next_line(self, node: Node) -> int:
        """Where the line behind a value begins, or the end of the text."""
        while isinstance(node, MappingNode | SequenceNode) and not node.flow_style and node.value:
            node = _last(node.value[-1])
        end: int = node.end_mark.index
        if not _is_block_scalar(node):
            newline = self._text.find("\n", end)
            return len(self._text) if newline < 0 else newline + 1
        head = self._text[node.start_mark.index :].partition("\n")[0].partition("#")[0]
        start = self._text.rfind("\n", 0, end) + 1
        if self._text[start:end].strip():
            return len(self._text)
        while "+" not in head and self._text[:start].endswith(("\n\n", "\n\r\n")):
            start = self._text.rfind("\n", 0, start - 1) + 1
        return start

    def _past_comments(self, position: int, column: int) -> int:
        """Behind comments that belong to what is above, and not to what follows in the column."""
        comments: list[tuple[int, int]] = []
        for end, indent, line in self._lines_from(position):
            if not line.startswith("#") or indent < column:
                if line and indent == column:
                    comments = [*takewhile(lambda each: each[0] > column, comments)]
                break
            comments.append((indent, end))
        return comments[-1][1] if comments else position

    def _lines_from(self, position: int) -> Iterator[tuple[int, int, str]]:
        """Where each ends, how far it is indented, what is in it."""
        while position < len(self._text):
            newline = self._text.find("\n", position)
            end = len(self._text) if newline < 0 else newline + 1
            line = self._text[position:end]
            yield end, len(line) - len(line.lstrip(" ")), line.strip()
            position = end

    def _indents_lists(self, node: Node) -> bool:
        """Whether the lists of a document stand further right than the keys they belong to."""
        waiting = [node]
        while waiting:
            each = waiting.pop(0)
            if isinstance(each, MappingNode):
                for key, value in each.value:
                    if isinstance(value, SequenceNode) and not value.flow_style and value.value:
                        dash = self._column(self._dash(_first(value.value[0])))
                        return dash > int(key.start_mark.column)
                    waiting.append(value)
            elif isinstance(each, SequenceNode):
                waiting.extend(each.value)
        return False


def _is_json(text: str) -> bool:
    try:
        return isinstance(json.loads(text.removeprefix("\ufeff")), dict)
    except (ValueError, RecursionError):
        return False


def _first(entry: Any) -> Node:
    node: Node = entry[0] if isinstance(entry, tuple) else entry
    return node


def _last(entry: Any) -> Node:
    node: Node = entry[1] if isinstance(entry, tuple) else entry
    return node


def _is_block_scalar(node: Node) -> bool:
    return isinstance(node, ScalarNode) and getattr(node, "style", None) in ("|", ">")


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, dict) and isinstance(other, dict):
        named = (one.get(name) is not None and one[name] == other.get(name) for name in _NAMES)
        return bool(one == other) or any(named)
    return bool(one == other)
