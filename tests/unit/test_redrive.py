"""What a redrive chooses, over letters in memory."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Event
from types import SimpleNamespace
from typing import Any, cast

from sidecar.core.done_map import Key
from sidecar.core.letters import Letter, Selection, Told, read_letter
from sidecar.core.redrive_progress import RedriveProgress
from sidecar.kafka.letterbox import Letterbox
from sidecar.kafka.redrive import Redrive
from sidecar.model import RetryTopic


class MemoryBox:
    """Ten letters of one partition, none of them sent."""

    topic = "dead"
    route = SimpleNamespace(name="orders")
    settings = SimpleNamespace(retry_topics=lambda _: (RetryTopic("retry.0s", 0.0),))

    def partitions(self) -> range:
        return range(1)

    def progress(self, partition: int, *, settled: bool = False) -> RedriveProgress:
        return RedriveProgress(Key(self.topic, partition, ""), 10, 0)

    def bounds(self, partition: int) -> tuple[int, int]:
        return 0, 10

    def owns(self, letter: Letter) -> bool:
        return True

    def read(
        self,
        partition: int,
        start: int,
        end: int,
        progress: RedriveProgress,
        stop: Event | None = None,
    ) -> Iterator[Letter]:
        told: list[Any] = [(Told.TOPIC, b"orders"), (Told.PARTITION, b"0"), (Told.OFFSET, b"7")]
        headers = [(name.value, value) for name, value in told]
        for offset in range(start, end):
            yield read_letter(self.topic, partition, offset, 5, None, None, headers)


def test_a_plan_takes_nothing_from_what_may_be_sent_afterwards() -> None:
    """The command line plans before it asks, and then sends: the limit is that of each."""
    redrive = Redrive(cast("Letterbox", MemoryBox()), Selection(), to_origin=True, limit=4)
    assert [redrive.plan().letters for _ in range(2)] == [4, 4]
