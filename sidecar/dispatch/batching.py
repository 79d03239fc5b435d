"""Batches: which records travel in one request, and what its answer means for each of them.

Owner: one route with `batch`, on the loop. A record that may start stays in the buffer until its
batch is full or has waited long enough: it holds no executor, and a rebalance or a stop finds it
where every other record is.

Invariants:
* A batch is of one topic, as the application knows it; it has at most max_records, and no record
  travels in a larger one than its batch_limit.
* While the application is tried out, or a suspect runs alone, a batch is one record.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from sidecar.core.answers import TOLD_TO_RETRY, AnswerTable, Verdict
from sidecar.core.batch_answers import BatchAnswerError, failures_of
from sidecar.core.breaker import Breaker
from sidecar.core.buffer import Buffer
from sidecar.core.classify import classify
from sidecar.core.ledger import InFlight
from sidecar.core.presets import Preset
from sidecar.dispatch.counters import Counters
from sidecar.model import Answer, Failed, FailureKind, Outcome, Record, Result
from sidecar.ports import Scheduler, Timer
from sidecar.settings import BatchSettings

Finished = Callable[[Sequence[InFlight], Result, Verdict, int], None]


class Batching:
    """take_one gives the first record of a batch, if one may start; kick has the executors ask
    again; finished is told of records of which one thing became, and with how many they share it;
    attempted of each request, what it came to as a whole and how many seconds it took.
    """

    __slots__ = (
        "_answers",
        "_attempted",
        "_breaker",
        "_counters",
        "_finished",
        "_kick",
        "_max_bytes",
        "_ready",
        "_scheduler",
        "_strict",
        "_take_one",
        "_timer",
        "_wait_seconds",
        "max_records",
    )

    def __init__(
        self,
        settings: BatchSettings,
        answers: AnswerTable,
        preset: Preset,
        *,
        scheduler: Scheduler,
        breaker: Breaker,
        counters: Counters,
        ready: Buffer,
        take_one: Callable[[], InFlight | None],
        kick: Callable[[], None],
        finished: Finished,
        attempted: Callable[[Outcome, float], None],
    ) -> None:
        self.max_records: Final = settings.max_records
        self._max_bytes: Final = settings.max_bytes
        self._wait_seconds = settings.max_wait_seconds
        self._answers: Final = answers
        self._strict: Final = preset is Preset.LAMBDA
        self._scheduler: Final = scheduler
        self._breaker: Final = breaker
        self._counters: Final = counters
        self._ready: Final = ready
        self._take_one: Final = take_one
        self._kick: Final = kick
        self._finished: Final = finished
        self._attempted: Final = attempted
        self._timer: Timer | None = None

    def hurry(self) -> None:
        """Wait for company no more."""
        self._wait_seconds = 0.0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def take(self) -> Sequence[InFlight] | None:
        """The next batch for an executor, if one may start."""
        if self._breaker.free and not self._is_due():
            return None
        first = self._take_one()
        if first is None:
            return None
        batch = [first]
        if not self._breaker.free:
            return batch
        topic = _topic_of(first.record)
        limit = min(self.max_records, first.batch_limit)
        room = self._max_bytes - first.record.size

        def fits(entry: InFlight) -> bool:
            record = entry.record
            if record.size > room or len(batch) >= entry.batch_limit:
                return False
            return _topic_of(record) == topic

        while len(batch) < limit and (entry := self._ready.take_fitting(fits)) is not None:
            batch.append(entry)
            limit = min(limit, entry.batch_limit)
            room -= entry.record.size
        return batch

    def finished(
        self, batch: Sequence[InFlight], result: Result, started_at: float, now: float
    ) -> None:
        """An attempt came to something."""
        verdict = classify(result, self._answers, answered_before=self._counters.delivered > 0)
        if verdict.outcome is not Outcome.DELIVERED or not isinstance(result, Answer):
            self._attempted(verdict.outcome, now - started_at)
            self._finished(batch, result, verdict, len(batch))
            return
        try:
            named = failures_of(result.body, [entry.record for entry in batch], strict=self._strict)
        except BatchAnswerError as error:
            failed = Failed(FailureKind.MALFORMED, str(error))
            verdict = classify(failed, self._answers, answered_before=True)
            self._attempted(verdict.outcome, now - started_at)
            self._finished(batch, failed, verdict, len(batch))
            return
        self._attempted(verdict.outcome, now - started_at)
        delivered = [entry for index, entry in enumerate(batch) if index not in named]
        if delivered:
            self._finished(delivered, result, verdict, len(batch))
        for index, told in named.items():
            self._finished([batch[index]], told or result, self._of_one(told), 1)

    def _of_one(self, told: Answer | None) -> Verdict:
        """The verdict on a record that the answer names: others have got through with it."""
        if told is None:
            return TOLD_TO_RETRY
        verdict = classify(told, self._answers, answered_before=True)
        return TOLD_TO_RETRY if verdict.outcome is Outcome.APP_DOWN else verdict

    def _is_due(self) -> bool:
        """Whether a batch may start: it is full, or its oldest record has waited long enough."""
        waiting = len(self._ready)
        if not waiting or waiting >= self.max_records or not self._wait_seconds:
            return waiting > 0
        oldest = self._ready.oldest
        assert oldest is not None, "there is one"
        due = oldest + self._wait_seconds
        if due <= self._scheduler.time():
            return True
        if self._timer is None:
            self._timer = self._scheduler.call_at(due, self._on_due)
        return False

    def _on_due(self) -> None:
        self._timer = None
        self._kick()


def _topic_of(record: Record) -> str:
    return (record if record.__class__ is Record else record.original).assignment.topic
