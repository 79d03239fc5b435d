"""The groups of FakeBroker: members, generations, who owns what, committed offsets.

Purpose: the coordinator's side of a rebalance. Plain state; the broker's lock guards it.

Invariants: see tests.fakes.broker.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import NamedTuple

from sidecar.model import Partition
from sidecar.ports import Committed


class Protocol(Enum):
    EAGER = "eager"
    COOPERATIVE = "cooperative"


class CommitRecord(NamedTuple):
    """A commit that was applied."""

    partition: Partition
    offset: int
    metadata: str
    member: str
    generation: int


class Member:
    """What the group knows of one source. Guarded by the broker's lock."""

    def __init__(self, name: str, subscribes: Callable[[str], bool]) -> None:
        self.name = name
        self.subscribes = subscribes
        self.owned: set[Partition] = set()
        self.granted: set[Partition] = set()
        self.target: set[Partition] = set()
        self.generation = 0


class Group:
    """The members, generation and offsets of a group. Guarded by the broker's lock."""

    def __init__(self, name: str, protocol: Protocol) -> None:
        self.name = name
        self.protocol = protocol
        self.generation = 0
        self.rebalancing = False
        self.members: dict[str, Member] = {}
        self.joined: set[str] = set()
        self.offsets: dict[Partition, Committed] = {}
        self.history: list[CommitRecord] = []

    def rebalance(self) -> None:
        self.rebalancing = bool(self.members)
        self.joined.clear()

    def join(self, member: Member, partitions: Iterable[Partition]) -> None:
        """The member takes part in the rebalance; the last one completes it."""
        self.joined.add(member.name)
        if self.joined < self.members.keys():
            return
        self.rebalancing = False
        self.generation += 1
        self._distribute(sorted(partitions))
        held = {each: one.name for one in self.members.values() for each in one.owned}
        for one in self.members.values():
            one.granted = {each for each in one.target if held.get(each, one.name) == one.name}

    def _distribute(self, partitions: Sequence[Partition]) -> None:
        """Evenly, leaving with its owner what can stay; ties go to who joined first."""
        members = sorted(self.members.values(), key=lambda one: -len(one.owned))
        wanted = {each for each in partitions if any(one.subscribes(each.topic) for one in members)}
        least, more = divmod(len(wanted), len(members))
        free = set(wanted)
        quotas: dict[str, int] = {}
        for index, one in enumerate(members):
            quotas[one.name] = least + (index < more)
            stay = [each for each in sorted(one.owned & free) if one.subscribes(each.topic)]
            one.target = set(stay[: quotas[one.name]])
            free -= one.target
        for each in sorted(free):
            takers = [one for one in members if one.subscribes(each.topic)]
            taker = min(takers, key=lambda one: len(one.target) - quotas[one.name])
            taker.target.add(each)


def subscription(topics: Sequence[str] | None, pattern: str | None) -> Callable[[str], bool]:
    """Whether a topic belongs to the subscription."""
    names = frozenset(topics or ())
    matcher = re.compile(pattern) if pattern else None
    return lambda name: name in names or (matcher is not None and bool(matcher.match(name)))
