"""Which letters of one partition of a dead-letter topic have been sent back: each at most once.

Pure. Filters pick letters anywhere, so the progress is no single offset. It is what a commit with
a done-map says (core/done_map): the offset is that of the first letter that is left, or of the last
one sent where none is left before it, and the map says which others behind it are left.

Here the map is no hint. A map that would have to be cut is not written (NoRoom), and one that
cannot be read is no progress at all (Unreadable). Where there is only an offset, as an operator
sets it, what lies before it counts as sent and nothing behind it.
"""

from __future__ import annotations

from typing import Final

from sidecar.core.done_map import MAX_CHARACTERS, DoneMap, Key, decode, encode


class NoRoom(Exception):
    """What is left between the letters sent no longer fits; left: so many, before offset."""

    def __init__(self, left: int, offset: int) -> None:
        self.left = left
        self.offset = offset
        super().__init__(f"{left} letters before {offset} are left")


class Unreadable(Exception):
    """The metadata was written for another topic of this name, or by something else."""


class RedriveProgress:
    """The letters of one partition that were sent and those that were left, by offset."""

    __slots__ = ("_base", "_highest", "_key", "_left", "known")

    def __init__(self, key: Key, end: int, committed: int | None, metadata: str = "") -> None:
        """committed and metadata as read from the broker; None: nothing was ever sent.

        end: of the partition. Raises Unreadable.
        """
        base = committed or 0
        done: DoneMap | None = DoneMap(base - 1, frozenset())
        if metadata:
            done = decode(metadata, key, base)
        if done is None or base > end:
            raise Unreadable(metadata)
        self.known: Final = committed is not None  # False also where it has been forgotten
        self._key = key
        self._base = base
        self._highest = done.highest
        self._left = set(done.outstanding)

    @property
    def start(self) -> int:
        """Nothing before this offset is left."""
        return self._base

    def is_sent(self, offset: int) -> bool:
        return offset <= self._highest and offset not in self._left

    def leave(self, offset: int) -> None:
        """A letter that was looked at and not sent."""
        self._left.add(offset)

    def send(self, offset: int) -> None:
        self._left.discard(offset)
        self._highest = max(self._highest, offset)

    def forget_before(self, offset: int) -> None:
        """What the topic no longer holds is not left: it needs no room."""
        self._left = {each for each in self._left if each >= offset}

    def position(self) -> tuple[int, str]:
        """What to commit: offset and metadata. Raises NoRoom."""
        left = sorted(each for each in self._left if each <= self._highest)
        # The last one sent serves as base where none is left: a map, and with it the topic's id,
        # is always there, so that a topic made anew is not taken for this one.
        base = left[0] if left else self._highest
        text, described = encode(self._key, base, left, self._highest)
        if described < self._highest or len(text) > MAX_CHARACTERS:
            raise NoRoom(len(left), self._highest)
        return base, text
