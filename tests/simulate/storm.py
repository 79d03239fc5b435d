"""A random schedule of everything that can happen to a group, from one seed.

Purpose: members join, leave, crash and are expelled; the broker refuses commits, does not answer or
is away; applications fail in every way; records come, with holes and transaction markers between
them. Then the weather clears, and everything must have come to an end.

Owner: a simulation test. The invariants are judged throughout (tests.fakes.judge); finish says
what must be true at the end.
"""

from __future__ import annotations

from collections.abc import Collection
from random import Random
from typing import Final, NamedTuple

from sidecar.model import Answer, Failed, FailureKind, Guarantee
from tests.fakes.application import HANG, UNSENT, Reply, Request, answer
from tests.fakes.broker import CommitFate
from tests.fakes.engine import GROUP, TOPIC, World
from tests.fakes.judge import Broken, Coordinates
from tests.simulate.scenes import WEIGHTS, Scene, Scenes
from tests.simulate.weather import Weather

MOST_STEPS: Final = 500
CLEARING_SECONDS: Final = 240.0
MORE_THAN_EXECUTORS: Final = 10
CALM_MOVES: Final = (0.0, 0.05, 0.1)
IDLE_MOVES: Final = (0.0, 0.2, 0.4)
LENGTHS: Final = (3, 6, 12, 30)
PAUSES: Final = (0.0, 0.02, 0.1, 0.5)


class Planned(NamedTuple):
    """A scene of the schedule, and for how long it goes on by itself then."""

    number: int
    scene: Scene
    seconds: float


class Storm:
    """keep: the numbers of the scenes that are played, None: all. plain: see Weather.

    happened: what was done, one line for each scene that did anything.
    """

    def __init__(
        self,
        seed: int,
        guarantee: Guarantee,
        *,
        keep: Collection[int] | None = None,
        plain: Collection[str] = (),
    ) -> None:
        self.seed: Final = seed
        random = Random(f"storm {seed}")
        self.weather: Final = Weather(random, guarantee, plain)
        self.partitions: Final[int] = self.weather.partitions
        self.blames: Final[bool] = self.weather.kills
        length = random.choice(LENGTHS)
        scenes = random.choices(list(WEIGHTS), list(WEIGHTS.values()), k=length)
        self.planned: Final = [
            Planned(number, scene, random.choice(PAUSES))
            for number, scene in enumerate(scenes)
            if keep is None or number in keep
        ]
        self._chance: Final = Random(f"answers {seed}").random
        self._fates: Final = Random(f"fates {seed}")
        self.world: Final = World(
            seed, guarantee=guarantee, behave=self._behave, **self.weather.settings()
        )
        turns = Random(f"turns {seed}").random
        self.world.pick = lambda among: among[int(turns() * len(among))]
        self.world.judge.relieves = self.weather.relieves
        self.world.broker.fate = lambda: self._fates.choice(self.fates)
        self.fates: tuple[CommitFate, ...] = (CommitFate.OK,)
        self.clear = False
        self.overloaded = False
        self.hangs = False  # every request
        self.bad = 0  # the status of every answer, after a bad deployment
        self.happened: list[str] = []
        self.played: list[Planned] = []  # those that did anything

    def play(self) -> None:
        scenes, world = Scenes(self), self.world
        for planned in self.planned:
            told = planned.scene(scenes, Random(f"scene {self.seed} {planned.number}"))
            if told:
                self.played.append(planned)
                self.happened.append(f"{world.now - 1000:9.3f}  {told}")
            until = world.now + planned.seconds
            while world.now < until and world.turns < MOST_STEPS:
                world.turn()

    def finish(self) -> None:
        """Clear weather: all that is left is handled, and the members leave in order."""
        world = self.world
        self.happened.append(f"{world.now - 1000:9.3f}  the weather clears")
        self.clear = True
        world.moves = CALM_MOVES
        self.fates = (CommitFate.OK,)
        world.broker.down = False
        world.broker.commit_delay_seconds = 0.0
        world.broker.release_commits()
        for member in world.running:
            member.app.accept()
            if member.route.executors.wanted == 0:
                member.route.set_executors(3)
            member.resume()
            member.route.set_rate(None)
            member.parking.error = None
            member.parking.release()
        for _ in range(self.weather.executors + MORE_THAN_EXECUTORS):  # whoever rests has work
            world.broker.produce(TOPIC)
        if self.seed % 2 == 0:  # a rebalance brings back much that would be stuck without it
            world.join()
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
        if not world.running:  # all were about to end
            world.join()
        running = world.running
        idle = all(member.places.in_flight == 0 for member in running)
        world.moves = IDLE_MOVES if idle else CALM_MOVES
        return (
            idle
            and {member.name for member in running} <= world.broker.group(GROUP).members.keys()
            and world.lag() == 0
            and (not running[0].keeps or not world.judge.open())
        )

    def _judge_the_lost(self) -> None:
        judge = self.world.judge
        for member in self.world.members:
            member.tell_lost()
        told: set[Coordinates] = {
            (record.assignment.partition, record.offset)
            for member in self.world.members
            for record in member.route.lost_records
            if not judge.is_of_old(record)
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
        """Latencies have a heavy tail: one in two hundred is beyond the deadline."""
        chance = self._chance
        if self.clear:
            return answer(204, 0.001 + 0.05 * chance())
        seconds = 0.002 * (1.0 - chance()) ** -1.3
        if self.hangs:
            return HANG
        if self.bad:
            return answer(self.bad, seconds)
        kind = (request.offset * 7919 + request.partition.number * 31) % 101
        if self.blames and kind % 20 == 7:
            (member,) = [m for m in self.world.members if m.name == request.member]
            if member.app.up:
                member.app.die(0.2 if chance() < 0.5 else 2.0)
            return HANG
        roll = chance()
        if self.overloaded and roll < 0.6:
            return answer(503, 0.001)
        if kind < 3:
            return answer(400, seconds)
        if kind < 6 or roll < 0.04:
            return answer(500, seconds)
        if roll > 0.16:
            return answer(204, seconds)
        return self._oddity(int((roll - 0.04) * 100), seconds)

    def _oddity(self, which: int, seconds: float) -> Reply:
        """One answer in eight is none of the plain ones."""
        chance = self._chance
        match which:
            case 0 | 1 | 2:
                status = 429 if chance() < 0.5 else 503
                return answer(status, seconds, "1" if chance() < 0.5 else None)
            case 3 | 4:
                return answer((401, 404, 425, 302)[int(chance() * 4)], seconds)
            case 5 | 6:
                kind = FailureKind.BROKEN if chance() < 0.5 else FailureKind.MALFORMED
                return Reply(seconds, Failed(kind, "by chance"))
            case 7:  # never an answer, or one that drips and is not whole by its deadline
                return HANG
            case 8:
                return UNSENT
            case _:  # late: its partition may have left by then
                return Reply(1.5, Answer(200))


def replay(seed: int, guarantee: Guarantee) -> World:
    """One whole run. Raises Broken where an invariant does not hold."""
    storm = Storm(seed, guarantee)
    storm.play()
    storm.finish()
    return storm.world
