"""What becomes of records whose attempt failed.

Owner: one route, on the loop. Each record of an attempt that failed is handled once: it waits for
the application, waits out a backoff, goes back to Kafka, or is disposed of as on_exhausted says.

Invariants:
* An outage counts no attempt. One record that fails while others are delivered is no outage.
* at_most_once sends again only what certainly was not processed.
* What a batch failed at is no record's own fault: nobody is charged, and nobody is disposed of;
  its records go again in batches half as large, down to the record alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from random import Random
from typing import Protocol

from sidecar.core.answers import APP_DROP, Verdict
from sidecar.core.breaker import Breaker, State
from sidecar.core.buffer import Buffer
from sidecar.core.classify import describe, retry_after_seconds
from sidecar.core.ledger import InFlight
from sidecar.core.retry import RetrySchedule
from sidecar.dispatch.counters import Counters
from sidecar.dispatch.delays import Delays
from sidecar.logs import RateLimited, WithFields, gist
from sidecar.model import Answer, Guarantee, OnExhausted, Outcome, Result
from sidecar.ports import Scheduler
from sidecar.settings import RouteSettings


class Owner(Protocol):
    """The route, as far as failures are concerned."""

    def goes_back(self, entry: InFlight) -> bool:
        """Whether the record is left to another owner, or to the next start."""

    def app_down(self, error: str, at_once: bool) -> None:
        """The application cannot take anything; at_once: hold intake now."""

    def app_answered(self) -> None: ...

    def park(self, entry: InFlight, result: Result, reason: str) -> None: ...

    def retry_later(self, entry: InFlight) -> bool:
        """Move the record to its next retry topic; False if there is none."""

    def settle(self, entry: InFlight) -> None:
        """The record is done for good."""

    def leave(self, entry: InFlight) -> None:
        """The record is not in flight any more, and not done."""

    def waits_again(self) -> None:
        """A record is buffered that was not delivered."""


class Failures:
    """See the module."""

    __slots__ = (
        "_breaker",
        "_counters",
        "_delays",
        "_keeps",
        "_log",
        "_owner",
        "_ready",
        "_repeating",
        "_scheduler",
        "_settings",
        "_wall_clock",
        "halted",
        "last",
        "schedule",
    )

    def __init__(
        self,
        owner: Owner,
        settings: RouteSettings,
        *,
        breaker: Breaker,
        counters: Counters,
        delays: Delays,
        ready: Buffer,
        log: WithFields,
        repeating: RateLimited,
        scheduler: Scheduler,
        wall_clock: Callable[[], float],
        random: Random,
    ) -> None:
        self._owner = owner
        self._settings = settings
        self._keeps = settings.guarantee is Guarantee.AT_LEAST_ONCE
        self._breaker = breaker
        self._counters = counters
        self._delays = delays
        self._ready = ready
        self._log = log
        self._repeating = repeating
        self._scheduler = scheduler
        self._wall_clock = wall_clock
        retry = settings.retry
        self.schedule = RetrySchedule(
            max_attempts=retry.max_attempts,
            initial_backoff_seconds=retry.initial_backoff_seconds,
            max_backoff_seconds=retry.max_backoff_seconds,
            max_age_seconds=retry.max_age_seconds,
            random=random,
        )
        self.halted = ""  # the reason, when on_exhausted: halt stopped the route
        self.last = ""  # what the last attempt that failed came to

    def failed(
        self, entries: Sequence[InFlight], result: Result, verdict: Verdict, batch: int = 1
    ) -> None:
        """One attempt was not delivered; batch is how many records failed with it as a whole.

        That may be more than these entries: the partitions of the others have left.
        """
        self._counters.failures[verdict.reason] += len(entries)
        self.last = describe(result)
        # An outage, or one record's own fault? It is the record's if others were delivered
        # since it was tried before.
        delivered = self._counters.delivered
        others_fine = [0 <= entry.deliveries_seen < delivered for entry in entries]
        down = verdict.outcome is Outcome.APP_DOWN
        if down and (verdict.opens_breaker or not all(others_fine)):
            self._owner.app_down(self.last, verdict.opens_breaker)
        else:
            self._tell(entries[0], verdict.reason)
            self._owner.app_answered()
        for entry, fine in zip(entries, others_fine, strict=True):
            entry.deliveries_seen = delivered
            if not self._keeps and not verdict.unprocessed:
                self._dispose(entry, result, verdict.reason)
            elif down and (verdict.opens_breaker or not fine):
                self._wait_for_app(entry)
            elif verdict.outcome is Outcome.DEFERRED and not fine:
                self._try_again(entry, result)
            elif batch > 1:
                self._halve(entry, batch, result, verdict)
            else:
                self._charge(entry, result, verdict)

    def delay(self, entry: InFlight, seconds: float) -> None:
        self._counters.retries += 1
        self._delays.add(entry, self._scheduler.time() + seconds)

    def _tell(self, entry: InFlight, reason: str) -> None:
        self._repeating.limited(
            ("attempt", reason, gist(self.last)),
            logging.WARNING,
            "attempt %d of %s failed: %s",
            entry.tries + entry.record.attempts,
            entry.record,
            self.last,
        )

    def _wait_for_app(self, entry: InFlight) -> None:
        """No attempt is counted; another record of another partition may be the next trial."""
        if self._owner.goes_back(entry):
            self._owner.leave(entry)
        elif self._breaker.state is State.UP:
            self.delay(entry, self.schedule.backoff(entry.tries))
        else:
            self._ready.add(entry)
            self._owner.waits_again()

    def _halve(self, entry: InFlight, batch: int, result: Result, verdict: Verdict) -> None:
        entry.batch_limit = batch // 2
        if verdict.outcome is Outcome.REJECTED and not self._owner.goes_back(entry):
            self.delay(entry, 0.0)  # waiting would not make it more welcome
        else:
            self._try_again(entry, result)

    def _charge(self, entry: InFlight, result: Result, verdict: Verdict) -> None:
        """The failure is the record's own, so that it may have been the last."""
        entry.attempts += 1
        age = self._scheduler.time() - entry.first_try_at
        if verdict.outcome is Outcome.REJECTED:
            self._dispose(entry, result, verdict.reason)
        elif entry.record.tier == 0 and not self.schedule.exhausted(entry.attempts, age):
            self._try_again(entry, result)
        elif not self._owner.retry_later(entry):  # each retry topic is good for one attempt
            self._dispose(entry, result, verdict.reason)

    def _try_again(self, entry: InFlight, result: Result) -> None:
        if self._owner.goes_back(entry):
            self._owner.leave(entry)
            return
        wait = self.schedule.backoff(entry.tries)
        if isinstance(result, Answer) and result.retry_after is not None:
            longest = self._settings.retry.retry_after_max_seconds
            asked = retry_after_seconds(result.retry_after, self._wall_clock(), longest)
            wait = max(wait, asked)
        self.delay(entry, wait)

    def _dispose(self, entry: InFlight, result: Result, reason: str) -> None:
        """No further attempt now: do what on_exhausted says."""
        on_exhausted = self._settings.on_exhausted
        if reason == APP_DROP and on_exhausted is not OnExhausted.PARK:
            on_exhausted = OnExhausted.DROP  # nothing is exhausted: the application has decided
        match on_exhausted:
            case OnExhausted.PARK:
                self._owner.park(entry, result, reason)
            case OnExhausted.DROP:
                self._counters.dropped += 1
                told = describe(result)
                self._repeating.limited(
                    ("dropped", reason, gist(told)),
                    logging.ERROR,
                    "dropped %s: %s, %s",
                    entry.record,
                    reason,
                    told,
                )
                self._owner.settle(entry)
            case OnExhausted.HALT | OnExhausted.RETRY_FOREVER if self._owner.goes_back(entry):
                self._owner.leave(entry)
            case OnExhausted.HALT:
                self.halted = f"{entry.record}: {describe(result)}"
                self._log.error("halted until resumed, %s", self.halted)
                entry.attempts = entry.tries = 0  # resuming begins anew, its age included
                self._ready.put_back([entry])
            case OnExhausted.RETRY_FOREVER:
                self.delay(entry, self.schedule.backoff_bound(entry.tries))
