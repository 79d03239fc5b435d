"""The edges of a simulated member, with the judge looking on.

Owner: one Member of tests.fakes.engine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from sidecar.core.retry_mark import RetryMark, marked
from sidecar.model import Assignment, Partition, Record
from sidecar.ports import Message, SourceListener, Story
from tests.fakes.broker import FakeSource, Protocol
from tests.fakes.judge import Broken
from tests.fakes.parking import Done, FakeParking

if TYPE_CHECKING:
    from tests.fakes.engine import Member

TOPIC: Final = "orders"
GROUP: Final = "billing"


class SteppedSource(FakeSource):
    """A source whose poll returns at once: the world decides when time moves."""

    def __init__(self, member: Member, protocol: Protocol) -> None:
        world = member.world
        super().__init__(
            world.broker,
            GROUP,
            [*(member.settings.topics or ()), *(each.name for each in world.retry_topics)],
            protocol=protocol,
            name=member.name,
            clock=member.clock.time,
            wait=self._wait_in_the_world,
        )
        self._of = member
        self._world = world
        self.polls = 0
        self.times_left = 0
        self.last_batch_bytes = 0

    def leave(self) -> None:
        self.times_left += 1
        super().leave()

    def subscribe(self, listener: SourceListener) -> None:
        super().subscribe(RevocationWatch(listener, self._of))

    def poll(self, limit: int, timeout: float) -> list[Message]:
        self.polls += 1
        messages = super().poll(limit, 0.0)
        self._world.judge.commits()
        if messages:
            self.last_batch_bytes = sum(
                len(message.value or b"")
                + sum(len(name) + len(value or b"") for name, value in message.headers or ())
                for message in messages
            )
        for message in messages:
            self._world.judge.handed_over(self.member, message.partition, message.offset)
        return messages

    def commit(self, positions: Mapping[Partition, tuple[int, str]], timeout: float) -> None:
        try:
            super().commit(positions, timeout)
        finally:
            self._world.judge.commits()

    def commit_later(
        self,
        positions: Mapping[Partition, tuple[int, str]],
        done: Callable[[Exception | None], None],
    ) -> None:
        super().commit_later(positions, done)
        self._world.judge.commits()

    def _wait_in_the_world(self, seconds: float) -> None:
        version = self._broker.version
        self._of.clock.wait_for(lambda: self._broker.version != version, seconds)


class JudgedParking(FakeParking):
    """failed: writes that were answered with an error and not repeated so far, and since when."""

    def __init__(self, member: Member) -> None:
        super().__init__(member.clock.call_soon_threadsafe)
        self._world = member.world
        self._judge = member.world.judge
        self._name = member.name
        self._now = member.clock.time
        self.failed: Final[dict[Record, float]] = {}

    def park(self, record: Record, story: Story, done: Done) -> None:
        self._judge.parking(self._name, record, self._now())
        self.failed.pop(record, None)

        def told(error: str | None) -> None:
            if error is None:
                self._judge.was_parked(record)
            else:
                self.failed[record] = self._now()
            done(error)

        super().park(record, story, told)

    def retry(self, record: Record, mark: RetryMark, topic: str, done: Done) -> None:
        self._judge.moving(self._name, record)
        self.failed.pop(record, None)

        def told(error: str | None) -> None:
            if error is None:
                headers = marked(record.original.headers or [], mark)
                self._world.broker.produce(topic, 0, record.value, key=record.key, headers=headers)
                self._judge.was_moved(record)
            else:
                self.failed[record] = self._now()
            done(error)

        super().retry(record, mark, topic, told)


class RevocationWatch:
    """Passes on what a source says; a partition is given up only when nothing of it executes."""

    def __init__(self, listener: SourceListener, member: Member) -> None:
        self._listener = listener
        self._member = member
        self.on_assign = listener.on_assign
        self.on_out_of_range = listener.on_out_of_range
        self.on_trouble = listener.on_trouble

    def on_revoke(self, partitions: Sequence[Partition]) -> None:
        member, began = self._member, self._member.clock.time()
        leaving = self._leaving(partitions)
        self._listener.on_revoke(partitions)
        self._given_up(leaving)
        if member.clock.time() - began > member.world.revoke_seconds * 0.899 or not member.keeps:
            return
        for slot in member.app.executing:
            if slot.record.assignment in leaving:
                raise Broken(f"{slot.record} was still executing when its partition was given up")

    def on_lost(self, partitions: Sequence[Partition]) -> None:
        leaving = self._leaving(partitions)
        self._listener.on_lost(partitions)
        self._given_up(leaving)

    def _leaving(self, partitions: Sequence[Partition]) -> set[Assignment]:
        held = self._member.held
        return {held.pop(partition) for partition in partitions if partition in held}

    def _given_up(self, leaving: set[Assignment]) -> None:
        """From when its loop has heard of it."""
        member = self._member
        member.clock.call_soon_threadsafe(member.world.judge.given_up, leaving)
