"""A random schedule of everything that can happen to a group, from one seed.

Purpose: members join, leave, crash and are expelled; the broker refuses commits, does not answer or
is away; applications fail in every way; records come, with holes and transaction markers between
them. Then the weather clears, and everything must have come to an end.

Owner: a simulation test. The invariants are judged throughout (tests.fakes.judge); finish says
what must be true at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from sidecar.model import Answer, Failed, FailureKind, Guarantee, OnExhausted
from sidecar.settings import BatchSettings, RetrySettings, RetryTopicSettings
from sidecar.status import RecordAction
from tests.fakes.application import HANG, Reply, Request, answer
from tests.fakes.broker import CommitFate, Protocol
from tests.fakes.engine import GROUP, TOPIC, Member, World
from tests.fakes.judge import Broken, Coordinates

MOST_MEMBERS: Final = 4
CLEARING_SECONDS: Final = 240.0
CALM_MOVES: Final = (0.0, 0.05, 0.1)


class Storm:
    def __init__(self, seed: int, guarantee: Guarantee) -> None:
        self.random: Final = Random(f"storm {seed}")
        choose = self.random.choice
        self.partitions: Final = choose((1, 2, 3, 5))
        policies = [OnExhausted.PARK, OnExhausted.PARK, OnExhausted.DROP]
        keeps = guarantee is Guarantee.AT_LEAST_ONCE
        if keeps:
            policies.append(OnExhausted.RETRY_FOREVER)
        threshold = choose((3, 10, 40, 200))
        batch = BatchSettings(
            max_records=min(threshold, choose((1, 4, 20))), max_wait_seconds=choose((0, 0.3))
        )
        self.world: Final = World(
            seed,
            guarantee=guarantee,
            partitions=self.partitions,
            threshold=threshold,
            threshold_bytes=choose((1, 1000, 1_000_000, 1_000_000)),
            protocol=choose((Protocol.EAGER, Protocol.COOPERATIVE)),
            behave=self._behave,
            commit_interval_seconds=choose((0.1, 1.0)),
            revoke_seconds=choose((0.5, 5.0)),
            executors=choose((1, 3, 8, 24)),
            timeout_seconds=2.0,
            batch=choose((None, None, batch)),
            on_exhausted=choose(policies),
            max_parked_in_a_row=choose((1, 3, 20)),
            leave_after_held_seconds=choose((0.0, 1.0, 300.0)),
            retry=RetrySettings(
                max_attempts=choose((1, 3)),
                initial_backoff_seconds=0.05,
                max_backoff_seconds=0.5,
                topics=tuple(
                    RetryTopicSettings(delay_seconds=each)
                    for each in choose(((), (0.3,), (0.1, 2.0)) if keeps else ((),))
                ),
            ),
        )
        self.clear = False
        self.overloaded = False
        self.bad = 0  # the status of every answer, after a bad deployment
        # Whether one record in twenty kills its application. Who is to blame can be told only
        # where the loop is not held up meanwhile.
        self.kills: Final = choose((False, False, True))
        self.fates: tuple[CommitFate, ...] = (CommitFate.OK,)
        self.world.broker.fate = lambda: self.random.choice(self.fates)
        self._doing: list[tuple[Callable[[], None], int]] = [
            (self._records, 30),
            (self._join, 6),
            (self._leave, 3),
            (self._crash, 3),
            (self._expel, 6),
            (self._commit_fates, 8),
            (self._broker_away, 3),
            (self._slow_commits, 3),
            (self._app_away, 6),
            (self._batch_answers, 2),
            (self._overload, 3),
            (self._bad_deployment, 3),
            (self._dead_letters, 5),
            (self._executors, 4),
            (self._pause, 3),
            (self._limits, 3),
            (self._record_by_hand, 6),
            (self._new_partition, 1),
            (self._stall, 0 if self.kills else 4),
            (self._retention, 2),
            (self._die, 1),
        ]

    def play(self, scenes: int = 30) -> None:
        actions = [action for action, _ in self._doing]
        weights = [weight for _, weight in self._doing]
        for action in self.random.choices(actions, weights, k=scenes):
            action()
            self.world.run(self.random.choice((0.0, 0.02, 0.1, 0.5)))

    def finish(self) -> None:
        """Clear weather: all that is left is handled, and the members leave in order."""
        world = self.world
        self.clear = True
        world.moves = CALM_MOVES
        self.fates = (CommitFate.OK,)
        world.broker.down = False
        world.broker.commit_delay_seconds = 0.0
        world.broker.release_commits()
        for member in world.running:
            member.app.up = True
            member.route.set_executors(3)
            member.resume()
            member.route.set_rate(None)
            member.parking.error = None
            member.parking.release()
        world.join()  # others may be about to end
        self._allow_more()
        world.run_until(self._all_is_done, CLEARING_SECONDS)
        self._judge_the_lost()
        for member in world.running:
            member.drain()
        world.run_until(lambda: not world.running, CLEARING_SECONDS)
        if world.lag():
            raise Broken(f"the group is left with a lag of {world.lag()}")

    def _allow_more(self) -> None:
        """What waits to be parked goes, though no other record may be left to be delivered."""
        for member in self.world.running:
            member.resume()
        self.world.scheduler.call_later(1.0, self._allow_more)

    # --- the end ------------------------------------------------------------------------------

    def _all_is_done(self) -> bool:
        world = self.world
        return (
            all(member.places.in_flight == 0 for member in world.running)
            and {member.name for member in world.running}
            <= world.broker.group(GROUP).members.keys()
            and world.lag() == 0
            and (not world.running[0].keeps or not world.judge.open())
        )

    def _judge_the_lost(self) -> None:
        judge = self.world.judge
        for member in self.world.members:
            member.tell_lost()
        told: set[Coordinates] = {
            (record.assignment.partition, record.offset)
            for member in self.world.members
            for record in member.route.lost_records
        }
        left = set(judge.open()) - judge.lost - told
        for name, exposed in judge.exposed.items():
            untold = exposed - told
            left -= untold
            if len(untold) > judge.perhaps_lost[name]:
                raise Broken(f"{name} lost {untold} and tells of {judge.perhaps_lost[name]}")
        if left:
            raise Broken(f"never delivered: {sorted(left)}")

    # --- the application ----------------------------------------------------------------------

    def _behave(self, request: Request) -> Reply:
        kind = (request.offset * 7919 + request.partition.number * 31) % 101
        roll = self.random.random()
        seconds = self.random.choice((0.001, 0.01, 0.05, 0.3))
        if self.clear:
            return answer(204, seconds)
        if self.bad:
            return answer(self.bad, seconds)
        if self.kills and kind % 20 == 7:
            (member,) = [m for m in self.world.members if m.name == request.member]
            if member.app.up:
                member.app.die(self.random.choice((0.2, 2.0)))
            return HANG
        if self.overloaded and roll < 0.6:
            return answer(503, 0.001)
        if kind < 3:
            return answer(400, seconds)
        if kind < 6 or roll < 0.04:
            return answer(500, seconds)
        if roll < 0.07:
            return answer(self.random.choice((429, 503)), seconds, self.random.choice((None, "1")))
        if roll < 0.09:
            return answer(self.random.choice((401, 404, 425, 302)), seconds)
        if roll < 0.11:
            kinds = (FailureKind.BROKEN, FailureKind.MALFORMED)
            return Reply(seconds, Failed(self.random.choice(kinds), "by chance"))
        if roll < 0.12:
            return HANG
        if roll < 0.16:
            return Reply(1.5, Answer(200))
        return answer(204, seconds)

    # --- what happens -------------------------------------------------------------------------

    def _records(self) -> None:
        broker, chance = self.world.broker, self.random.random
        partition = self.random.randrange(self.partitions)
        for _ in range(self.random.choice((1, 5, 20, 60))):
            end = broker.topics[TOPIC].logs[partition].end
            hole = self.random.randrange(1, 5) if chance() < 0.05 else 0
            visible = chance() > 0.03
            value = bytes(self.random.choice((0, 1, 50, 500)))
            broker.produce(TOPIC, partition, value, offset=end + hole, visible=visible)
        if chance() < 0.3:
            broker.end_transaction(TOPIC, partition)

    def _someone(self) -> Member | None:
        running = self.world.running
        return self.random.choice(running) if running else None

    def _join(self) -> None:
        if len(self.world.running) < MOST_MEMBERS:
            self.world.join()

    def _leave(self) -> None:
        if member := self._someone():
            member.drain(cut_after=self.random.choice((0.0, 0.5, 8.0)))

    def _crash(self) -> None:
        if member := self._someone():
            member.crash()

    def _expel(self) -> None:
        member = self._someone()
        if member is not None and member.fetching:
            self.world.broker.expel(GROUP, member.name)

    def _commit_fates(self) -> None:
        every = tuple(CommitFate)
        self.fates = self.random.choice(((CommitFate.OK,), every, (CommitFate.OK, *every)))

    def _broker_away(self) -> None:
        self.world.broker.down = True
        seconds = self.random.choice((0.05, 1.0, 8.0))
        self.world.scheduler.call_later(seconds, setattr, self.world.broker, "down", False)

    def _slow_commits(self) -> None:
        self.world.broker.commit_delay_seconds = self.random.choice((0.0, 0.2, 3.0))

    def _app_away(self) -> None:
        if member := self._someone():
            member.app.up = False
            seconds = self.random.choice((0.01, 0.5, 3.0))
            self.world.scheduler.call_later(seconds, setattr, member.app, "up", True)

    def _overload(self) -> None:
        self.overloaded = not self.overloaded

    def _bad_deployment(self) -> None:
        self.bad = 0 if self.bad else self.random.choice((400, 401, 404, 500))

    def _batch_answers(self) -> None:
        if member := self._someone():
            member.app.names_failures = not member.app.names_failures

    def _dead_letters(self) -> None:
        if member := self._someone():
            if self.random.random() < 0.5:
                member.parking.error = self.random.choice((None, "not enough replicas"))
            elif member.parking.holding:
                member.parking.release()
            else:
                member.parking.holding = True

    def _executors(self) -> None:
        if member := self._someone():
            member.route.set_executors(self.random.choice((0, 1, 2, 8)))

    def _pause(self) -> None:
        if member := self._someone():
            self.random.choice((member.route.pause, member.resume))()

    def _limits(self) -> None:
        if member := self._someone():
            member.route.set_rate(self.random.choice((None, 20, 500)))
            most = member.settings.threshold
            member.route.set_threshold(self.random.choice((1, max(1, most // 2), most)))

    def _record_by_hand(self) -> None:
        if member := self._someone():
            actions = (RecordAction.DROP, RecordAction.RETRY, RecordAction.PARK)
            entries = member.in_flight()
            if entries:
                where = self.random.choice(entries).record
                member.treat_by_hand(self.random.choice(actions), where)

    def _stall(self) -> None:
        if member := self._someone():
            member.clock.stall(self.random.choice((0.01, 0.5, 1.2, 8.0)))

    def _retention(self) -> None:
        """The oldest records go, read or not."""
        number = self.random.randrange(self.partitions)
        log = self.world.broker.topics[TOPIC].logs[number]
        start = log.start + self.random.randrange(1 + (log.end - log.start) // 2)
        self.world.broker.truncate(TOPIC, number, start)

    def _die(self) -> None:
        """The client is fenced; the route ends by itself."""
        if member := self._someone():
            member.source.die()

    def _new_partition(self) -> None:
        self.world.broker.add_partitions(TOPIC, 1)


def replay(seed: int, guarantee: Guarantee) -> World:
    """One whole run. Raises Broken where an invariant does not hold."""
    storm = Storm(seed, guarantee)
    storm.play()
    storm.finish()
    return storm.world
