"""A broker in memory: topics, logs, groups and their rebalances, deterministic and inspectable.

Purpose: what FakeSource talks to, for component tests on threads and for simulation on one.

Owner: the test. Any thread may call it; no callback runs while its lock is held.

Invariants:
* Nothing here sleeps, starts a thread or draws a random number.
* A rebalance completes when every member has joined it from inside its own poll; until then
  commits of the old generation are accepted, afterwards they are refused.
* Eager members give everything up before they join; cooperative ones join with what they own,
  and what has to move is given up first and handed out in the generation after.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import NamedTuple

from sidecar.errors import CommitFailed, CommitUnknown, SourceError
from sidecar.model import Header, Partition
from sidecar.ports import Committed
from tests.fakes.groups import CommitRecord, Group, Member, Protocol
from tests.fakes.source import FakeSource

__all__ = ["CommitFate", "CommitRecord", "FakeBroker", "FakeSource", "Protocol", "Stored"]


class CommitFate(Enum):
    """What becomes of one commit. The last three raise or report an error."""

    OK = auto()
    REFUSED = auto()  # CommitFailed
    UNKNOWN_APPLIED = auto()  # CommitUnknown, and the offsets are committed
    UNKNOWN_LOST = auto()  # CommitUnknown, and they are not


class Stored(NamedTuple):
    """An entry of a log. Not visible: a transaction marker or a record of an aborted one."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: list[Header] | None
    visible: bool


class Log:
    """One partition: entries by rising offset, the first offset that exists, and the next."""

    def __init__(self) -> None:
        self.entries: list[Stored] = []
        self.start = 0
        self.end = 0

    def append(self, entry: Stored) -> None:
        assert entry.offset >= self.end, f"offset {entry.offset} is taken, next is {self.end}"
        self.entries.append(entry)
        self.end = entry.offset + 1

    def truncate(self, start: int) -> None:
        self.start = start
        self.end = max(self.end, start)
        self.entries = [entry for entry in self.entries if entry.offset >= start]

    def index_of(self, offset: int) -> int:
        """Index of the first entry at or after offset."""
        low, high = 0, len(self.entries)
        while low < high:
            middle = (low + high) // 2
            if self.entries[middle].offset < offset:
                low = middle + 1
            else:
                high = middle
        return low


class Topic:
    def __init__(self, topic_id: str, partitions: int) -> None:
        self.topic_id = topic_id
        self.logs = [Log() for _ in range(partitions)]


