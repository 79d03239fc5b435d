"""The fetcher's own decisions about how long to wait, with a source that notes what it is asked."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import cast

from sidecar.core.commands import Clear, Command
from sidecar.core.places import Places
from sidecar.kafka.fetcher import POLL_SECONDS, Fetcher
from sidecar.model import Partition
from sidecar.ports import FetchSink, Message, RecordSource

PARTITION = Partition("t", 0)


class NotingSource:
    """Gives one message a poll, while there are any, and notes the timeouts."""

    def __init__(self, count: int, size: int = 1) -> None:
        self.left = [Message(PARTITION, n, -1, None, b"x" * size, None) for n in range(count)]
        self.timeouts: list[float] = []

    def poll(self, limit: int, timeout: float) -> list[Message]:
        self.timeouts.append(timeout)
        taken, self.left = self.left[:1], self.left[1:]
        return taken

    def positions(self, partitions: Sequence[Partition]) -> dict[Partition, int]:
        return {}

    def ends(self, partitions: Sequence[Partition]) -> dict[Partition, int]:
        return {}

    def ask_ends(self, partitions: Sequence[Partition]) -> None:
        pass

    def commit(self, positions: Mapping[Partition, tuple[int, str]], timeout: float) -> None:
        pass


class ListMailbox:
    def __init__(self) -> None:
        self.commands: deque[Command] = deque()
        self.waits: list[float] = []

    def post(self, command: Command) -> None:
        self.commands.append(command)

    def receive(self, timeout: float) -> Command | None:
        if timeout:
            self.waits.append(timeout)
        return self.commands.popleft() if self.commands else None


class Quiet:
    def __getattr__(self, _: str) -> object:
        return lambda *_: None


def rig(source: NotingSource, places: Places, *, clears: bool) -> tuple[Fetcher, ListMailbox]:
    mailbox = ListMailbox()
    fetcher = Fetcher(
        source=cast("RecordSource", source),
        sink=cast("FetchSink", Quiet()),
        tell=lambda *_: None,
        mailbox=mailbox,
        places=places,
        clock=lambda: 1.0,
        revoke_seconds=1.0,
        clears_before_dispatch=clears,
    )
    fetcher._adopt(PARTITION, 0)
    return fetcher, mailbox


def test_a_batch_that_waits_for_its_commit_is_not_waited_for_in_the_client() -> None:
    """The answer to the first of two batches is not the answer to the second."""
    source = NotingSource(2)
    fetcher, mailbox = rig(source, Places(100, 1000), clears=True)
    fetcher.step()
    fetcher.step()
    mailbox.post(Clear((), more=False, batches=1))
    fetcher.step()
    mailbox.post(Clear((), more=False, batches=2))
    fetcher.step()
    assert source.timeouts == [POLL_SECONDS, 0.0, 0.0, POLL_SECONDS]


def test_a_wake_up_is_asked_for_where_bytes_are_scarce() -> None:
    """Large records: the places left are those that their bytes leave."""
    source = NotingSource(8, size=100)
    places = Places(1000, 800)
    fetcher, mailbox = rig(source, places, clears=False)
    wanted: list[int] = []
    receive = mailbox.receive

    def noting(timeout: float) -> Command | None:
        if timeout:
            wanted.append(places.wake_at - places.freed)
        return receive(timeout)

    mailbox.receive = noting  # type: ignore[method-assign]
    for _ in range(9):
        fetcher.step()
    assert places.in_flight == 8
    assert wanted == [1]
