"""ports.Parking in memory: topics that refuse, or keep their answers back, on demand."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from sidecar.core.retry_mark import RetryMark, marked
from sidecar.kafka.dead_letters import told_headers
from sidecar.model import Header, Record
from sidecar.ports import Story

Done = Callable[[str | None], None]


class Parked(NamedTuple):
    """A record as it lies in the topic."""

    key: bytes | None
    value: bytes | None
    headers: list[Header]


class Retried(NamedTuple):
    """A record as it lies in a retry topic, and its mark."""

    topic: str
    record: Parked
    mark: RetryMark


class FakeParking:
    """tell runs a function on the loop, later.

    error: what every write is answered with, while it is set. holding: while it is True, writes
    wait for release. stories: what was told, one for each parked record.
    """

    def __init__(self, tell: Callable[..., object], group: str = "group") -> None:
        self._tell = tell
        self._group = group
        self._held: list[tuple[Callable[[], None], Done]] = []
        self.parked: list[Parked] = []
        self.records: list[Record] = []
        self.stories: list[Story] = []
        self.retried: list[Retried] = []
        self.writes = 0
        self.error: str | None = None
        self.holding = False
        self.closed = False

    def park(self, record: Record, story: Story, done: Done) -> None:
        def store() -> None:
            headers = told_headers(record, story, self._group)
            self.parked.append(Parked(record.key, record.value, headers))
            self.records.append(record)
            self.stories.append(story)

        self._take(store, done)

    def retry(self, record: Record, mark: RetryMark, topic: str, done: Done) -> None:
        def store() -> None:
            headers = marked(record.original.headers or [], mark)
            self.retried.append(Retried(topic, Parked(record.key, record.value, headers), mark))

        self._take(store, done)

    def _take(self, store: Callable[[], None], done: Done) -> None:
        self.writes += 1
        if self.closed:
            self._tell(done, "the writer is closed")
        elif self.holding:
            self._held.append((store, done))
        else:
            self._write(store, done)

    def release(self) -> None:
        """Answer what waits, as error says now, and hold nothing further."""
        self.holding = False
        held, self._held = self._held, []
        for each in held:
            self._write(*each)

    async def close(self) -> None:
        self.closed = True
        held, self._held = self._held, []
        for _, done in held:
            self._tell(done, "not confirmed when the producer ended")

    def _write(self, store: Callable[[], None], done: Done) -> None:
        if self.error is None:
            store()
        self._tell(done, self.error)
