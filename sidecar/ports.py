"""The seams between the stages. Each is implemented once for real and once for tests.

* RecordSource: a member of a Kafka group, used by the fetch thread alone.
* FetchSink: what the fetch thread tells a route; called on the event loop.
* Delivery and Slot: a record goes to the application and a result comes back.
* Parking: a record is written to a dead-letter or retry topic and the broker confirms it.
* Scheduler: time and timers; an asyncio loop is one, the simulated clock is another.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from sidecar.core.commands import Command
from sidecar.core.retry_mark import RetryMark
from sidecar.model import Assignment, Header, Partition, Position, Record, Result, Start


class Timer(Protocol):
    def cancel(self) -> None: ...


class Scheduler(Protocol):
    """Monotonic time in seconds, and callbacks that run on the event loop."""

    def time(self) -> float: ...

    def call_at(self, when: float, callback: Callable[..., object], *args: Any) -> Timer: ...

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any) -> Timer: ...

    def call_soon(self, callback: Callable[..., object], *args: Any) -> object: ...

    def call_soon_threadsafe(self, callback: Callable[..., object], *args: Any) -> object: ...


# --- fetch ------------------------------------------------------------------------------------


class Message(NamedTuple):
    """One message as the source gives it; it has no epoch yet. timestamp_ms -1 means none."""

    partition: Partition
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: list[Header] | None


class Committed(NamedTuple):
    """offset is None where the group has committed none."""

    offset: int | None
    metadata: str


class SourceListener(Protocol):
    """Called by the source from inside poll or close, on the source's own thread.

    Every callback finishes its work before it returns.
    """

    def on_assign(self, partitions: Sequence[Partition]) -> None:
        """New partitions; must call source.assign for exactly these before it returns."""

    def on_revoke(self, partitions: Sequence[Partition]) -> None:
        """Partitions to give up; commits are still accepted inside this callback."""

    def on_lost(self, partitions: Sequence[Partition]) -> None:
        """Partitions that others may own by now; nothing can be committed for them."""

    def on_out_of_range(self, partition: Partition, reason: str) -> None:
        """The position no longer exists on the broker; must call source.seek."""

    def on_trouble(self, description: str) -> None:
        """The client reports a passing problem (broker unreachable ...) in one line."""


class RecordSource(Protocol):
    """A member of a consumer group.

    One thread calls everything. Methods raise SourceError (CommitFailed, CommitUnknown,
    FatalSource); offsets are next-to-read offsets everywhere.
    """

    def subscribe(self, listener: SourceListener) -> None:
        """Join the group for the topics the source was made for."""

    def leave(self) -> None:
        """Leave the group, a static member, too; polls to come give all partitions up.

        Not inside a callback. poll gives nothing until rejoin, and must be called as before.
        """

    def rejoin(self) -> None:
        """Join the group again, once everything was given up. Not inside a callback."""

    def renew(self) -> None:
        """Make the client anew, of what its files say now; after leave, with nothing owned.

        It is in no group until rejoin. Not inside a callback.
        """

    def poll(self, limit: int, timeout: float) -> list[Message]:
        """Up to limit messages; waits at most timeout seconds for the first, serves callbacks.

        limit is at least 1. Returns at once with what is there when there is anything.
        A fatal client error raises FatalSource.
        """

    def assign(self, starts: Mapping[Partition, int | None]) -> None:
        """Inside on_assign: take these partitions at these offsets (None: as committed)."""

    def pause(self, partitions: Sequence[Partition]) -> None:
        """Stop messages of these partitions; poll returns none of theirs afterwards."""

    def resume(self, partitions: Sequence[Partition]) -> None: ...

    def seek(self, partition: Partition, offset: int) -> None: ...

    def positions(self, partitions: Sequence[Partition]) -> dict[Partition, int]:
        """The next offset to be returned by poll; past transaction markers. Absent: unknown."""

    def committed(
        self, partitions: Sequence[Partition], timeout: float
    ) -> dict[Partition, Committed]: ...

    def watermarks(self, partition: Partition, timeout: float) -> tuple[int, int]:
        """First offset that exists and the end offset of the partition."""

    def ends(self, partitions: Sequence[Partition]) -> dict[Partition, int]:
        """End offsets as last heard of, with a fetch or by ask_ends; waits for nobody.

        Absent: not heard of yet.
        """

    def ask_ends(self, partitions: Sequence[Partition]) -> None:
        """Have the end offsets of these asked for; ends tells them later. Not in a callback."""

    def group_knows(self, topic: str, timeout: float) -> bool:
        """True if the group has a committed offset for any partition of the topic."""

    def topic_ids(self, topics: Collection[str], timeout: float) -> dict[str, str]:
        """The broker's ids of the topics, absent where it gives none. A hint: never raises."""

    def commit(self, positions: Mapping[Partition, tuple[int, str]], timeout: float) -> None:
        """Commit (offset, metadata) and wait for the broker's answer."""

    def commit_later(
        self,
        positions: Mapping[Partition, tuple[int, str]],
        done: Callable[[Exception | None], None],
    ) -> None:
        """Commit without waiting; done is called from poll with None or the error."""

    def commit_pending(self) -> bool:
        """Whether a commit that nobody has answered yet may still reach the broker."""

    def close(self) -> None:
        """Leave the group; on_revoke may be called from inside."""


