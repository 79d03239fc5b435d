"""ports.Parking in memory: a topic that refuses, or keeps its answers back, on demand."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from sidecar.kafka.dead_letters import told_headers
from sidecar.model import Header, Record
from sidecar.ports import Story

Done = Callable[[str | None], None]


class Parked(NamedTuple):
    """A record as it lies in the topic."""

    key: bytes | None
    value: bytes | None
    headers: list[Header]


class FakeParking:
    """tell runs a function on the loop, later.

    error: what every write is answered with, while it is set. holding: while it is True, writes
    wait for release. stories: what was told, one for each parked record.
    """

    def __init__(self, tell: Callable[..., object], group: str = "group") -> None:
        self._tell = tell
        self._group = group
        self._held: list[tuple[Record, Story, Done]] = []
        self.parked: list[Parked] = []
        self.records: list[Record] = []
        self.stories: list[Story] = []
        self.writes = 0
        self.error: str | None = None
        self.holding = False
        self.closed = False

    def park(self, record: Record, story: Story, done: Done) -> None:
        self.writes += 1
        if self.closed:
            self._tell(done, "the writer is closed")
        elif self.holding:
            self._held.append((record, story, done))
        else:
            self._write(record, story, done)

    def release(self) -> None:
        """Answer what waits, as error says now, and hold nothing further."""
        self.holding = False
        held, self._held = self._held, []
        for each in held:
            self._write(*each)

    async def close(self) -> None:
        self.closed = True
        held, self._held = self._held, []
        for _, _, done in held:
            self._tell(done, "not confirmed when the producer ended")

    def _write(self, record: Record, story: Story, done: Done) -> None:
        if self.error is None:
            headers = told_headers(record, story, self._group)
            self.parked.append(Parked(record.key, record.value, headers))
            self.records.append(record)
            self.stories.append(story)
        self._tell(done, self.error)