class FakeBroker:
    """See the module.

    down: while True no request is answered. commit_delay_seconds delays the answers to
    commit_later, math.inf until release_commits; the commit itself is applied at once.
    fate: asked for each commit; by default takes the next of scripted_fates, else OK.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.version = 0
        self.topics: dict[str, Topic] = {}
        self.groups: dict[str, Group] = {}
        self.commit_delay_seconds = 0.0
        self.commits_released = 0
        self.scripted_fates: deque[CommitFate] = deque()
        self.fate: Callable[[], CommitFate] = self._next_fate
        self._down = False
        self._topics_made = 0

    # --- topics -------------------------------------------------------------------------------

    def create_topic(self, name: str, partitions: int = 1) -> str:
        """Make the topic, a new one if there was one of that name; its id."""
        with self.lock:
            self._topics_made += 1
            self.topics[name] = Topic(f"topic-{self._topics_made}", partitions)
            self._topics_changed(name)
            return self.topics[name].topic_id

    def delete_topic(self, name: str) -> None:
        """With what groups have committed for it."""
        with self.lock:
            del self.topics[name]
            for group in self.groups.values():
                for partition in [each for each in group.offsets if each.topic == name]:
                    del group.offsets[partition]
            self._topics_changed(name)

    def add_partitions(self, name: str, count: int) -> None:
        with self.lock:
            self.topics[name].logs += [Log() for _ in range(count)]
            self._topics_changed(name)

    def produce(
        self,
        topic: str,
        partition: int = 0,
        value: bytes | None = b"",
        *,
        key: bytes | None = None,
        headers: list[Header] | None = None,
        offset: int | None = None,
        timestamp_ms: int = -1,
        visible: bool = True,
    ) -> int:
        """Append a record; its offset. An offset above the end leaves a hole.

        visible=False: a record of an aborted transaction, which no consumer sees.
        """
        with self.lock:
            log = self.topics[topic].logs[partition]
            at = log.end if offset is None else offset
            log.append(Stored(at, timestamp_ms, key, value, headers, visible))
            self.notify()
            return at

    def end_transaction(self, topic: str, partition: int = 0) -> int:
        """Append a transaction marker; its offset."""
        return self.produce(topic, partition, None, visible=False)

    def truncate(self, topic: str, partition: int, start: int) -> None:
        """Retention: the log begins at start from now on."""
        with self.lock:
            self.topics[topic].logs[partition].truncate(start)
            self.notify()

    def log(self, partition: Partition) -> Log | None:
        topic = self.topics.get(partition.topic)
        if topic is None or partition.number >= len(topic.logs):
            return None
        return topic.logs[partition.number]

    def partitions(self) -> list[Partition]:
        return [
            Partition(name, number)
            for name, topic in self.topics.items()
            for number in range(len(topic.logs))
        ]

    # --- faults -------------------------------------------------------------------------------

    @property
    def down(self) -> bool:
        return self._down

    @down.setter
    def down(self, down: bool) -> None:
        with self.lock:
            self._down = down
            self.notify()

    def release_commits(self) -> None:
        """The answers that are being delayed may come now."""
        with self.lock:
            self.commits_released += 1
            self.notify()

    def expel(self, group: str, member: str) -> None:
        """The member's session ends: it has lost everything and learns so at its next poll."""
        with self.lock:
            self.leave(self.groups[group], member)

    # --- groups -------------------------------------------------------------------------------

    def committed(self, group: str, topic: str, partition: int = 0) -> Committed:
        """For assertions: what the group has committed."""
        with self.lock:
            nothing = Committed(None, "")
            known = self.groups.get(group)
            return known.offsets.get(Partition(topic, partition), nothing) if known else nothing

    def group(self, name: str, protocol: Protocol = Protocol.EAGER) -> Group:
        with self.lock:
            return self.groups.setdefault(name, Group(name, protocol))

    def enter(self, group: Group, member: Member) -> None:
        with self.lock:
            member.generation = 0
            member.owned = set()
            group.members[member.name] = member
            group.rebalance()
            self.notify()

    def leave(self, group: Group, member: str) -> None:
        with self.lock:
            if group.members.pop(member, None) is not None:
                group.rebalance()
            self.notify()

    def join(self, group: Group, member: Member) -> None:
        with self.lock:
            group.join(member, self.partitions())
            self.notify()

    def rejoin(self, group: Group) -> None:
        with self.lock:
            group.rebalance()
            self.notify()

    def apply_commit(
        self, group: Group, member: Member, positions: Mapping[Partition, tuple[int, str]]
    ) -> SourceError | None:
        """Do to the commit what its fate is; the error it is answered with."""
        with self.lock:
            if group.members.get(member.name) is not member:
                return CommitFailed(f"{member.name} is not in the group")
            if member.generation != group.generation:
                return CommitFailed(f"generation {member.generation} is over")
            unknown = [each for each in positions if self.log(each) is None]
            if unknown:
                return CommitFailed(f"no such partition: {unknown[0]}")
            fate = self.fate()
            if fate is CommitFate.REFUSED:
                return CommitFailed("refused by the test")
            if fate is not CommitFate.UNKNOWN_LOST:
                for each, (offset, metadata) in positions.items():
                    group.offsets[each] = Committed(offset, metadata)
                    group.history.append(
                        CommitRecord(each, offset, metadata, member.name, member.generation)
                    )
                self.notify()
            return None if fate is CommitFate.OK else CommitUnknown("no answer, says the test")

    # --- waiting ------------------------------------------------------------------------------

    def notify(self) -> None:
        with self.lock:
            self.version += 1
            self.changed.notify_all()

    def wait_for_change(self, version: int, timeout: float) -> None:
        """Until anything has changed since that version."""
        with self.lock:
            self.changed.wait_for(lambda: self.version != version, timeout)

    def _next_fate(self) -> CommitFate:
        return self.scripted_fates.popleft() if self.scripted_fates else CommitFate.OK

    def _topics_changed(self, name: str) -> None:
        for group in self.groups.values():
            if any(member.subscribes(name) for member in group.members.values()):
                group.rebalance()
        self.notify()
