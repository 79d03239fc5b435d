"""A route: records of some topics go to one target, with its own everything.

Owner of all its parts, and of where it is in its life. It puts the parts together, starts and ends
them, and is what the others talk to: the fetch thread (ports.FetchSink), the probes
(availability.Owner), an operator. All on the loop, all in plain callbacks.

The way of a record: received here, into the buffer (`ready`); `feed` says when it may start and an
executor takes it; `results` hears what the attempt came to; `failures` says what becomes of it if
it was not delivered; by `exits` it leaves. `rebalances` takes away what is another's by now.

Invariants:
* Every record that was handed over leaves exactly once; in flight is what has not.
* A record that waits holds a place under the threshold but no executor.
* Cancelling (revocation, stop, shrinking) is never a failure of the application: it counts no
  attempt, parks nothing and settles nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from itertools import chain
from random import Random
from typing import Any, Final

from sidecar.core.breaker import Breaker
from sidecar.core.buffer import Buffer
from sidecar.core.commands import Finish, Leave, Rejoin, StopFetching
from sidecar.core.ledger import InFlight
from sidecar.core.membership import Membership
from sidecar.core.places import Places
from sidecar.core.run_ahead import RunAhead
from sidecar.core.trouble import Trouble
from sidecar.dispatch import relief
from sidecar.dispatch.at_least_once import AtLeastOnce
from sidecar.dispatch.at_most_once import AtMostOnce
from sidecar.dispatch.availability import Availability
from sidecar.dispatch.commits import Commits
from sidecar.dispatch.context import Context
from sidecar.dispatch.delays import Delays
from sidecar.dispatch.drain import Drain
from sidecar.dispatch.executors import ExecutorPool
from sidecar.dispatch.exits import Exits
from sidecar.dispatch.failures import Failures
from sidecar.dispatch.feed import Feed
from sidecar.dispatch.offsets import Offsets
from sidecar.dispatch.outages import Outages
from sidecar.dispatch.pace import Pace
from sidecar.dispatch.parker import Parker
from sidecar.dispatch.rebalances import Rebalances
from sidecar.dispatch.relief import Relief
from sidecar.dispatch.results import Results
from sidecar.dispatch.revocations import Revocations
from sidecar.dispatch.suspects import Suspects
from sidecar.dispatch.timings import Timings
from sidecar.logs import gist
from sidecar.model import Assignment, Record, RetryTopic, Start
from sidecar.ports import CommitResult, Delivery, Mailbox, Parking, Scheduler
from sidecar.settings import RouteSettings

log = logging.getLogger(__name__)


class Phase(Enum):
    """Where a route is in its life."""

    WAITING = "waiting"  # for the application; nothing is fetched yet
    RUNNING = "running"
    DRAINING = "draining"  # finishing what executes
    LEAVING = "leaving"  # the last commit, and out of the group
    ENDED = "ended"


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
        self.retry_topics: Final = retry_topics  # by tier, see Settings.retry_topics
        self._scheduler = scheduler
        self._mailbox = mailbox
        self._places = places
        self._start_fetching = start_fetching
        self._failed = failed
        self._ended = ended
        context = Context(settings, scheduler, wall_clock, random, mailbox, places, log)
        self._log, self._repeating = context.log, context.repeating
        self.counters: Final = context.counters
        self.timings: Final = Timings(scheduler, wall_clock, self.counters)

        self.phase = Phase.WAITING
        # Of what an operator may change. It begins at the time, so that none comes again after a
        # restart.
        self.generation = int(wall_clock() * 1000)
        self.trouble: Final = Trouble()
        self.without_dead_letter_topic = False
        self._fetch_error: BaseException | None = None

        # Where records are, and how they leave.
        self.ready: Final = Buffer()
        self.delays: Final = Delays(scheduler, self._due)
        self.offsets: Final[Offsets] = (
            AtLeastOnce(self.ready, mailbox)
            if context.keeps
            else AtMostOnce(context, self.ready, self._allowance)
        )
        self.revocations: Final = Revocations(scheduler, self._log)
        self.exits: Final = Exits(context, self.offsets, self.revocations)
        self.parker: Final = Parker(
            scheduler,
            wall_clock,
            context.schedule,
            parking,
            self.exits.parked,
            self._repeating,
            self.exits.moved,
        )

        # Whether the application is there, and what attempts come to.
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
            scheduler, self.breaker, self.ready, settings.timeout_seconds, self.go_on
        )
        outages = Outages(context, self.breaker, self._availability, self.suspects, self.go_on)
        self.failures: Final = Failures(
            self,
            context,
            breaker=self.breaker,
            outages=outages,
            suspects=self.suspects,
            delays=self.delays,
            parker=self.parker,
            exits=self.exits,
            retry_topics=retry_topics,
        )

        # Who executes what.
        self.feed: Final = Feed(
            context,
            delivery,
            ready=self.ready,
            breaker=self.breaker,
            suspects=self.suspects,
            offsets=self.offsets,
            failures=self.failures,
            results=Results(context, self.timings, self.offsets, self.exits, self.failures),
            timings=self.timings,
        )
        self.executors: Final[ExecutorPool[Any]] = self.feed.executors
        self.pace: Final[Pace[Any]] = self.feed.pace

        # When they are committed, and what takes them away.
        look: Callable[[], None] | None = None
        if relief.is_possible(settings, retry_topics):
            look = Relief(
                context, self.breaker, self.offsets, self.delays, self.failures, self.feed
            ).look
        self._commits = Commits(context, commit_interval_seconds, self.offsets, look)
        self._rebalances = Rebalances(
            context,
            self.revocations,
            self.membership,
            offsets=self.offsets,
            delays=self.delays,
            suspects=self.suspects,
            pool=self.executors,
            parker=self.parker,
            exits=self.exits,
        )
        self._drain = Drain(
            context,
            ready=self.ready,
            delays=self.delays,
            suspects=self.suspects,
            offsets=self.offsets,
            parker=self.parker,
            failures=self.failures,
            exits=self.exits,
            feed=self.feed,
            over=self._drained,
        )

    # --- life ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Look for the application; fetching begins when it is there."""
        self.executors.resize(self.settings.executors)
        self.pace.limit(self.settings.max_records_per_second)
        self.timings.start()
        self._availability.start()

    def drain(self) -> None:
        """Stop fetching, give back what was not started, finish what executes, then leave."""
        if self.phase is Phase.WAITING:
            self._end(None)
        elif self.phase is Phase.RUNNING:
            self.phase = Phase.DRAINING
            self.membership.stay()
            self._mailbox.post(StopFetching())
            self._drain.begin()

    def cut(self) -> None:
        """End at once: what is not finished stays uncommitted, or is lost (at_most_once)."""
        self.drain()
        self._drain.cut()
        if self.phase is Phase.LEAVING:
            self._mailbox.post(Finish(()))  # the last commit is tried once more at most

    @property
    def lost_records(self) -> Sequence[Record]:
        """What was cut (at_most_once)."""
        return self._drain.lost

    def _drained(self) -> None:
        self.phase = Phase.LEAVING
        self._stop_parts()
        if self._fetch_error is not None:
            self._end(self._fetch_error)
        else:
            self._mailbox.post(Finish(self.offsets.final()))

    def ended(self, error: BaseException | None) -> None:
        """The fetch thread is over."""
        if self.phase is Phase.LEAVING:
            self._end(error)
            return
        # It died. What was committed for at_most_once can still be finished; the rest repeats.
        self._fetch_error = error or RuntimeError("the fetch thread ended by itself")
        self._drain.unanswered = True
        self._failed(self, self._fetch_error)
        self._drain.check()

    def _end(self, error: BaseException | None) -> None:
        self.phase = Phase.ENDED
        self._stop_parts()
        self.executors.close()
        self._ended(self, error)

    def _stop_parts(self) -> None:
        self._availability.stop()
        self.timings.stop()
        self.feed.stop()
        self.suspects.stop()
        self.failures.in_a_row.stop()
        self._commits.stop()

    # --- by an operator -----------------------------------------------------------------------

    @property
    def paused(self) -> bool:
        return self.feed.paused

    def set_executors(self, count: int) -> None:
        self.executors.resize(count)
        self.offsets.refill()

    def set_threshold(self, records: int) -> None:
        """What is in flight beyond it stays; nothing is fetched until it is fewer."""
        self._places.threshold = records
        self.offsets.refill()

    def set_rate(self, records_per_second: float | None) -> None:
        self.pace.limit(records_per_second)
        self.offsets.refill()

    def pause(self) -> None:
        self.feed.paused = True

    def resume(self) -> None:
        self.feed.paused = False
        self.failures.halted = ""
        self.failures.in_a_row.excuse()
        self.breaker.excuse()
        self.go_on()

    def reset_breaker(self) -> bool:
        """Go on as if the application had answered; False if nothing was held."""
        if not self.breaker.reset(self._scheduler.time()):
            return False
        self.failures.in_a_row.excuse()
        self.go_on()
        return True

    # --- from the fetch thread (ports.FetchSink) ----------------------------------------------

    def assigned(self, starts: Sequence[Start]) -> None:
        self._rebalances.assigned(starts)

    def revoke(self, request: int, assignments: Sequence[Assignment], timeout: float) -> None:
        self._rebalances.revoked(request, assignments, timeout)

    def lost(self, assignments: Sequence[Assignment]) -> None:
        self._rebalances.lost(assignments)

    def received(self, records: list[Record]) -> None:
        self.counters.received += len(records)
        self.timings.fold()
        if self.phase is not Phase.RUNNING:
            self.exits.unwanted(records)
            return
        unwanted = self.offsets.received(records, self._scheduler.time())
        if unwanted:
            self.counters.already_done += len(unwanted)
            self.exits.unwanted(unwanted)
        self.executors.kick()

    def positions(self, positions: Mapping[Assignment, int]) -> None:
        if self.phase is Phase.RUNNING:  # else what was received before them was thrown away
            self.offsets.positions(positions)

    def commit_done(self, result: CommitResult) -> None:
        self.exits.leave_all(self._commits.done(result))
        self.executors.kick()
        self._drain.check()

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

    # --- from the probes (availability.Owner) -------------------------------------------------

    def app_is_reachable(self) -> None:
        if self.phase is Phase.WAITING:
            self._log.info("the application is there; fetching begins")
            self.phase = Phase.RUNNING
            self.feed.open()
            self.membership.joining_since = self._scheduler.time()
            self._start_fetching()
            self._commits.start()
        self.go_on()

    def app_is_gone(self, error: str) -> None:
        self.failures.app_is_gone(error)

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

    # --- from its parts -----------------------------------------------------------------------

    def go_on(self) -> None:
        """There may be something to take, or somebody to take it."""
        self.feed.go_on()

    def limit_executors(self, limit: int | None) -> None:
        self.executors.limit(limit)

    @property
    def executors_wanted(self) -> int:
        return self.executors.wanted

    def _allowance(self, run_ahead: RunAhead) -> int:
        return self.feed.allowance(run_ahead)

    def _due(self, entries: list[InFlight]) -> None:
        for entry in entries:
            self.failures.due(entry)
        self.executors.kick()
        self._drain.check()

    # --- what is -------------------------------------------------------------------------------

    @property
    def executing(self) -> int:
        """Records whose requests run."""
        if self.settings.batch is None:
            return self.executors.busy
        return sum(1 for _ in self.executors.entries())

    @property
    def buffered(self) -> int:
        return max(0, self.in_flight - self.executing - self.delayed)

    @property
    def delayed(self) -> int:
        return len(self.delays) + self.waits_to_be_parked

    @property
    def in_flight(self) -> int:
        return self._places.in_flight

    @property
    def in_flight_bytes(self) -> int:
        return self._places.in_flight_bytes

    @property
    def threshold(self) -> int:
        """As wanted; what is in flight may be more for a while after it was lowered."""
        return self._places.threshold

    @property
    def startable(self) -> int:
        """Buffered records that an executor could take now."""
        return len(self.ready) + len(self.suspects)

    @property
    def waits_to_be_parked(self) -> int:
        """Records that go on to another topic, or will once they may."""
        return len(self.parker) + self.failures.waiting

    @property
    def oldest(self) -> float | None:
        """When the record that is longest in flight was received; scheduler time."""
        candidates = [self.offsets.oldest, self.ready.oldest, self.delays.oldest]
        held = chain(
            self.executors.entries(), self.parker.entries(), self.failures.in_a_row.entries()
        )
        candidates += [entry.received_at for entry in held]
        return min((each for each in candidates if each is not None), default=None)
