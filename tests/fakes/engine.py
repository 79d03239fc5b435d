"""The engine in a test: real routes and fetchers, fake edges, one simulated clock, no thread.

Purpose: whole members of a group in one deterministic run. Every choice (whose fetch thread takes
its next step, whether its loop runs before, how far time moves) comes from one seed.

Owner: the test. Invariants:
* A member's fetch thread takes one step at a time. Where it waits (for a command, for a broker that
  does not answer) the clock runs, with it everything on the loops, but no other fetch thread.
* After each step the judge has judged, and no member holds more than its threshold.
* A member that crashed does nothing any more; its group learns of it when its session ends.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import Any, Final

from sidecar.core.ledger import InFlight
from sidecar.core.places import Places
from sidecar.dispatch.at_most_once import AtMostOnce
from sidecar.dispatch.by_hand import ByHand, Coordinates
from sidecar.dispatch.route import Phase, Route
from sidecar.errors import Conflict, NotFound, SourceError
from sidecar.kafka.fetcher import Fetcher
from sidecar.model import Assignment, Guarantee, OnExhausted, Partition, Record, RetryTopic
from sidecar.ports import Committed
from sidecar.settings import DeadLetterSettings, RouteSettings
from sidecar.status import RecordAction, RecordPlace
from tests.fakes.application import Behaviour, FakeApp, FakeDelivery, Reply, Request, answer
from tests.fakes.broker import FakeBroker, Protocol
from tests.fakes.clock import SimulatedScheduler
from tests.fakes.edges import GROUP, TOPIC, JudgedParking, SteppedSource
from tests.fakes.judge import Broken, Judge
from tests.fakes.process import Crashed, MemberClock, SimulatedMailbox

__all__ = ["GROUP", "TOPIC", "Member", "World"]

SESSION_SECONDS: Final = 6.0
MOST_STEPS_UNPOLLED: Final = 200
DEADLINE_SLACK_SECONDS: Final = 0.3  # one timer stands for all deadlines, a tick apart
# How far time moves after a step; None: not even what is due on the loops is run.
MOVES: Final[Sequence[float | None]] = (None, None, 0.0, 0.002, 0.01, 0.05)


class Member:
    """One sidecar with its application."""

    def __init__(self, world: World, name: str, settings: RouteSettings) -> None:
        self.world: Final = world
        self.name: Final = name
        self.settings: Final = settings
        self.keeps: Final[bool] = settings.guarantee is Guarantee.AT_LEAST_ONCE
        self.clock: Final = MemberClock(world.scheduler)
        self.app: Final = FakeApp(self.clock, self._behave, name, world.judge)
        self.parking: Final = JudgedParking(self)
        self.mailbox: Final = SimulatedMailbox(self.clock)
        self.places: Final = Places(settings.threshold, settings.threshold_bytes)
        self.source: Final = SteppedSource(self, world.protocol)
        self.route: Final = Route(
            settings,
            commit_interval_seconds=world.commit_interval_seconds,
            scheduler=self.clock,
            wall_clock=world.wall_clock,
            random=world.random,
            delivery=FakeDelivery(self.app),
            parking=self.parking if settings.dead_letter or world.retry_topics else None,
            mailbox=self.mailbox,
            places=self.places,
            retry_topics=world.retry_topics,
            start_fetching=self._start_fetching,
            failed=self._failed,
            ended=self._ended,
        )
        self.fetcher: Final = Fetcher(
            source=self.source,
            sink=self.route,
            tell=self._tell,
            mailbox=self.mailbox,
            places=self.places,
            clock=self.clock.time,
            revoke_seconds=world.revoke_seconds,
            clears_before_dispatch=not self.keeps,
            from_end=world.from_end,
            retry_topics=world.retry_topics,
            wall_clock=world.wall_clock,
        )
        self.fetching = False
        self.hanging = False  # the fetch thread takes no step
        self.failure: BaseException | None = None
        self.route_ended = False
        self.ended_at = 0.0
        self.assignments: Final[set[Assignment]] = set()  # all there ever were
        self.held: Final[dict[Partition, Assignment]] = {}  # and were not taken away
        self._in_flight = 0  # when it was last looked at
        self._polls = (0, 0)  # how many there were, and steps since the last
        self.route.start()

    @property
    def running(self) -> bool:
        """Neither crashed nor ended."""
        return self.clock.alive and not self.route_ended

    @property
    def owned(self) -> frozenset[Partition]:
        return self.source.owned

    def step(self) -> None:
        """The fetch thread's next step, as Fetcher.run would take it."""
        if not self.fetching or self.hanging:
            return
        fetcher = self.fetcher
        try:
            if not fetcher.finishing:
                fetcher.step()
                self._check_membership()
                return
            if not fetcher.finish():
                return
        except SourceError as problem:
            fetcher.leave_after(problem)
            self._fetching_ended(problem)
        except Crashed:
            pass
        else:
            self._fetching_ended(None)

    def _tell(self, told: Callable[..., object], *what: Any) -> None:
        if told == self.route.assigned:
            assignments = [start.assignment for start in what[0]]
            self.assignments.update(assignments)
            self.held.update((each.partition, each) for each in assignments)
        self.clock.call_soon_threadsafe(told, *what)

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Its fetch thread does not get to run."""
        self.hanging = True
        yield
        self.hanging = False

    def resume(self) -> None:
        """As an operator does."""
        self.world.judge.excused(self.name)
        self.route.resume()

    def drain(self, cut_after: float | None = None) -> None:
        """As a stop signal does."""
        self.world.judge.leaves(self.name)
        self.route.drain()
        if cut_after is not None:
            self.clock.call_later(cut_after, self.route.cut)

    def in_flight(self, executing: bool = False) -> list[InFlight]:
        """What an operator could name, or of that what executes."""
        route = self.route
        held: Sequence[Any] = (route.executors,)
        if not executing:
            held = (route.executors, route.delays, route.parker, route.ready)
        return [entry for place in held for entry in place.entries()]

    def treat_by_hand(self, action: RecordAction, record: Record) -> RecordPlace | None:
        """As an operator asks for it; None where it is refused."""
        by_hand = ByHand(self.route)
        where = Coordinates(record.topic, record.partition, record.offset)
        try:
            with self.world.judge.by_hand(record, action):
                place = by_hand.do(action, where)
        except (Conflict, NotFound):
            return None
        if action is not RecordAction.PARK:
            self.parking.failed.pop(record, None)
        return place

    def crash(self) -> None:
        """Vanish without a word. The group learns of it after the session's time."""
        self.clock.alive = False
        self.world.judge.crashed(self.name)
        if self.fetching:
            self._session_ends()

    def check(self) -> None:
        places = self.places
        self.tell_lost()
        # A threshold that was lowered takes effect as records settle.
        most_records = max(places.threshold, self._in_flight)
        if not 0 <= places.in_flight <= most_records:
            raise Broken(f"{self.name} has {places.in_flight} records in flight")
        self._in_flight = places.in_flight
        most = places.threshold_bytes + self.source.last_batch_bytes
        if not 0 <= places.in_flight_bytes <= most:
            raise Broken(f"{self.name} has {places.in_flight_bytes} bytes in flight")
        if not self.keeps and self.route.phase in (Phase.RUNNING, Phase.DRAINING):
            self._check_exposure()
        pool = self.route.executors
        if len(self.app.executing) != pool.busy:
            raise Broken(f"{pool.busy} busy executors, {len(self.app.executing)} requests")

        now = self.clock.time()
        if self.clock.stalled:
            return
        if self.app.executing:
            oldest = next(iter(self.app.executing))
            if now - oldest.sent_at > self.settings.timeout_seconds + DEADLINE_SLACK_SECONDS:
                raise Broken(f"{oldest.record} has been executing since {oldest.sent_at:g}")
        if self.parking.failed and self.route.phase in (Phase.RUNNING, Phase.DRAINING):
            self._check_writes(now)
        if self._could_start() and (self.world.scheduler.next_at or math.inf) > now:
            raise Broken(f"{self.name} has idle executors and does not start what is buffered")

    def _check_writes(self, now: float) -> None:
        """A write that failed is repeated for as long as its record is held."""
        latest = now - self.settings.retry.max_backoff_seconds - DEADLINE_SLACK_SECONDS
        for record, failed_at in self.parking.failed.items():
            if failed_at < latest and record.assignment.live:
                raise Broken(f"{record} was not written, and is not written again")

    def _could_start(self) -> bool:
        route = self.route
        return (
            len(route.ready) > 0
            and route.executors.busy < route.executors.effective
            and route.phase is Phase.RUNNING
            and not route.paused
            and not route.failures.halted
            and route.breaker.free
            and route.pace.rate is None
            and route.settings.batch is None
        )

    def _check_membership(self) -> None:
        """Whatever is full or away, it is polled: else the group would do without this member."""
        polls, steps = self._polls
        if polls != self.source.polls:
            self._polls = (self.source.polls, 0)
        elif steps == MOST_STEPS_UNPOLLED:
            raise Broken(f"{self.name} has not polled for {steps} steps")
        else:
            self._polls = (polls, steps + 1)

    def tell_lost(self) -> None:
        offsets = self.route.offsets
        if isinstance(offsets, AtMostOnce):
            self.world.judge.perhaps_lost[self.name] = offsets.maybe_lost

    def _check_exposure(self) -> None:
        """What a crash would cost is told, and no less."""
        route, judge = self.route, self.world.judge
        exposed = len(judge.exposed[self.name]) - judge.perhaps_lost[self.name]
        told = route.offsets.exposure(route.executing, route.delayed).would_lose
        if exposed > told:
            raise Broken(f"{self.name} tells of {told} records exposed, {exposed} are")

    def _behave(self, request: Request) -> Reply:
        executing, effective = len(self.app.executing), self.route.executors.effective
        if executing > effective:
            raise Broken(f"{executing} requests at a time, {effective} are allowed")
        return self.world.behave(request)

    def _start_fetching(self) -> None:
        self.fetching = True
        self.fetcher.start()

    def _fetching_ended(self, error: BaseException | None) -> None:
        self.fetching = False
        self.clock.call_soon_threadsafe(self.route.ended, error)
        self._session_ends()  # should the broker not have heard of it

    def _session_ends(self) -> None:
        world = self.world
        world.scheduler.call_later(SESSION_SECONDS, world.broker.expel, GROUP, self.name)

    def _failed(self, route: Route, error: BaseException) -> None:
        """As the runtime does: drain what can be."""
        self.failure = error
        self.clock.call_soon(self.drain)

    def _ended(self, route: Route, error: BaseException | None) -> None:
        self.failure = self.failure or error
        self.route_ended = True
        self.ended_at = self.clock.time()
        assert self.route.phase is Phase.ENDED


