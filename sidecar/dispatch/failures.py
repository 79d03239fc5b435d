"""What becomes of records whose attempt failed.

Owner: one route, on the loop. Each record of an attempt that failed is handled once: it waits for
the application, waits out a backoff, goes back to Kafka, or is disposed of as on_exhausted says.

Invariants:
* An outage counts no attempt. One record that fails while others are delivered is no outage.
* Since the last delivery at most max_parked_in_a_row records were given to be parked, or to be
  moved to a retry topic. Further ones wait, uncharged, to be tried again; in at_most_once, which
  may not send them again, to be parked.
* at_most_once sends again only what certainly was not processed.
* A connection that broke is judged a second later: see suspects.
* What a batch failed at is no record's own fault: nobody is charged, and nobody is disposed of;
  its records go again in batches half as large, down to the record alone.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Final, NamedTuple, Protocol

from sidecar.core.answers import APP_DROP, Verdict
from sidecar.core.breaker import Breaker, State
from sidecar.core.classify import describe, retry_after_seconds
from sidecar.core.concurrency import Concurrency
from sidecar.core.ledger import InFlight
from sidecar.core.retry import RetrySchedule
from sidecar.dispatch.counters import Counters
from sidecar.dispatch.delays import Delays
from sidecar.dispatch.outages import Outages
from sidecar.dispatch.suspects import SUSPECT_SECONDS, Suspects
from sidecar.logs import RateLimited, WithFields, gist
from sidecar.model import Answer, Failed, FailureKind, Guarantee, OnExhausted, Outcome, Result
from sidecar.ports import Scheduler, Timer
from sidecar.settings import RouteSettings

# at_most_once: how often one record of those that wait to be parked is parked all the same, while
# no other is in flight that could be tried.
LET_THROUGH_SECONDS: Final = 60.0


class Owner(Protocol):
    """The route, as far as failures are concerned."""

    @property
    def executors_wanted(self) -> int: ...

    @property
    def nothing_to_try(self) -> bool:
        """All that is in flight is being parked, or waits to be."""

    def fetch_one_to_try(self, wanted: bool) -> None:
        """However little room there is."""

    def goes_back(self, entry: InFlight) -> bool:
        """Whether the record is left to another owner, or to the next start."""

    def limit_executors(self, limit: int | None) -> None: ...

    def park(self, entry: InFlight, result: Result, reason: str) -> None: ...

    def has_later(self, entry: InFlight) -> bool:
        """Whether there is a retry topic for it."""

    def retry_later(self, entry: InFlight) -> object:
        """Move it to its next retry topic."""

    def settle(self, entry: InFlight) -> None:
        """The record is done for good."""

    def give_back(self, entry: InFlight) -> None:
        """The record is not in flight here any more, and not done: whoever is next repeats it."""

    def waits_again(self) -> None:
        """A record is buffered that was not delivered."""


class HeldBack(NamedTuple):
    """A record that waits to be parked (at_most_once)."""

    entry: InFlight
    result: Result
    reason: str


class Failures:
    """See the module."""

    __slots__ = (
        "_answered",
        "_breaker",
        "_counters",
        "_delays",
        "_delivered_before",
        "_failed_since",
        "_held_back",
        "_keeps",
        "_leaving",
        "_log",
        "_outages",
        "_owner",
        "_repeating",
        "_scheduler",
        "_settings",
        "_suspects",
        "_through",
        "_wall_clock",
        "concurrency",
        "halted",
        "last",
        "parked_in_a_row",
        "schedule",
    )

    def __init__(
        self,
        owner: Owner,
        settings: RouteSettings,
        *,
        breaker: Breaker,
        outages: Outages,
        counters: Counters,
        delays: Delays,
        suspects: Suspects,
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
        self._outages = outages
        self._counters = counters
        self._delays = delays
        self._suspects = suspects
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
        self.concurrency: Final = Concurrency()
        self._answered = 0  # records that were answered and not delivered
        self._failed_since = 0  # attempts, in records, since so many were delivered:
        self._delivered_before = 0
        # Given to be parked, or moved to a retry topic, since the last delivery.
        self.parked_in_a_row = 0
        self._held_back: deque[HeldBack] = deque()
        self._through: Timer | None = None  # when one of them is let through
        self._leaving = False  # at_most_once: what fails from now on cannot wait

    @property
    def held_back(self) -> Iterable[InFlight]:
        """Records that wait to be parked until another is delivered."""
        return (each.entry for each in self._held_back)

    @property
    def _charges(self) -> bool:
        """Not while intake is held because nothing is taken."""
        return not self._breaker.until_delivered

    @property
    def failed_in_a_row(self) -> int:
        """Attempts, in records, that failed since the last delivery."""
        return self._failed_since if self._counters.delivered == self._delivered_before else 0

    @property
    def waiting(self) -> int:
        """How many are held back."""
        return len(self._held_back)

    # --- attempts -----------------------------------------------------------------------------

    def failed(
        self, entries: Sequence[InFlight], result: Result, verdict: Verdict, batch: int = 1
    ) -> None:
        """One attempt was not delivered; batch is how many records failed with it as a whole.

        That may be more than these entries: the partitions of the others have left.
        """
        self._counters.failures[verdict.reason] += len(entries)
        self._failed_since = self.failed_in_a_row + len(entries)
        self._delivered_before = self._counters.delivered
        self.last = describe(result)
        # An outage, or one record's own fault? It is the record's if others were delivered
        # since it was tried before.
        delivered = self._counters.delivered
        others_fine = [0 <= entry.deliveries_seen < delivered for entry in entries]
        down = verdict.outcome is Outcome.APP_DOWN
        broke = isinstance(result, Failed) and result.kind is FailureKind.BROKEN
        if down and (verdict.opens_breaker or not all(others_fine)):
            self._outages.app_down(entries[0], self.last, verdict.opens_breaker)
        else:
            self._tell(entries[0], verdict.reason)
            self._outages.failed(entries[0], result)
        if isinstance(result, Answer):
            self._answered += len(entries)
            if verdict.outcome is Outcome.DEFERRED:
                self._deferred(entries)
        elif broke and self._keeps:
            self._outages.connection_broke()
        for entry, fine in zip(entries, others_fine, strict=True):
            entry.deliveries_seen = delivered
            alone = self._suspects.ended(entry, innocent=not (broke or verdict.opens_breaker))
            if not self._keeps and not verdict.unprocessed:
                self._dispose(entry, result, verdict.reason)
            elif broke:
                self._suspects.broke(entry, result, verdict, batch, alone)
                self._wait_to_be_judged(entry)
            elif verdict.outcome is Outcome.DEFERRED and not (fine and self._charges):
                self._try_again(entry, result)
            elif (down and (verdict.opens_breaker or not fine)) or not self._charges:
                self._wait_for_app(entry)
            elif batch > 1:
                self._halve(entry, batch, result, verdict)
            else:
                self._charge(entry, result, verdict)

    def delivered(self, count: int) -> bool:
        """Records were delivered after failures. True if nothing of these is left to remember."""
        self.excuse()
        if self.concurrency.delivered(count, self._owner.executors_wanted):
            self._owner.limit_executors(self.concurrency.limit)
        return self.concurrency.limit is None and not self._held_back and not self.parked_in_a_row

    def due(self, entry: InFlight) -> None:
        """A record has waited as long as it should."""
        broke = self._suspects.judged(entry)
        if broke is not None and not broke.is_anybodys and self._charges:
            if broke.batch > 1:
                entry.batch_limit = broke.batch // 2
            elif self._uses_up(entry):
                self._give_up(entry, broke.result, broke.verdict.reason)
                return
        self._suspects.add(entry)

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
            self._owner.give_back(entry)
        elif self._breaker.state is State.UP:
            self.delay(entry, self.schedule.backoff(entry.tries))
        else:
            self._suspects.add(entry)
            self._owner.waits_again()

    def _wait_to_be_judged(self, entry: InFlight) -> None:
        if self._owner.goes_back(entry):
            self._owner.give_back(entry)
        else:
            self.delay(entry, max(SUSPECT_SECONDS, self.schedule.backoff(entry.tries)))

    def _halve(self, entry: InFlight, batch: int, result: Result, verdict: Verdict) -> None:
        entry.batch_limit = batch // 2
        if verdict.outcome is Outcome.REJECTED and not self._owner.goes_back(entry):
            self.delay(entry, 0.0)  # waiting would not make it more welcome
        else:
            self._try_again(entry, result)

    def _charge(self, entry: InFlight, result: Result, verdict: Verdict) -> None:
        """The failure is the record's own, so that it may have been the last."""
        used_up = self._uses_up(entry)
        if verdict.outcome is Outcome.REJECTED:
            self._dispose(entry, result, verdict.reason)
        elif used_up:
            self._give_up(entry, result, verdict.reason)
        else:
            self._try_again(entry, result)

    def _uses_up(self, entry: InFlight) -> bool:
        """Count an attempt; whether it was the last, of which each retry topic grants one."""
        entry.attempts += 1
        age = self._scheduler.time() - entry.first_try_at
        return entry.record.tier > 0 or self.schedule.exhausted(entry.attempts, age)

    def _give_up(self, entry: InFlight, result: Result, reason: str) -> None:
        """Its attempts here are used up: the next retry topic, or what on_exhausted says."""
        if not self._owner.has_later(entry):
            self._dispose(entry, result, reason)
        elif entry.record.tier > 0:  # it was counted when it left its own topic
            self._owner.retry_later(entry)
        elif self.may_park():
            self.parked_in_a_row += 1
            self._owner.retry_later(entry)
        else:
            self._wait_to_be_parked(entry, result, reason)

    def _deferred(self, entries: Sequence[InFlight]) -> None:
        answers = self._counters.delivered + self._answered
        if self.concurrency.deferred(entries, answers, self._owner.executors_wanted):
            self._owner.limit_executors(self.concurrency.limit)
            self._repeating.limited(
                "overloaded",
                logging.WARNING,
                "the application is overloaded, %.0f %% of its last answers were 429 or 503:"
                " %s requests at a time from now on",
                100 * self.concurrency.rate,
                self.concurrency.limit,
            )

    def _try_again(self, entry: InFlight, result: Result) -> None:
        if self._owner.goes_back(entry):
            self._owner.give_back(entry)
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
            case OnExhausted.PARK if self._leaving or self.may_park():
                self._park(entry, result, reason)
            case OnExhausted.PARK:
                self._wait_to_be_parked(entry, result, reason)
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
                self._owner.give_back(entry)
            case OnExhausted.HALT:
                self.halted = f"{entry.record}: {describe(result)}"
                self._log.error("halted until resumed, %s", self.halted)
                entry.attempts = entry.tries = 0  # resuming begins anew, its age included
                self._suspects.put_back(entry)
            case OnExhausted.RETRY_FOREVER:
                self.delay(entry, self.schedule.backoff_bound(entry.tries))

    # --- parking ------------------------------------------------------------------------------

    def may_park(self) -> bool:
        """Whether one more may be given to be parked, or moved to a retry topic."""
        return self.parked_in_a_row < self._settings.max_parked_in_a_row

    def _park(self, entry: InFlight, result: Result, reason: str) -> None:
        self.parked_in_a_row += 1
        self._owner.park(entry, result, reason)

    def _wait_to_be_parked(self, entry: InFlight, result: Result, reason: str) -> None:
        """Too many were parked in a row: the fault is hardly the record's."""
        self._outages.hold(
            f"{self.parked_in_a_row} records were parked or moved to a retry topic in a row"
            " and none was delivered,"
            f" the last failure: {describe(result)}"
        )
        if self._keeps:
            entry.attempts -= 1
            self._wait_for_app(entry)
            return
        self._held_back.append(HeldBack(entry, result, reason))
        if self._through is None:
            self._wait_to_let_through()

    def _let_one_through(self) -> None:
        """Make room for a record that can be tried, where there is none."""
        self._through = None
        starved = bool(self._held_back) and self._owner.nothing_to_try
        if starved:
            self._park(*self._held_back.popleft())
        self._owner.fetch_one_to_try(starved)
        self._wait_to_let_through()

    def _wait_to_let_through(self) -> None:
        self.stop()
        if self._held_back:
            self._through = self._scheduler.call_later(LET_THROUGH_SECONDS, self._let_one_through)

    def excuse(self) -> None:
        """As many may be parked again."""
        self.parked_in_a_row = 0
        while self._held_back and self.may_park():
            self._park(*self._held_back.popleft())
        if self._through is not None:
            self._wait_to_let_through()

    def let_all_go(self) -> None:
        """The end has begun: what waits to be parked is parked."""
        self._leaving = not self._keeps
        while self._held_back:
            self._park(*self._held_back.popleft())
        self.stop()

    def release(self, entry: InFlight) -> None:
        """Hold one record back no more."""
        self._held_back = deque(each for each in self._held_back if each.entry is not entry)

    def stop(self) -> None:
        if self._through is not None:
            self._through.cancel()
            self._through = None