class CommitResult(NamedTuple):
    """What became of a commit.

    applied: positions that are committed for certain. unknown: positions that will never be
    known, because the partition left before the broker told. All others are not committed.
    """

    applied: Sequence[Position]
    error: Exception | None = None
    unknown: Sequence[Position] = ()


class FetchSink(Protocol):
    """What a fetcher tells its route. Called on the event loop, in the order it was said."""

    def assigned(self, starts: Sequence[Start]) -> None: ...

    def received(self, records: list[Record]) -> None: ...

    def positions(self, positions: Mapping[Assignment, int]) -> None:
        """The consumer's positions, after everything received before was handed over."""

    def revoke(self, request: int, assignments: Sequence[Assignment], timeout: float) -> None:
        """Finish or drop what belongs to these and answer with Revoked within timeout seconds."""

    def lost(self, assignments: Sequence[Assignment]) -> None: ...

    def commit_done(self, result: CommitResult) -> None: ...

    def out_of_range(self, assignment: Assignment, offset: int, reason: str) -> None:
        """The position did not exist any more; the fetcher reads on at offset."""

    def fetch_trouble(self, description: str) -> None: ...

    def ended(self, error: BaseException | None) -> None:
        """The fetch thread is over; error is None after a clean close."""


class Mailbox(Protocol):
    """The way from a route to its fetch thread."""

    def post(self, command: Command) -> None:
        """Any thread; never blocks."""

    def receive(self, timeout: float) -> Command | None:
        """The next command, waiting up to timeout seconds for it; the fetch thread only."""


# --- delivery ---------------------------------------------------------------------------------


class Slot(Protocol):
    """One executor's way to the application: at most one request at a time."""

    def send(self, record: Record, attempt: int, done: Callable[[Result], None]) -> None:
        """Send the record as one POST; done is called once, never before send has returned.

        attempt is 1 for the first since the record was fetched; those that a record of a retry
        topic brought along are added to it. The caller owns the deadline: it calls abort.
        """

    def send_batch(
        self, batch: Sequence[tuple[Record, int]], done: Callable[[Result], None]
    ) -> None:
        """Send records of one original topic, each with its attempt, as one POST; else as send."""

    def abort(self) -> bool:
        """Give the running request up: its connection is closed and done is not called.

        Returns False only if certainly no byte of the request reached the application.
        """

    def close(self) -> None:
        """Close the connection; no request may be running."""


class Delivery(Protocol):
    """The way to one target. Belongs to the event loop."""

    def open_slot(self) -> Slot: ...

    def probe(self, done: Callable[[str | None], None]) -> None:
        """Try whether the application can be reached: done(None) if so, else done(reason).

        done is called within timeout_seconds or 5 s, whichever is less.
        """

    async def close(self) -> None: ...


# --- parking ----------------------------------------------------------------------------------


class Story(NamedTuple):
    """What a parked record's headers tell about it. Times are Unix seconds."""

    reason: str
    detail: str
    status: int | None
    attempts: int
    first_attempt_at: float
    last_attempt_at: float
    answer: bytes


class Parking(Protocol):
    """Writes records to the dead-letter topic and to retry topics, in their original form.

    done(None) is called on the loop once the broker confirmed the write, else done(error). The
    caller retries: one call is one write.
    """

    def park(self, record: Record, story: Story, done: Callable[[str | None], None]) -> None:
        """Write the record to the dead-letter topic."""

    def retry(
        self, record: Record, mark: RetryMark, topic: str, done: Callable[[str | None], None]
    ) -> None:
        """Write the record to a retry topic, with the mark."""

    async def close(self) -> None: ...
