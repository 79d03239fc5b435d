"""A route: records of some topics go to one target, with its own everything.

Owner of: the buffer, the offsets, the executors, the delays and the breaker of this route; all on
the loop, all in plain callbacks. It is what the fetch thread talks to (ports.FetchSink).

Invariants:
* Every record that was handed over leaves exactly once, by leave; in flight is what has not.
* A record that waits holds a place under the threshold but no executor.
* Cancelling (revocation, stop, shrinking) is never a failure of the application: it counts no
  attempt, parks nothing and settles nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from itertools import chain
from random import Random
from typing import Any, Final

from sidecar.core.answers import Verdict
from sidecar.core.breaker import Breaker, State
from sidecar.core.buffer import Buffer
from sidecar.core.classify import classify, describe
from sidecar.core.commands import Finish, Leave, Rejoin, Revoked, StopFetching, Wake
from sidecar.core.ledger import InFlight
from sidecar.core.membership import Membership
from sidecar.core.places import Places
from sidecar.core.run_ahead import RunAhead
from sidecar.core.trouble import Trouble
from sidecar.dispatch import relief
from sidecar.dispatch.at_least_once import AtLeastOnce
from sidecar.dispatch.at_most_once import AtMostOnce
from sidecar.dispatch.availability import Availability
from sidecar.dispatch.batching import Batching
from sidecar.dispatch.counters import Counters
from sidecar.dispatch.delays import Delays
from sidecar.dispatch.executors import BatchExecutor, ExecutorPool, RecordExecutor
from sidecar.dispatch.failures import Failures
from sidecar.dispatch.offsets import Offsets
from sidecar.dispatch.outages import Outages
from sidecar.dispatch.pace import Pace
from sidecar.dispatch.parker import Parker
from sidecar.dispatch.relief import Relief
from sidecar.dispatch.revocations import Revocation, Revocations
from sidecar.dispatch.suspects import Suspects
from sidecar.dispatch.timings import Timings
from sidecar.logs import RateLimited, WithFields, gist
from sidecar.model import Assignment, Guarantee, Outcome, Record, Result, RetryTopic, Start
from sidecar.ports import CommitResult, Delivery, Mailbox, Parking, Scheduler, Timer
from sidecar.settings import RouteSettings

log = logging.getLogger(__name__)

CLEAR_AGAIN_SECONDS: Final = 0.2


class Phase(Enum):
    """Where a route is in its life."""

    WAITING = "waiting"  # for the application; nothing is fetched yet
    RUNNING = "running"
    DRAINING = "draining"  # finishing what executes
    LEAVING = "leaving"  # the last commit, and out of the group
    ENDED = "ended"


# A member of an enumeration is found by two lookups; these are asked for with every record.
_RUNNING: Final = Phase.RUNNING
_DRAINING: Final = Phase.DRAINING


class Route:
    """See the module.

    start_fetching starts the fetch thread; it is called once, when the application is first
    reachable. failed is called when the fetch thread died: the process is to be stopped. ended is
    called once, after a drain, with the error of the fetch thread if it had one.
    """

    def __init__(
        self,
        settings: RouteSettings,
        *,
        commit_interval_seconds: float,
        scheduler: Scheduler,
        wall_clock: Callable[[], float],
        random: Random,
        delivery: Delivery,
        parking: Parking | None,
        mailbox: Mailbox,
        places: Places,
        retry_topics: Sequence[RetryTopic] = (),
        start_fetching: Callable[[], None],
        failed: Callable[[Route, BaseException], None],
        ended: Callable[[Route, BaseException | None], None],
    ) -> None:
        self.settings: Final = settings
        self.counters: Final = Counters()
        self.timings: Final = Timings(scheduler, wall_clock, self.counters)
        self.retry_topics: Final = retry_topics  # by tier, see Settings.retry_topics
        self._log = WithFields(log, {"route": settings.name})
        self._commit_interval = commit_interval_seconds
        self._repeating = RateLimited(self._log, clock=scheduler.time)
        self._scheduler = scheduler
        self._mailbox = mailbox
        self._places = places
        self._start_fetching = start_fetching
        self._failed = failed
        self._ended = ended
        self._keeps = settings.guarantee is Guarantee.AT_LEAST_ONCE
        self._answers = settings.answer_table
        self._ready = Buffer()
        self._run_ahead = RunAhead()
        self._accepted: Result | None = None  # the last answer that meant delivered: most are alike
        self._offsets: Offsets = (
            AtLeastOnce(self._ready, mailbox)
            if self._keeps
            else AtMostOnce(
                self._ready,
                mailbox,
                self._run_ahead,
                scheduler.time,
                self._allowance,
                self._clear_later,
                lambda: f"{random.getrandbits(64):016x}",
            )
        )
        self._delays = Delays(scheduler, self._due)
        self.breaker: Final = Breaker(scheduler.time())
        self.membership: Final = Membership(settings.leave_after_held_seconds)
        self._availability = Availability(
            self,
            scheduler,
            delivery,
            self.breaker,
            self.membership,
            settings.target,
            self._repeating,
        )
        self.suspects: Final = Suspects(
            scheduler, self.breaker, self._ready, settings.timeout_seconds, self.go_on
        )
        self._outages = Outages(
            self.breaker,
            self._availability,
            self.suspects,
            scheduler=scheduler,
            log=self._log,
            repeating=self._repeating,
            target=settings.target,
            go_on=self.go_on,
        )
        self.failures: Final = Failures(
            self,
            settings,
            breaker=self.breaker,
            outages=self._outages,
            counters=self.counters,
            delays=self._delays,
            suspects=self.suspects,
            log=self._log,
            repeating=self._repeating,
            scheduler=scheduler,
            wall_clock=wall_clock,
            random=random,
        )
        self._parker = Parker(
            scheduler,
            wall_clock,
            self.failures.schedule,
            parking,
            self._parked,
            self._repeating,
            self._retried,
        )
        self._batching, self._pool = self._make_pool(delivery)
        self._relief: Relief | None = None
        if relief.is_possible(settings, retry_topics):
            self._relief = Relief(
                self,
                settings,
                counters=self.counters,
                failures=self.failures,
                pool=self._pool,
                delays=self._delays,
                log=self._log,
            )
        self.pace: Final[Pace[Any]] = Pace(
            scheduler, self._pool, (lambda _: 1) if self._batching is None else len
        )
        self.phase = Phase.WAITING
        self.paused = False  # by the operator
        # Of what an operator may change. It begins at the time, so that none comes again after a
        # restart.
        self.generation = int(wall_clock() * 1000)
        self.trouble = Trouble()
        self.without_dead_letter_topic = False
        self.lost_records: list[Record] = []  # cut at the end of a drain (at_most_once)
        self._given_back = 0  # failed in the drain, and left to the next start
        self._fetch_error: BaseException | None = None
        self._revocations = Revocations(scheduler, self._log, self._answer_revocation)
        self._open_revocations = self._revocations.open
        self._calm = False  # up, and nothing to forget: a delivery changes nothing
        self._commit_timer: Timer | None = None

    def _make_pool(self, delivery: Delivery) -> tuple[Batching | None, ExecutorPool[Any]]:
        settings, scheduler = self.settings, self._scheduler
        if settings.batch is None:
            return None, ExecutorPool(
                scheduler,
                delivery,
                settings.timeout_seconds,
                RecordExecutor,
                self._take,
                self._finished,
            )
        batching = Batching(
            settings.batch,
            self._answers,
            settings.preset,
            scheduler=scheduler,
            breaker=self.breaker,
            counters=self.counters,
            ready=self._ready,
            take_one=self._take,
            kick=self.go_on,
            finished=self._batch_finished,
            attempted=self.timings.attempted,
        )
        return batching, ExecutorPool(
            scheduler,
            delivery,
            settings.timeout_seconds,
            BatchExecutor,
            self._take_batch,
            batching.finished,
        )

    # --- life ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Look for the application; fetching begins when it is there."""
        self._pool.resize(self.settings.executors)
        self.pace.limit(self.settings.max_records_per_second)
        self.timings.start()
        self._availability.start()

    def drain(self) -> None:
        """Stop fetching, give back what was not started, finish what executes, then leave."""
        if self.phase is Phase.WAITING:
            self._end(None)
            return
        if self.phase is not Phase.RUNNING:
            return
        self.phase = Phase.DRAINING
        self.membership.stay()
        self._mailbox.post(StopFetching())
        self.failures.let_all_go()
        if self._batching is not None:
            self._batching.hurry()
        self._leave_all(self._offsets.stop())
        if self._keeps:
            self._leave_all(self._delays.discard_all() + self.suspects.discard_all())
        self._pool.kick()
        self._check_drained()

    def cut(self) -> None:
        """End at once: what is not finished stays uncommitted, or is lost (at_most_once)."""
        if self.phase in (Phase.WAITING, Phase.RUNNING):
            self.drain()
        if self.phase is Phase.DRAINING:
            unfinished = self._pool.abort_all()
            unfinished += self._parker.give_up()
            self._give_up(unfinished)

    def ended(self, error: BaseException | None) -> None:
        """The fetch thread is over."""
        if self.phase is Phase.LEAVING:
            self._end(error)
            return
        # It died. What was committed for at_most_once can still be finished; the rest repeats.
        self._fetch_error = error or RuntimeError("the fetch thread ended by itself")
        self._failed(self, self._fetch_error)
        self._check_drained()  # a commit that was waited for will not be answered any more

    def _check_drained(self) -> None:
        if self.phase is not Phase.DRAINING:
            return
        if self._pool.busy or len(self._parker):
            return
        if self._offsets.pending and self._fetch_error is None:
            return
        if (len(self._ready) or len(self._delays)) and self._may_dispatch():
            return
        self._give_up([])  # if the application is not there, nothing more will come of the rest

    def _give_up(self, unfinished: list[InFlight]) -> None:
        unfinished += self._offsets.abandon()
        unfinished += self._delays.discard_all()
        unfinished += self._ready.discard_all()
        if not self._keeps:
            self.lost_records += [entry.record for entry in unfinished]
            self.counters.lost += len(unfinished)
        elif repeated := len(unfinished) + self._given_back:
            self._log.warning("%d records are not finished and will be repeated", repeated)
        self._leave_all(unfinished)
        self.phase = Phase.LEAVING
        self._stop_timers()
        if self._fetch_error is not None:
            self._end(self._fetch_error)
        else:
            self._mailbox.post(Finish(self._offsets.final()))

    def _end(self, error: BaseException | None) -> None:
        self.phase = Phase.ENDED
        self._stop_timers()
        self._pool.close()
        self._ended(self, error)

    def _stop_timers(self) -> None:
        self._availability.stop()
        self.timings.stop()
        self.pace.stop()
        self.suspects.stop()
        self.failures.stop()
        if self._commit_timer is not None:
            self._commit_timer.cancel()
            self._commit_timer = None

    # --- by the operator ----------------------------------------------------------------------

    def set_executors(self, count: int) -> None:
        self._pool.resize(count)
        self._offsets.refill()

    def set_threshold(self, records: int) -> None:
        """What is in flight beyond it stays; nothing is fetched until it is fewer."""
        self._places.threshold = records
        self._offsets.refill()

    def set_rate(self, records_per_second: float | None) -> None:
        self.pace.limit(records_per_second)
        self._offsets.refill()

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False
        self.failures.halted = ""
        self.failures.excuse()
        self.breaker.excuse()
        self.go_on()

    def reset_breaker(self) -> bool:
        """Go on as if the application had answered; False if nothing was held."""
        if not self.breaker.reset(self._scheduler.time()):
            return False
        self.failures.excuse()
        self.go_on()
        return True

    def cancel(self, entry: InFlight) -> bool:
        """Cut the request that carries this record, if there is one; it is the caller's then.

        What travelled with it goes again, or back, and nobody is charged.
        """
        cut = self._pool.cancel(entry)
        again = []
        for each in cut:
            self._outages.cancelled(each)
            if each is entry:
                continue
            if self._keeps and (self.goes_back(each) or not each.record.assignment.live):
                self.leave(each)
            else:
                again.append(each)
        self._ready.put_back(again)
        return bool(cut)

    # --- from the fetch thread ----------------------------------------------------------------

    def assigned(self, starts: Sequence[Start]) -> None:
        self.membership.joining_since = None
        self._offsets.assigned(starts)
        if starts:  # a rebalance that changes nothing for this member is told as well
            self._log.info(
                "assigned %s", ", ".join(f"{s.assignment} at {s.offset}" for s in starts)
            )

    def received(self, records: list[Record]) -> None:
        self.counters.received += len(records)
        self.timings.fold()
        if self.phase is not Phase.RUNNING:
            self._free(records)
            return
        unwanted = self._offsets.received(records, self._scheduler.time())
        if unwanted:
            self.counters.already_done += len(unwanted)
            self._free(unwanted)
        self._pool.kick()

    def positions(self, positions: Mapping[Assignment, int]) -> None:
        if self.phase is Phase.RUNNING:  # else what was received before them was thrown away
            self._offsets.positions(positions)

    def revoke(self, request: int, assignments: Sequence[Assignment], timeout: float) -> None:
        self.counters.rebalances += 1
        self._log.info("revoked %s", ", ".join(map(str, assignments)))
        self._revocations.leaving.update(assignments)
        self._withdraw(assignments)
        held = chain(self._pool.entries(), self._parker.entries()) if self._keeps else ()
        self._revocations.begin(request, assignments, held, timeout)

    def lost(self, assignments: Sequence[Assignment]) -> None:
        self.counters.rebalances += 1
        self._log.warning("lost %s: others may own them by now", ", ".join(map(str, assignments)))
        self._revocations.leaving.update(assignments)
        self._withdraw(assignments)
        self._offsets.release(assignments)
        self._forget(assignments)

    def commit_done(self, result: CommitResult) -> None:
        if result.error is not None:
            self.counters.commit_failures += 1
            description = str(result.error)
            key = ("commit", gist(description))
            self._repeating.limited(key, logging.WARNING, "commit failed: %s", description)
        given_up = self._offsets.commit_done(result)
        unknown = {position.assignment for position in result.unknown}
        if lost := [each.record for each in given_up if each.record.assignment in unknown]:
            self._log.error(
                "%d records may be lost, whether they were committed is unknown: %s",
                len(lost),
                ", ".join(map(repr, lost)),
            )
        self._leave_all(given_up)
        self._pool.kick()
        self._check_drained()

    def out_of_range(self, assignment: Assignment, offset: int, reason: str) -> None:
        self.counters.out_of_range += 1
        self._log.error("%s: %s; reading on at %d", assignment.partition, reason, offset)

    def fetch_trouble(self, description: str) -> None:
        self.trouble.told(description, self._scheduler.time())
        key = ("kafka", gist(description))
        self._repeating.limited(key, logging.WARNING, "kafka: %s", description)

    def dead_letter_topic_missing(self, missing: bool) -> None:
        """Told before anything has to be parked."""
        self.without_dead_letter_topic = missing
        dead_letter = self.settings.dead_letter
        if missing and dead_letter is not None:
            self._log.error(
                "the dead-letter topic %s does not exist: what is to be parked will wait until it"
                " does",
                dead_letter.topic,
            )

    # --- rebalance ----------------------------------------------------------------------------

    def _withdraw(self, assignments: Sequence[Assignment]) -> None:
        """Give back what was not started: the next owner has it."""
        entries = self._offsets.withdraw(assignments)
        if self._keeps:
            entries += self._delays.discard(frozenset(assignments))
            entries += self.suspects.discard(assignments)
        self._leave_all(entries)

    def _answer_revocation(self, revocation: Revocation) -> None:
        positions = self._offsets.release(revocation.assignments)
        self._mailbox.post(Revoked(revocation.request, positions))
        self._forget(revocation.assignments)

    def _forget(self, assignments: Iterable[Assignment]) -> None:
        self.membership.joining_since = self._scheduler.time()
        for assignment in assignments:
            assignment.live = False
            self._revocations.leaving.discard(assignment)
            if self._keeps:
                self._leave_all(self._parker.discard(assignment))

    # --- dispatch -----------------------------------------------------------------------------

    def _may_dispatch(self) -> bool:
        if self.phase is _RUNNING:
            return not self.paused and not self.failures.halted
        # What is committed is finished even while paused.
        return (
            self.phase is _DRAINING
            and self.breaker.state in (State.UP, State.TRIAL)
            and self._pool.wanted > 0
        )

    def _take(self) -> InFlight | None:
        """The next record for an executor, if one may start."""
        # Asked here first, to spare every record a call.
        stopped = self.phase is not _RUNNING or self.paused or self.failures.halted
        if stopped and not self._may_dispatch():
            return None
        entry = self._ready.take() if self.breaker.free else self._take_alone()
        if not self._keeps and self._ready.count <= self._offsets.low:
            self._offsets.refill()
        return entry

    def _take_alone(self) -> InFlight | None:
        """The next suspect or trial, if one may start."""
        breaker, busy = self.breaker, self._pool.busy
        if not breaker.may_start():
            return None
        if breaker.state is State.UP:
            return self.suspects.take(busy)
        entry = self.suspects.take_trial(busy) if self._keeps else self._ready.take()
        breaker.started(entry)
        return entry

    def _take_batch(self) -> Sequence[InFlight] | None:
        assert self._batching is not None
        batch = self._batching.take()
        if not self._keeps and self._ready.count <= self._offsets.low:
            self._offsets.refill()
        return batch

    def _allowance(self) -> int:
        """How many more records are to be committed for the executors (at_most_once).

        Enough to keep them busy while the next run is committed, and no more: what is committed
        and not started is lost in a crash.
        """
        if not self.breaker.may_start() or not self._may_dispatch():
            return 0
        if self.breaker.state is State.TRIAL:
            return 1 - len(self._ready)
        slots = self._pool.effective
        if self._batching is not None:
            slots *= self._batching.max_records
        allowed = self._run_ahead.allowance(len(self._ready), slots, self._places.threshold)
        rate = self.pace.rate
        if rate is not None:  # of a second, so that a drain need not wait for the others
            allowed = min(allowed, max(1, int(rate)) - len(self._ready))
        return allowed

    def _clear_later(self, again: Callable[[], None]) -> None:
        self._scheduler.call_later(CLEAR_AGAIN_SECONDS, again)

    def app_is_reachable(self) -> None:
        if self.phase is Phase.WAITING:
            self._log.info("the application is there; fetching begins")
            self.phase = Phase.RUNNING
            self.membership.joining_since = self._scheduler.time()
            self._start_fetching()
            self._commit_timer = self._scheduler.call_later(self._commit_interval, self._tick)
        self.go_on()

    def leave_group(self) -> None:
        self._log.warning(
            "%s has not been there for %g s: leaving the group until it is back (%s)",
            self.settings.target,
            self.settings.leave_after_held_seconds,
            self.breaker.last_error,
        )
        self._mailbox.post(Leave())

    def return_to_group(self) -> None:
        self._log.info("the application can be reached: joining the group again")
        self.membership.joining_since = self._scheduler.time()
        self._mailbox.post(Rejoin())

    def go_on(self) -> None:
        """There may be something to take, or somebody to take it."""
        self._offsets.refill()
        self._pool.kick()

    def _tick(self) -> None:
        self._commit_timer = self._scheduler.call_later(self._commit_interval, self._tick)
        self._offsets.commit()
        if self._relief is not None:
            if self.breaker.state is State.UP and self._may_dispatch():
                self._relief.look(self._offsets.partitions(), self._scheduler.time())
            else:
                self._relief.forget()

    def _finished(self, entry: InFlight, result: Result, started_at: float, now: float) -> None:
        """An attempt came to something."""
        live = not self._keeps or entry.record.assignment.live
        if result is not self._accepted or not live:
            verdict = classify(result, self._answers, answered_before=self.counters.delivered > 0)
            if not live:
                self.timings.attempted(verdict.outcome, now - started_at)
                self._late([entry], result, verdict)
                return
            if verdict.outcome is not Outcome.DELIVERED:
                self.timings.attempted(verdict.outcome, now - started_at)
                self._calm = False
                self.failures.failed([entry], result, verdict)
                return
            self._accepted = result
        counters = self.counters
        counters.delivered += 1
        if not counters.delivered % self.timings.every:
            self.timings.took(entry.record, started_at, now)
        if not self._calm:
            self._delivered([entry])
        self._offsets.settled(entry)
        self.leave(entry)

    def _batch_finished(
        self, entries: Sequence[InFlight], result: Result, verdict: Verdict, batch: int
    ) -> None:
        """An attempt came to one thing for all these; batch: for how many."""
        if self._keeps:
            late = [entry for entry in entries if not entry.record.assignment.live]
            if late:
                self._late(late, result, verdict)
                entries = [entry for entry in entries if entry.record.assignment.live]
        if not entries:
            return
        if verdict.outcome is not Outcome.DELIVERED:
            self._calm = False
            self.failures.failed(entries, result, verdict, batch)
            return
        self.counters.delivered += len(entries)
        self.timings.arrived(entries, self._scheduler.time())
        if not self._calm:
            self._delivered(entries)
        for entry in entries:
            self.settle(entry)

    def _late(self, entries: Sequence[InFlight], result: Result, verdict: Verdict) -> None:
        """Their partition has left: the result says something of the application only."""
        self.counters.late_results += len(entries)
        self._calm = False
        if verdict.outcome is Outcome.DELIVERED:
            self.counters.delivered += len(entries)
            self.timings.arrived(entries, self._scheduler.time())
            self._delivered(entries)
        else:
            if verdict.outcome is Outcome.APP_DOWN:
                self._outages.app_down(entries[0], describe(result), verdict.opens_breaker)
            else:
                self._outages.failed(entries[0], result)
            for entry in entries:
                self.suspects.ended(entry, innocent=True)
        for entry in entries:
            self.leave(entry)

    def _delivered(self, entries: Sequence[InFlight]) -> None:
        """Records were delivered while not all was calm."""
        self._outages.delivered(entries)
        self._places.starved = False
        forgiven = self.failures.delivered(len(entries))
        self._calm = forgiven and self.breaker.free and self.suspects.none

    def app_is_gone(self, error: str) -> None:
        self._calm = False
        self._outages.app_down(None, error, at_once=True)

    def limit_executors(self, limit: int | None) -> None:
        self._pool.limit(limit)

    @property
    def executors_wanted(self) -> int:
        return self._pool.wanted

    @property
    def nothing_to_try(self) -> bool:
        return self.in_flight <= self.waits_to_be_parked

    def fetch_one_to_try(self, wanted: bool) -> None:
        self._places.starved = wanted

    def waits_again(self) -> None:
        if self.phase is _DRAINING:
            self._scheduler.call_soon(self._check_drained)  # its batch is not all buffered yet

    def goes_back(self, entry: InFlight) -> bool:
        if not self._keeps:
            return False
        return (
            entry.record.assignment in self._revocations.leaving or self.phase is not Phase.RUNNING
        )

    def _due(self, entries: list[InFlight]) -> None:
        for entry in entries:
            self.failures.due(entry)
        self._pool.kick()
        self._check_drained()

    # --- leaving ------------------------------------------------------------------------------

    def park(self, entry: InFlight, result: Result, reason: str) -> None:
        self._calm = False  # the next delivery ends the row
        self._parker.park(entry, result, reason)

    def _parked(self, entry: InFlight) -> None:
        self.counters.parked += 1
        self.settle(entry)

    def has_later(self, entry: InFlight) -> bool:
        return entry.record.tier + 1 < len(self.retry_topics)

    def retry_later(self, entry: InFlight) -> RetryTopic:
        self._calm = False
        tier = min(entry.record.tier + 1, len(self.retry_topics) - 1)
        topic = self.retry_topics[tier]
        self._parker.retry(entry, topic)
        return topic

    def _retried(self, entry: InFlight) -> None:
        self.counters.retried_later += 1
        self.settle(entry)

    def settle(self, entry: InFlight) -> None:
        """The record is done for good."""
        self._offsets.settled(entry)
        self.leave(entry)

    def leave(self, entry: InFlight) -> None:
        """The record is not in flight any more."""
        record = entry.record
        record.assignment.freed += 1
        places = self._places
        places.freed_bytes += record.size
        places.freed += 1
        if 0 < places.wake_at <= places.freed:
            places.wake_at = 0
            self._mailbox.post(Wake())
        if self._open_revocations:
            self._revocations.left(entry)
        if self.phase is _DRAINING:
            self._scheduler.call_soon(self._check_drained)  # the executor is not free yet

    def give_back(self, entry: InFlight) -> None:
        self._given_back += self.phase is _DRAINING
        self.leave(entry)

    def _leave_all(self, entries: Iterable[InFlight]) -> None:
        for entry in entries:
            self.leave(entry)

    def _free(self, records: Iterable[Record]) -> None:
        """Records that never became an entry leave in flight."""
        places = self._places
        for record in records:
            record.assignment.freed += 1
            places.freed_bytes += record.size
            places.freed += 1

    # --- what is -------------------------------------------------------------------------------

    @property
    def executing(self) -> int:
        """Records whose requests run."""
        if self._batching is None:
            return self._pool.busy
        return sum(1 for _ in self._pool.entries())

    @property
    def buffered(self) -> int:
        return max(0, self.in_flight - self.executing - self.delayed)

    @property
    def delayed(self) -> int:
        return len(self._delays) + self.waits_to_be_parked

    @property
    def in_flight(self) -> int:
        return self._places.in_flight

    @property
    def in_flight_bytes(self) -> int:
        return self._places.in_flight_bytes

    @property
    def executors(self) -> ExecutorPool[Any]:
        return self._pool

    @property
    def parker(self) -> Parker:
        return self._parker

    @property
    def offsets(self) -> Offsets:
        return self._offsets

    @property
    def delays(self) -> Delays:
        return self._delays

    @property
    def ready(self) -> Buffer:
        return self._ready

    @property
    def threshold(self) -> int:
        """As wanted; what is in flight may be more for a while after it was lowered."""
        return self._places.threshold

    def is_leaving(self, assignment: Assignment) -> bool:
        """Whether the partition is being given up, or has been."""
        return assignment in self._revocations.leaving or not assignment.live

    @property
    def revoking(self) -> int:
        """Records that a revocation waits for."""
        return sum(len(each.waiting) for each in self._open_revocations.values())

    @property
    def startable(self) -> int:
        """Buffered records that an executor could take now."""
        return len(self._ready) + len(self.suspects)

    @property
    def waits_to_be_parked(self) -> int:
        """Records that go on to another topic, or will once they may."""
        return len(self._parker) + self.failures.waiting

    @property
    def oldest(self) -> float | None:
        """When the record that is longest in flight was received; scheduler time."""
        candidates = [self._offsets.oldest, self._ready.oldest, self._delays.oldest]
        held = chain(self._pool.entries(), self._parker.entries(), self.failures.held_back)
        candidates += [entry.received_at for entry in held]
        return min((each for each in candidates if each is not None), default=None)
