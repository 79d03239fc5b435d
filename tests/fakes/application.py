"""The application beside a member, and the way to it, by a script on the simulated clock.

Purpose: ports.Delivery and ports.Slot whose answers are a function of (request), after a latency;
the application can be down, hang, and remembers every request.

Owner: the test. One thread; nothing here draws a random number.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

from sidecar.model import Answer, Failed, FailureKind, Partition, Record, Result
from sidecar.ports import Scheduler, Timer

REFUSED_SECONDS: Final = 0.001
RESET: Final = Failed(FailureKind.BROKEN, "reset by peer")
RESET_WITH_OTHERS: Final = Failed(FailureKind.BROKEN, "reset by peer, others as well")


class Request(NamedTuple):
    """What the application saw: the original record; attempt is what the sidecar told it."""

    at: float
    member: str
    partition: Partition
    offset: int
    attempt: int
    value: bytes | None


class Reply(NamedTuple):
    """What comes back, and after how long; without a result it hangs."""

    seconds: float
    result: Result | None


Behaviour = Callable[[Request], Reply]


def answer(status: int = 204, seconds: float = 0.01, retry_after: str | None = None) -> Reply:
    return Reply(seconds, Answer(status, retry_after))


def broken(seconds: float = 0.01) -> Reply:
    return Reply(seconds, RESET)


HANG: Final = Reply(0.0, None)
UNSENT: Final = Reply(-1.0, None)  # the connection is never made, and never refused


def is_success(result: Result) -> bool:
    return isinstance(result, Answer) and 200 <= result.status < 300


class Watch(Protocol):
    """Who looks on: called at the moment it happens, before the engine learns of it."""

    def sent(self, member: str, record: Record, attempt: int) -> None: ...

    def answered(self, member: str, record: Record, attempt: int, result: Result) -> None: ...

    def aborted(self, member: str, record: Record, seconds: float, *, reached: bool) -> None: ...


class FakeApp:
    """See the module. up=False: connections are refused."""

    def __init__(
        self, scheduler: Scheduler, behaviour: Behaviour, member: str, watch: Watch
    ) -> None:
        self.scheduler: Final = scheduler
        self.behaviour = behaviour
        self.member: Final = member
        self.watch: Final = watch
        self.up = True
        self.noticed = True  # somebody was refused since it died
        self.half_open = 0  # of its connections that are used again before their end is seen
        self.probes = 0  # under way
        self.names_failures = True  # in the answer to a batch; else it fails as a whole
        self.batches: list[list[int]] = []  # the offsets of each
        self.requests: list[Request] = []
        self.executing: dict[FakeSlot, None] = {}  # in the order of their requests

    def die(self, back_after: float | None = None) -> None:
        """Every connection breaks, and new ones are refused until it is back.

        back_after: seconds, and then as soon as somebody was refused.
        """
        self.up = self.noticed = False
        records = sum(slot.size for slot in self.executing)
        for slot in list(self.executing):
            slot.break_soon(RESET if records == 1 else RESET_WITH_OTHERS)
        if back_after is not None:
            self.scheduler.call_later(back_after, self._come_back)

    def accept(self) -> None:
        """Refuse no more; after it died, not before somebody was refused."""
        self.up = self.up or self.noticed

    def _come_back(self) -> None:
        if self.noticed:
            self.up = True
        else:
            self.scheduler.call_later(0.1, self._come_back)


class FakeSlot:
    def __init__(self, app: FakeApp) -> None:
        self._app = app
        self._running: tuple[Sequence[tuple[Record, int]], Callable[[Result], None]] | None = None
        self._told: Sequence[Result] = ()  # what the answer says of each record, if not one thing
        self._timer: Timer | None = None
        self.sent_at = 0.0
        self._reached = True  # the application, at least by a byte
        self._closed = False

    @property
    def record(self) -> Record:
        assert self._running is not None
        return self._running[0][0][0]

    def send(self, record: Record, attempt: int, done: Callable[[Result], None]) -> None:
        self._send([(record, attempt)], done, self._reply_to_one)

    def send_batch(
        self, batch: Sequence[tuple[Record, int]], done: Callable[[Result], None]
    ) -> None:
        assert len({record.original.topic for record, _ in batch}) == 1, "a batch is of one topic"
        self._app.batches.append([record.offset for record, _ in batch])
        self._send(batch, done, self._reply_to_all)

    def reply(self, result: Result | None) -> None:
        """Answer a request that hangs."""
        assert result is not None
        self._answer(result)

    @property
    def size(self) -> int:
        """How many records its request carries."""
        assert self._running is not None
        return len(self._running[0])

    def break_soon(self, reset: Failed) -> None:
        """The connection of the running request is reset."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._app.scheduler.call_later(REFUSED_SECONDS, self._answer, reset)

    def abort(self) -> bool:
        assert self._running is not None, "nothing to abort"
        if self._timer is not None:
            self._timer.cancel()
        app, batch = self._app, self._running[0]
        self._end()
        seconds = app.scheduler.time() - self.sent_at
        for record, _ in batch:
            app.watch.aborted(app.member, record, seconds, reached=self._reached)
        return self._reached

    def _send(
        self,
        batch: Sequence[tuple[Record, int]],
        done: Callable[[Result], None],
        reply: Callable[[Sequence[Reply]], Reply],
    ) -> None:
        app = self._app
        assert not self._closed, "a request on a closed connection"
        assert self._running is None, "two requests at once"
        self._running = (batch, done)
        self._told = ()
        self._reached = True
        self.sent_at = app.scheduler.time()
        app.executing[self] = None
        for record, attempt in batch:
            app.watch.sent(app.member, record, attempt)
        if not app.up and app.half_open:
            app.half_open -= 1
            self._timer = app.scheduler.call_later(REFUSED_SECONDS, self._answer, RESET)
            return
        if not app.up:
            app.noticed = True
            refused = Failed(FailureKind.UNREACHABLE, "connection refused", sent=False)
            self._timer = app.scheduler.call_later(REFUSED_SECONDS, self._answer, refused)
            return
        requests = [
            Request(
                self.sent_at,
                app.member,
                record.original.assignment.partition,
                record.original.offset,
                attempt + record.attempts,
                record.value,
            )
            for record, attempt in batch
        ]
        app.requests += requests
        replies = [app.behaviour(request) for request in requests]
        if UNSENT in replies and self._timer is None:
            self._reached = False
            del app.requests[-len(requests) :]
            return
        seconds, result = reply(replies)
        if self._timer is not None:  # one of them was too much for it, and this has its result
            return
        if result is not None:
            self._timer = app.scheduler.call_later(seconds, self._answer, result)

    def _reply_to_one(self, replies: Sequence[Reply]) -> Reply:
        return replies[0]

    def _reply_to_all(self, replies: Sequence[Reply]) -> Reply:
        """It hangs if one record makes it hang; it names what fails, or fails as a whole."""
        seconds = max(reply.seconds for reply in replies)
        results = [reply.result for reply in replies if reply.result is not None]
        if len(results) < len(replies):
            return HANG
        failed = [result for result in results if not is_success(result)]
        if not failed:
            return Reply(seconds, results[0])
        if not self._app.names_failures or not all(isinstance(each, Answer) for each in failed):
            return Reply(seconds, failed[0])
        self._told = results
        named = [
            {"index": index, "status": each.status, "retry_after": each.retry_after}
            for index, each in enumerate(results)
            if isinstance(each, Answer) and not is_success(each)
        ]
        return Reply(seconds, Answer(200, None, json.dumps({"failures": named}).encode()))

    def close(self) -> None:
        assert self._running is None, "closed under a request"
        self._closed = True

    def _answer(self, result: Result) -> None:
        assert self._running is not None
        batch, done = self._running
        # What a reset took away names nobody.
        told = self._told if self._told and isinstance(result, Answer) else [result] * len(batch)
        self._end()
        for (record, attempt), each in zip(batch, told, strict=True):
            self._app.watch.answered(self._app.member, record, attempt, each)
        done(result)

    def _end(self) -> None:
        self._running = self._timer = None
        del self._app.executing[self]


class FakeDelivery:
    def __init__(self, app: FakeApp) -> None:
        self._app = app

    def open_slot(self) -> FakeSlot:
        return FakeSlot(self._app)

    def probe(self, done: Callable[[str | None], None]) -> None:
        self._app.probes += 1
        self._app.scheduler.call_later(REFUSED_SECONDS, self._probed, done)

    def _probed(self, done: Callable[[str | None], None]) -> None:
        self._app.probes -= 1
        self._app.noticed = self._app.noticed or not self._app.up
        done(None if self._app.up else "connection refused")

    async def close(self) -> None:
        pass
