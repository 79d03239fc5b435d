"""What becomes of records whose attempt failed.

Owner: one route, on the loop. Each record of an attempt that failed is handled once: it waits for
the application, waits out a backoff, goes back to Kafka, or is disposed of as on_exhausted says.

Invariants:
* An outage counts no attempt. One record that fails while others are delivered is no outage.
* No more is given to be parked, or moved to a retry topic, than in_a_row lets. What is too much
  waits, uncharged, to be tried again; in at_most_once, which may not send it again, to be parked.
* at_most_once sends again only what certainly was not processed.
* A connection that broke is judged a second later: see suspects.
* What a batch failed at is no record's own fault: nobody is charged, and nobody is disposed of;
  its records go again in batches half as large, down to the record alone.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final, Protocol

from sidecar.core.answers import APP_DROP, Verdict
from sidecar.core.breaker import Breaker, State
from sidecar.core.classify import describe, retry_after_seconds
from sidecar.core.concurrency import Concurrency
from sidecar.core.ledger import InFlight
from sidecar.dispatch.context import Context
from sidecar.dispatch.delays import Delays
from sidecar.dispatch.exits import Exits
from sidecar.dispatch.in_a_row import InARow
from sidecar.dispatch.outages import Outages
from sidecar.dispatch.parker import Parker
from sidecar.dispatch.suspects import SUSPECT_SECONDS, Suspects
from sidecar.logs import gist
from sidecar.model import (
    Answer,
    Failed,
    FailureKind,
    OnExhausted,
    Outcome,
    Result,
    RetryTopic,
)


class Owner(Protocol):
    """The route, as far as failures are concerned."""

    @property
    def executors_wanted(self) -> int: ...

    def limit_executors(self, limit: int | None) -> None: ...


class Failures:
    """calm: the application is up, and there is nothing to forget: a delivery changes nothing.

    To be read with every delivery; where it is not, delivered is to be called.
    """

    __slots__ = (
        "_answered",
        "_breaker",
        "_counters",
        "_delays",
        "_delivered_before",
        "_exits",
        "_failed_since",
        "_keeps",
        "_log",
        "_outages",
        "_owner",
        "_parker",
        "_repeating",
        "_retry_topics",
        "_schedule",
        "_scheduler",
        "_settings",
        "_suspects",
        "_wall_clock",
        "calm",
        "concurrency",
        "halted",
        "in_a_row",
        "last",
    )

    def __init__(
        self,
        owner: Owner,
        context: Context,
        *,
        breaker: Breaker,
        outages: Outages,
        suspects: Suspects,
        delays: Delays,
        parker: Parker,
        exits: Exits,
        retry_topics: Sequence[RetryTopic],
    ) -> None:
        self._owner = owner
        self._settings = context.settings
        self._keeps = context.keeps
        self._counters = context.counters
        self._schedule = context.schedule
        self._scheduler = context.scheduler
        self._wall_clock = context.wall_clock
        self._log = context.log
        self._repeating = context.repeating
        self._breaker = breaker
        self._outages = outages
        self._suspects = suspects
        self._delays = delays
        self._parker = parker
        self._exits = exits
        self._retry_topics = retry_topics
        self.in_a_row: Final = InARow(context, parker)
        self.calm = False
        self.halted = ""  # the reason, when on_exhausted: halt stopped the route
        self.last = ""  # what the last attempt that failed came to
        self.concurrency: Final = Concurrency()
        self._answered = 0  # records that were answered and not delivered
        self._failed_since = 0  # attempts, in records, since so many were delivered:
        self._delivered_before = 0

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
        """How many records wait until they may be parked."""
        return len(self.in_a_row)

    # --- attempts -----------------------------------------------------------------------------

    def failed(
        self, entries: Sequence[InFlight], result: Result, verdict: Verdict, batch: int = 1
    ) -> None:
        """One attempt was not delivered; batch is how many records failed with it as a whole.

        That may be more than these entries: the partitions of the others have left.
        """
        self.calm = False
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

    def late(self, entries: Sequence[InFlight], result: Result, verdict: Verdict) -> None:
        """An attempt failed whose records are others' by now: it tells of the application only."""
        self.calm = False
        if verdict.outcome is Outcome.APP_DOWN:
            self._outages.app_down(entries[0], describe(result), verdict.opens_breaker)
        else:
            self._outages.failed(entries[0], result)
        for entry in entries:
            self._suspects.ended(entry, innocent=True)

    def cancelled(self, entries: Sequence[InFlight], wanted: InFlight) -> list[InFlight]:
        """Their request was cut because one of them was wanted: nobody is charged.

        Those that travelled with it go back, or are returned: they go again.
        """
        again = []
        for entry in entries:
            self._outages.cancelled(entry)
            if entry is wanted:
                continue
            if self._keeps and (self._exits.goes_back(entry) or not entry.record.assignment.live):
                self._exits.leave(entry)
            else:
                again.append(entry)
        return again

    def app_is_gone(self, error: str) -> None:
        """It was there, and a probe failed."""
        self.calm = False
        self._outages.app_down(None, error, at_once=True)

    def delivered(self, entries: Sequence[InFlight]) -> None:
        """Records were delivered while not all was calm."""
        self._outages.delivered(entries)
        self.in_a_row.delivered()
        if self.concurrency.delivered(len(entries), self._owner.executors_wanted):
            self._owner.limit_executors(self.concurrency.limit)
        self.calm = (
            self.concurrency.limit is None
            and not self.in_a_row.count
            and self._breaker.free
            and self._suspects.none
        )

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
        if self._exits.goes_back(entry):
            self._exits.give_back(entry)
        elif self._breaker.state is State.UP:
            self.delay(entry, self._schedule.backoff(entry.tries))
        else:
            self._suspects.add(entry)
            self._exits.stays()

    def _wait_to_be_judged(self, entry: InFlight) -> None:
        if self._exits.goes_back(entry):
            self._exits.give_back(entry)
        else:
            self.delay(entry, max(SUSPECT_SECONDS, self._schedule.backoff(entry.tries)))

    def _halve(self, entry: InFlight, batch: int, result: Result, verdict: Verdict) -> None:
        entry.batch_limit = batch // 2
        if verdict.outcome is Outcome.REJECTED and not self._exits.goes_back(entry):
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
        return entry.record.tier > 0 or self._schedule.exhausted(entry.attempts, age)

    def _give_up(self, entry: InFlight, result: Result, reason: str) -> None:
        """Its attempts here are used up: the next retry topic, or what on_exhausted says."""
        tier = entry.record.tier
        if tier + 1 >= len(self._retry_topics):
            self._dispose(entry, result, reason)
        elif tier > 0:
            self._move_on(entry)  # it was counted when it left its own topic
        elif self.in_a_row.may_park():
            self.move(entry)
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
        if self._exits.goes_back(entry):
            self._exits.give_back(entry)
            return
        wait = self._schedule.backoff(entry.tries)
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
            case OnExhausted.PARK if self.in_a_row.may_park():
                self.park(entry, result, reason)
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
                self._exits.settle(entry)
            case OnExhausted.HALT | OnExhausted.RETRY_FOREVER if self._exits.goes_back(entry):
                self._exits.give_back(entry)
            case OnExhausted.HALT:
                self.halted = f"{entry.record}: {describe(result)}"
                self._log.error("halted until resumed, %s", self.halted)
                entry.attempts = entry.tries = 0  # resuming begins anew, its age included
                self._suspects.put_back(entry)
            case OnExhausted.RETRY_FOREVER:
                self.delay(entry, self._schedule.backoff_bound(entry.tries))

    # --- parking ------------------------------------------------------------------------------

    def park(self, entry: InFlight, result: Result, reason: str) -> None:
        """Give it to be parked, if in_a_row lets it."""
        self.calm = False  # the next delivery ends the row
        self.in_a_row.park(entry, result, reason)

    def move(self, entry: InFlight) -> RetryTopic:
        """To its next retry topic, or to the last one again, if in_a_row lets it."""
        self.in_a_row.count += 1
        return self._move_on(entry)

    def _move_on(self, entry: InFlight) -> RetryTopic:
        self.calm = False
        tier = min(entry.record.tier + 1, len(self._retry_topics) - 1)
        topic = self._retry_topics[tier]
        self._parker.retry(entry, topic)
        return topic

    def _wait_to_be_parked(self, entry: InFlight, result: Result, reason: str) -> None:
        """Too many were parked in a row: the fault is hardly the record's."""
        self._outages.hold(
            f"{self.in_a_row.count} records were parked or moved to a retry topic in a row"
            " and none was delivered,"
            f" the last failure: {describe(result)}"
        )
        if self._keeps:
            entry.attempts -= 1
            self._wait_for_app(entry)
            return
        self.in_a_row.hold_back(entry, result, reason)