class World:
    """A broker, members and their applications, driven by one seed.

    settings: fields of RouteSettings. behave: what the applications answer, None: 204 after 10 ms.
    """

    def __init__(
        self,
        seed: int = 0,
        *,
        guarantee: Guarantee = Guarantee.AT_LEAST_ONCE,
        partitions: int = 1,
        members: int = 1,
        threshold: int = 100,
        protocol: Protocol = Protocol.COOPERATIVE,
        behave: Behaviour | None = None,
        commit_interval_seconds: float = 1.0,
        revoke_seconds: float = 5.0,
        from_end: bool = False,
        scheduler: SimulatedScheduler | None = None,
        **settings: Any,
    ) -> None:
        self.random: Final = Random(seed)
        self.pick: Callable[[Sequence[Any]], Any] = self._pick
        self.scheduler: Final = scheduler or SimulatedScheduler()
        self.broker: Final = FakeBroker()
        self.broker.create_topic(TOPIC, partitions)
        self.protocol: Final = protocol
        self.broker.group(GROUP, protocol)
        self.commit_interval_seconds: Final = commit_interval_seconds
        self.revoke_seconds: Final = revoke_seconds
        self.from_end: Final = from_end
        self.behaviour: Behaviour = behave or (lambda request: answer())
        if settings.get("on_exhausted") is OnExhausted.PARK:
            settings["dead_letter"] = DeadLetterSettings(topic="dead")
        if guarantee is Guarantee.AT_MOST_ONCE:
            settings["loss_budget"] = threshold
        self.settings: Final = RouteSettings(
            topics=(TOPIC,),
            target="http://127.0.0.1:8080/",
            guarantee=guarantee,
            threshold=threshold,
            **settings,
        )
        delays = [topic.delay_seconds for topic in self.settings.retry.topics]
        self.retry_topics: Final = [
            RetryTopic(f"retry.{delay:g}s", delay) for delay in ((0.0, *delays) if delays else ())
        ]
        for topic in self.retry_topics:
            self.broker.create_topic(topic.name)
        self.judge: Final = Judge(self.broker, GROUP, self.settings)
        self.moves: Sequence[float | None] = MOVES
        self.turns = 0
        self.members: list[Member] = []
        for _ in range(members):
            self.join()

    @property
    def now(self) -> float:
        return self.scheduler.time()

    def wall_clock(self) -> float:
        return 1_700_000_000.0 + self.now

    def behave(self, request: Request) -> Reply:
        return self.behaviour(request)

    # --- members and records ------------------------------------------------------------------

    def join(self, **settings: Any) -> Member:
        """One more member, with other settings than the world's if given."""
        own = self.settings.model_copy(update=settings)
        member = Member(self, f"member-{len(self.members)}", own)
        self.members.append(member)
        return member

    @property
    def running(self) -> list[Member]:
        return [member for member in self.members if member.running]

    def produce(self, count: int, partition: int = 0) -> None:
        for _ in range(count):
            self.broker.produce(TOPIC, partition, b"%d" % self.end(partition))

    def end(self, partition: int = 0) -> int:
        """The end offset of the partition."""
        return self.broker.topics[TOPIC].logs[partition].end

    # --- time ---------------------------------------------------------------------------------

    def turn(self) -> None:
        """One step of one member, and some time."""
        self.turns += 1
        running = self.running
        if running:
            self.pick(running).step()
        move = self.pick(self.moves) if running else self.moves[-1]
        if move is not None:
            self.scheduler.advance(move)
        self.judge.commits()
        for member in running:
            if member.running:
                member.check()

    def _pick(self, among: Sequence[Any]) -> Any:
        return among[0] if len(among) == 1 else self.random.choice(among)

    def run(self, seconds: float) -> None:
        until = self.now + seconds
        while self.now < until:
            self.turn()

    def run_until(self, condition: Callable[[], bool], limit: float = 60.0) -> None:
        until = self.now + limit
        while not condition():
            assert self.now < until, f"not within {limit:g} s"
            self.turn()

    # --- what is -------------------------------------------------------------------------------

    def committed(self, partition: int = 0) -> Committed:
        return self.broker.committed(GROUP, TOPIC, partition)

    def committed_offsets(self, partition: int = 0) -> list[int]:
        """Every offset that was ever committed, in order."""
        history = self.broker.group(GROUP).history
        return [each.offset for each in history if each.partition.number == partition]

    def lag(self) -> int:
        """What an onlooker of the group sees: log ends minus committed offsets."""
        return sum(
            log.end - (self.broker.committed(GROUP, name, number).offset or log.start)
            for name in (TOPIC, *(topic.name for topic in self.retry_topics))
            for number, log in enumerate(self.broker.topics[name].logs)
        )

    @property
    def requests(self) -> list[Request]:
        """Everything the applications saw, by time."""
        return sorted(request for member in self.members for request in member.app.requests)

    def offsets_sent(self, partition: int = 0) -> list[int]:
        return [each.offset for each in self.requests if each.partition.number == partition]

    def assignments(self, member: Member) -> dict[int, Assignment]:
        return {
            each.assignment.number: each.assignment for each in member.route.offsets.partitions()
        }
