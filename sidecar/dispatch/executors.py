"""The executors of a route: concurrent delivery slots whose number changes at run time.

Owner: one route, on the loop. An executor that finishes takes the next record in the same
callback; an idle one waits on a stack, so that the connections used last are used first.

Invariants:
* No more start than are effective: those wanted, or fewer while a limit holds.
* Shrinking never cancels a request: an executor too many ends after the one it holds.
* An attempt ends at its deadline, whatever the application does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, Generic, TypeVar

from sidecar.core.ledger import InFlight
from sidecar.model import Failed, FailureKind, Result
from sidecar.ports import Delivery, Scheduler, Slot, Timer

Work = TypeVar("Work")  # what one request carries


class Executor(Generic[Work]):
    """One slot, and what it executes; how that is sent is told by the subclasses."""

    __slots__ = ("_finish", "slot", "started_at", "work")

    def __init__(self, pool: ExecutorPool[Work], slot: Slot) -> None:
        self._finish: Final = partial(pool.finished, self)
        self.slot = slot
        self.work: Work | None = None
        self.started_at = 0.0

    @property
    def entries(self) -> Sequence[InFlight]:
        """The records it holds."""
        raise NotImplementedError

    def start(self, work: Work, now: float) -> None:
        raise NotImplementedError


class RecordExecutor(Executor[InFlight]):
    """A record, a request."""

    __slots__ = ()

    @property
    def entries(self) -> Sequence[InFlight]:
        return () if self.work is None else (self.work,)

    def start(self, work: InFlight, now: float) -> None:
        self.work = work
        self.started_at = now
        tries = work.tries = work.tries + 1
        if tries == 1:
            work.first_try_at = now
        self.slot.send(work.record, tries, self._finish)


class BatchExecutor(Executor[Sequence[InFlight]]):
    """Several records, a request."""

    __slots__ = ()

    @property
    def entries(self) -> Sequence[InFlight]:
        return self.work or ()

    def start(self, work: Sequence[InFlight], now: float) -> None:
        self.work = work
        self.started_at = now
        for entry in work:
            entry.tries += 1
            if entry.tries == 1:
                entry.first_try_at = now
        self.slot.send_batch([(entry.record, entry.tries) for entry in work], self._finish)


class ExecutorPool(Generic[Work]):
    """executor is the kind of executors; take gives what one of them is to send next, or None;
    finished is told what an attempt came to, when it began and what time it is now.
    """

    __slots__ = (
        "_all",
        "_deadline_timer",
        "_delivery",
        "_executor",
        "_finished",
        "_idle",
        "_limit",
        "_scheduler",
        "_tick_seconds",
        "_time",
        "_timeout_seconds",
        "busy",
        "effective",
        "take",
        "wanted",
    )

    def __init__(
        self,
        scheduler: Scheduler,
        delivery: Delivery,
        timeout_seconds: float,
        executor: Callable[[ExecutorPool[Work], Slot], Executor[Work]],
        take: Callable[[], Work | None],
        finished: Callable[[Work, Result, float, float], None],
    ) -> None:
        self._scheduler = scheduler
        self._time = scheduler.time
        self._delivery = delivery
        self._timeout_seconds = timeout_seconds
        self._tick_seconds = min(0.1, timeout_seconds / 10)
        self._executor = executor
        self.take = take
        self._finished = finished
        self._all: set[Executor[Work]] = set()
        self._idle: list[Executor[Work]] = []
        self._deadline_timer: Timer | None = None
        self._limit: int | None = None
        self.wanted = 0
        self.effective = 0
        self.busy = 0

    @property
    def running(self) -> int:
        return len(self._all)

    def executing(self) -> Iterator[Executor[Work]]:
        return (executor for executor in self._all if executor.work is not None)

    def entries(self) -> Iterator[InFlight]:
        """The records whose requests run."""
        return (entry for executor in self.executing() for entry in executor.entries)

    def resize(self, wanted: int) -> None:
        """Grow at once; shrink as requests finish."""
        self.wanted = wanted
        self._adjust()

    def limit(self, limit: int | None) -> None:
        """No more than these, however many are wanted; None: no limit."""
        self._limit = limit
        self._adjust()

    def _adjust(self) -> None:
        effective = self.wanted if self._limit is None else min(self.wanted, self._limit)
        self.effective = effective
        while len(self._all) > effective and self._idle:
            self._retire(self._idle.pop(0))
        while len(self._all) < effective:
            executor = self._executor(self, self._delivery.open_slot())
            self._all.add(executor)
            self._idle.append(executor)
        self.kick()

    def kick(self) -> None:
        """There may be something to take."""
        while self._idle:
            work = self.take()
            if work is None:
                return
            self._start(self._idle.pop(), work, self._time())

    def finished(self, executor: Executor[Work], result: Result) -> None:
        """Its attempt is over: go on with what is next."""
        work, executor.work = executor.work, None
        assert work is not None, "an answer without a request"
        self.busy -= 1
        now = self._time()
        self._finished(work, result, executor.started_at, now)
        if len(self._all) > self.effective:
            self._retire(executor)
            return
        following = self.take()
        if following is None:
            self._idle.append(executor)
        else:
            self._start(executor, following, now)

    def cancel(self, entry: InFlight) -> Sequence[InFlight]:
        """Cut the request that carries this record; the records it carried, if there is one.

        The executor takes nothing new by itself.
        """
        for executor in self.executing():
            if entry in executor.entries:
                return self._cut(executor)
        return ()

    def abort_all(self) -> list[InFlight]:
        """Cut every running request; the records, whose attempts came to nothing."""
        return [entry for executor in list(self.executing()) for entry in self._cut(executor)]

    def _cut(self, executor: Executor[Work]) -> Sequence[InFlight]:
        executor.slot.abort()
        aborted = executor.entries
        executor.work = None
        self.busy -= 1
        self._rest(executor)
        return aborted

    def close(self) -> None:
        """Close the connections; nothing may be executing."""
        self.wanted = self.effective = 0
        if self._deadline_timer is not None:
            self._deadline_timer.cancel()
            self._deadline_timer = None
        while self._idle:
            self._retire(self._idle.pop())

    def _start(self, executor: Executor[Work], work: Work, now: float) -> None:
        self.busy += 1
        executor.start(work, now)
        if self._deadline_timer is None:
            self._deadline_timer = self._scheduler.call_at(
                now + self._timeout_seconds, self._check_deadlines
            )

    def _rest(self, executor: Executor[Work]) -> None:
        if len(self._all) > self.effective:
            self._retire(executor)
        else:
            self._idle.append(executor)

    def _retire(self, executor: Executor[Work]) -> None:
        self._all.discard(executor)
        executor.slot.close()

    def _check_deadlines(self) -> None:
        """One timer for all: it stands at the earliest deadline, a tick apart at least."""
        now = self._scheduler.time()
        timeout = self._timeout_seconds
        for executor in [e for e in self.executing() if e.started_at + timeout <= now]:
            sent = executor.slot.abort()
            detail = f"no answer within {timeout:g} s"
            self.finished(executor, Failed(FailureKind.TIMEOUT, detail, sent))
        earliest = min((executor.started_at for executor in self.executing()), default=None)
        self._deadline_timer = None
        if earliest is not None:
            when = max(earliest + timeout, now + self._tick_seconds)
            self._deadline_timer = self._scheduler.call_at(when, self._check_deadlines)
