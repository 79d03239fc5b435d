"""Which end offsets are asked for, and how often."""

from __future__ import annotations

from typing import cast

from sidecar.kafka.ends import ASK_SECONDS, Ends
from sidecar.model import Assignment, Partition
from sidecar.ports import RecordSource

A, B = Partition("t", 0), Partition("t", 1)


class Source:
    """ends is what fetching tells."""

    def __init__(self) -> None:
        self.told: dict[Partition, int] = {}
        self.asked: list[list[Partition]] = []

    def ends(self, partitions: list[Partition]) -> dict[Partition, int]:
        return {each: self.told[each] for each in partitions if each in self.told}

    def ask_ends(self, partitions: list[Partition]) -> None:
        self.asked.append(partitions)


class Rig:
    def __init__(self) -> None:
        self.now = 0.0
        self.source = Source()
        self.ends = Ends(cast("RecordSource", self.source), lambda: self.now)
        self.owned = {each: Assignment(each, 1) for each in (A, B)}

    def look(self, *paused: Partition, after: float = ASK_SECONDS) -> list[Partition]:
        """What was asked for."""
        self.now += after
        self.source.asked.clear()
        self.ends.look(self.owned, {self.owned[each] for each in paused})
        return [each for asked in self.source.asked for each in asked]

    def stands(self, partition: Partition, at: int, end: int) -> None:
        self.owned[partition].next_offset = at
        self.source.told[partition] = end


def test_nobody_is_asked_about_what_is_read_to_its_end() -> None:
    rig = Rig()
    rig.stands(A, 10, 10)
    rig.stands(B, 7, 9)
    assert rig.look() == []
    rig.stands(B, 9, 9)
    assert rig.look() == []


def test_a_paused_partition_is_asked_for_now_and_then() -> None:
    rig = Rig()
    rig.stands(A, 10, 10)
    rig.stands(B, 10, 10)
    assert rig.look(A) == [A]
    assert rig.look(A, after=1.0) == []
    assert rig.look(A, after=ASK_SECONDS - 1.0) == [A]


def test_one_whose_end_stands_still_above_what_was_read_is_asked_for() -> None:
    """The client has enough of it in its queue, and fetches no more."""
    rig = Rig()
    rig.stands(A, 10, 500)
    assert B in rig.look()  # nothing was told of it yet
    rig.stands(A, 20, 600)
    rig.stands(B, 5, 5)
    assert rig.look() == []
    rig.stands(A, 30, 600)
    assert rig.look() == [A]
