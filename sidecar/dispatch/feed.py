"""What the executors are fed with: whether a record may start now, and which.

Owner: one route, on the loop. It has the executors, and what stands between them and the buffer:
batches, the rate limit, and who must run alone.

Invariants:
* While intake is held, paused or halted no record starts, but for one trial at a time.
* at_most_once: no more is committed ahead than the executors can use.
* What is committed already is finished in a drain, even while paused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sidecar.core.breaker import Breaker, State
from sidecar.core.buffer import Buffer
from sidecar.core.ledger import InFlight
from sidecar.core.run_ahead import RunAhead
from sidecar.dispatch.batching import Batching
from sidecar.dispatch.context import Context
from sidecar.dispatch.executors import BatchExecutor, ExecutorPool, RecordExecutor
from sidecar.dispatch.failures import Failures
from sidecar.dispatch.offsets import Offsets
from sidecar.dispatch.pace import Pace
from sidecar.dispatch.results import Results
from sidecar.dispatch.suspects import Suspects
from sidecar.dispatch.timings import Timings
from sidecar.ports import Delivery


class Feed:
    """paused: by the operator. It begins shut: open is called once records may start."""

    __slots__ = (
        "_batching",
        "_breaker",
        "_failures",
        "_finishing",
        "_keeps",
        "_offsets",
        "_open",
        "_places",
        "_ready",
        "_suspects",
        "executors",
        "pace",
        "paused",
    )

    def __init__(
        self,
        context: Context,
        delivery: Delivery,
        *,
        ready: Buffer,
        breaker: Breaker,
        suspects: Suspects,
        offsets: Offsets,
        failures: Failures,
        results: Results,
        timings: Timings,
    ) -> None:
        settings, scheduler = context.settings, context.scheduler
        self._keeps = context.keeps
        self._places = context.places
        self._ready = ready
        self._breaker = breaker
        self._suspects = suspects
        self._offsets = offsets
        self._failures = failures
        self.paused = False
        self._open = False
        self._finishing = False  # what is committed, in a drain
        self._batching: Batching | None = None
        pool: ExecutorPool[Any]
        if settings.batch is None:
            pool = ExecutorPool(
                scheduler,
                delivery,
                settings.timeout_seconds,
                RecordExecutor,
                self._take,
                results.finished,
            )
        else:
            self._batching = Batching(
                settings.batch,
                settings.answer_table,
                settings.preset,
                scheduler=scheduler,
                breaker=breaker,
                counters=context.counters,
                ready=ready,
                take_one=self._take,
                kick=self.go_on,
                finished=results.batch_finished,
                attempted=timings.attempted,
            )
            pool = ExecutorPool(
                scheduler,
                delivery,
                settings.timeout_seconds,
                BatchExecutor,
                self._take_batch,
                self._batching.finished,
            )
        self.executors: Final = pool
        self.pace: Final[Pace[Any]] = Pace(
            scheduler, pool, (lambda _: 1) if self._batching is None else len
        )

    # --- when ---------------------------------------------------------------------------------

    def open(self) -> None:
        """Records may start."""
        self._open = True

    def finish(self) -> None:
        """A drain begins: only what is committed already may start, and waits for no company."""
        self._open = False
        self._finishing = True
        if self._batching is not None:
            self._batching.hurry()

    def stop(self) -> None:
        """Nothing may start any more."""
        self._open = self._finishing = False
        self.pace.stop()

    def go_on(self) -> None:
        """There may be something to take, or somebody to take it."""
        self._offsets.refill()
        self.executors.kick()

    def cancel(self, entry: InFlight) -> bool:
        """Cut the request that carries this record, if there is one; it is the caller's then."""
        cut = self.executors.cancel(entry)
        self._ready.put_back(self._failures.cancelled(cut, entry))
        return bool(cut)

    @property
    def may_go_on(self) -> bool:
        """Whether records may start, if the application takes them."""
        if self._open:
            return not self.paused and not self._failures.halted
        # What is committed is finished even while paused.
        return (
            self._finishing
            and self._breaker.state in (State.UP, State.TRIAL)
            and self.executors.wanted > 0
        )

    # --- what ---------------------------------------------------------------------------------

    def _take(self) -> InFlight | None:
        """The next record for an executor, if one may start."""
        # Asked here first, to spare every record a call.
        stopped = self.paused or not self._open or self._failures.halted
        if stopped and not self.may_go_on:
            return None
        entry = self._ready.take() if self._breaker.free else self._take_alone()
        if not self._keeps and self._ready.count <= self._offsets.low:
            self._offsets.refill()
        return entry

    def _take_alone(self) -> InFlight | None:
        """The next suspect or trial, if one may start."""
        breaker, busy = self._breaker, self.executors.busy
        if not breaker.may_start():
            return None
        if breaker.state is State.UP:
            return self._suspects.take(busy)
        entry = self._suspects.take_trial(busy) if self._keeps else self._ready.take()
        breaker.started(entry)
        return entry

    def _take_batch(self) -> Sequence[InFlight] | None:
        assert self._batching is not None
        batch = self._batching.take()
        if not self._keeps and self._ready.count <= self._offsets.low:
            self._offsets.refill()
        return batch

    def allowance(self, run_ahead: RunAhead) -> int:
        """How many more records are to be committed for the executors (at_most_once).

        Enough to keep them busy while the next run is committed, and no more: what is committed
        and not started is lost in a crash.
        """
        if not self._breaker.may_start() or not self.may_go_on:
            return 0
        if self._breaker.state is State.TRIAL:
            return 1 - len(self._ready)
        slots = self.executors.effective
        if self._batching is not None:
            slots *= self._batching.max_records
        allowed = run_ahead.allowance(len(self._ready), slots, self._places.threshold)
        rate = self.pace.rate
        if rate is not None:  # of a second, so that a drain need not wait for the others
            allowed = min(allowed, max(1, int(rate)) - len(self._ready))
        return allowed
