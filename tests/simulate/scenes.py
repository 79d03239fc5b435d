"""What can happen to a group, one thing at a time.

Purpose: the faults and changes of a schedule. Each scene draws from a stream of its own, so that
leaving one out changes nothing in the others, and says in a few words what it did.

Owner: one Storm.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Final

from sidecar.status import RecordAction
from tests.fakes.broker import CommitFate
from tests.fakes.engine import GROUP, SESSION_SECONDS, TOPIC, Member, World

if TYPE_CHECKING:
    from tests.simulate.storm import Storm

MOST_MEMBERS: Final = 4
MANY: Final = 30
MOST_CHOSEN: Final = 3  # by an operator, at once
MOST_TURNS_TO_EXECUTE: Final = 30
NOTHING: Final = ""

Scene = Callable[["Scenes", Random], str]


class Scenes:
    """Each takes its random numbers and returns what happened, or nothing."""

    def __init__(self, storm: Storm) -> None:
        self._storm = storm
        self._world: World = storm.world
        self._broker = storm.world.broker
        self._later = storm.world.scheduler.call_later

    # --- records ------------------------------------------------------------------------------

    def records(self, random: Random) -> str:
        broker, chance = self._broker, random.random
        partition = random.randrange(self._storm.partitions)
        log = broker.topics[TOPIC].logs[partition]
        began = log.end
        for _ in range(random.choice((1, 5, 20, 60))):
            hole = random.randrange(1, 5) if chance() < 0.05 else 0
            visible = chance() > 0.03
            value = bytes(random.choice((0, 1, 50, 500)))
            broker.produce(TOPIC, partition, value, offset=log.end + hole, visible=visible)
        if chance() < 0.3:
            broker.end_transaction(TOPIC, partition)
        return f"offsets {began}..{log.end - 1} are written to partition {partition}"

    def retention(self, random: Random) -> str:
        """The oldest records go, read or not."""
        number = random.randrange(self._storm.partitions)
        log = self._broker.topics[TOPIC].logs[number]
        start = log.start + random.randrange(1 + (log.end - log.start) // 2)
        self._broker.truncate(TOPIC, number, start)
        return f"partition {number} begins at {start} from now on"

    def new_partition(self, random: Random) -> str:
        self._broker.add_partitions(TOPIC, 1)
        return "the topic gets one more partition"

    def topic_anew(self, random: Random) -> str:
        """It is deleted, and made again once the members have noticed."""
        world = self._world
        owned = [
            assignment
            for member in world.members
            for assignment in member.assignments
            if assignment.topic == TOPIC
        ]
        self._broker.delete_topic(TOPIC)
        world.judge.deleted(TOPIC, owned)
        world.run_until(lambda: not any(self._notices(member) for member in world.running))
        self._broker.create_topic(TOPIC, self._storm.partitions)
        return "the topic is deleted and made anew"

    @staticmethod
    def _notices(member: Member) -> bool:
        """It has still to give the topic up, and reads; one whose client is fenced never does."""
        return member.fetching and any(partition.topic == TOPIC for partition in member.owned)

    # --- members ------------------------------------------------------------------------------

    def _someone(self, random: Random) -> Member | None:
        running = self._world.running
        return random.choice(running) if running else None

    def join(self, random: Random) -> str:
        if len(self._world.running) >= MOST_MEMBERS:
            return NOTHING
        return f"{self._world.join().name} starts"

    def leave(self, random: Random) -> str:
        self._perhaps_execute_some(random)
        if member := self._someone(random):
            seconds = random.choice((0.0, 0.5, 8.0))
            member.drain(cut_after=seconds)
            return f"{member.name} is stopped, and cut after {seconds:g} s"
        return NOTHING

    def crash(self, random: Random) -> str:
        if member := self._someone(random):
            member.crash()
            return f"{member.name} is killed"
        return NOTHING

    def freeze(self, random: Random) -> str:
        """The process gets no time at all, as after SIGSTOP; its application goes on."""
        member = self._someone(random)
        if member is None or member.hanging or member.clock.stalled or self._storm.blames:
            return NOTHING
        seconds = random.choice((0.5, 3.0, SESSION_SECONDS + 1.0))
        member.hanging = True
        member.clock.stall(seconds)
        self._later(seconds, setattr, member, "hanging", False)
        if seconds > SESSION_SECONDS and member.fetching:
            self._later(SESSION_SECONDS, self._broker.expel, GROUP, member.name)
        return f"{member.name} is frozen for {seconds:g} s"

    def stall(self, random: Random) -> str:
        member = self._someone(random)
        if member is None or member.clock.stalled or self._storm.blames:
            return NOTHING
        seconds = random.choice((0.01, 0.5, 1.2, 8.0))
        member.clock.stall(seconds)
        return f"the loop of {member.name} is busy for {seconds:g} s"

    def die(self, random: Random) -> str:
        """The client is fenced; the route ends by itself."""
        if member := self._someone(random):
            member.source.die()
            return f"the client of {member.name} is fenced"
        return NOTHING

    def expel(self, random: Random) -> str:
        member = self._someone(random)
        if member is None or not member.fetching:
            return NOTHING
        self._broker.expel(GROUP, member.name)
        return f"{member.name} is expelled from the group"

    def rebalance(self, random: Random) -> str:
        self._broker.rejoin(self._broker.group(GROUP))
        return "the group rebalances"

    # --- the broker ---------------------------------------------------------------------------

    def commit_fates(self, random: Random) -> str:
        every = tuple(CommitFate)
        self._storm.fates = random.choice(((CommitFate.OK,), every, (CommitFate.OK, *every)))
        return f"one commit in {len(self._storm.fates)} succeeds"

    def broker_away(self, random: Random) -> str:
        seconds = random.choice((0.05, 1.0, 8.0))
        self._broker.down = True
        self._later(seconds, setattr, self._broker, "down", False)
        return f"the broker is away for {seconds:g} s"

    def slow_commits(self, random: Random) -> str:
        seconds = self._broker.commit_delay_seconds = random.choice((0.0, 0.2, 3.0))
        return f"commits are answered after {seconds:g} s"

    def dead_letters(self, random: Random) -> str:
        member = self._someone(random)
        if member is None:
            return NOTHING
        if random.random() < 0.5:
            error = random.choice((None, *["not enough replicas"] * 2))
            for each in self._world.running:
                each.parking.error = error
            if error:  # and something that is to be written there: one record in twenty is bad
                partition = random.randrange(self._storm.partitions)
                for _ in range(MANY):
                    self._broker.produce(TOPIC, partition)
                return f"writes to other topics fail, {MANY} records are written to {partition}"
            return "writes to other topics succeed"
        if member.parking.holding:
            member.parking.release()
            return f"writes of {member.name} to other topics are answered"
        member.parking.holding = True
        return f"writes of {member.name} to other topics are not answered"

    # --- the application ----------------------------------------------------------------------

    def app_away(self, random: Random) -> str:
        member = self._someone(random)
        if member is None:
            return NOTHING
        seconds = random.choice((0.01, 0.5, 3.0))
        member.app.up = False
        self._later(seconds, member.app.accept)
        return f"the application of {member.name} refuses for {seconds:g} s"

    def app_dies(self, random: Random) -> str:
        """Every connection breaks; it comes back."""
        member = self._someone(random)
        if member is None or not member.app.up or self._storm.blames:
            return NOTHING
        self._perhaps_execute_some(random)
        seconds = random.choice((0.2, 2.0))
        member.app.die(seconds)
        return f"the application of {member.name} is killed, and back in {seconds:g} s"

    def overload(self, random: Random) -> str:
        self._storm.overloaded = not self._storm.overloaded
        return "the applications are " + ("overloaded" if self._storm.overloaded else "themselves")

    def hang(self, random: Random) -> str:
        """Requests are taken and not answered."""
        seconds = random.choice((0.5, 3.0))
        self._storm.hangs = True
        self._later(seconds, setattr, self._storm, "hangs", False)
        return f"the applications answer nothing for {seconds:g} s"

    def bad_deployment(self, random: Random) -> str:
        self._storm.bad = 0 if self._storm.bad else random.choice((400, 401, 404, 500))
        return f"the applications answer {self._storm.bad or 'as before'}"

    def batch_answers(self, random: Random) -> str:
        member = self._someone(random)
        if member is None:
            return NOTHING
        member.app.names_failures = not member.app.names_failures
        names = "names" if member.app.names_failures else "does not name"
        return f"the application of {member.name} {names} what failed of a batch"

    # --- the operator -------------------------------------------------------------------------

    def executors(self, random: Random) -> str:
        member = self._someone(random)
        if member is None:
            return NOTHING
        count = random.choice((0, 1, 2, 8))
        member.route.set_executors(count)
        return f"{member.name} gets {count} executors"

    def pause(self, random: Random) -> str:
        member = self._someone(random)
        if member is None:
            return NOTHING
        if random.random() < 0.5:
            member.route.pause()
            return f"{member.name} is paused"
        member.resume()
        return f"{member.name} is resumed"

    def limits(self, random: Random) -> str:
        member = self._someone(random)
        if member is None:
            return NOTHING
        rate = random.choice((None, 20, 500))
        most = member.settings.threshold
        threshold = random.choice((1, max(1, most // 2), most))
        member.route.set_rate(rate)
        member.route.set_threshold(threshold)
        return f"{member.name} gets a threshold of {threshold} and a rate of {rate}"

    def by_hand(self, random: Random) -> str:
        """A few records are dropped, parked or tried again, half the time while they execute."""
        executing = self._perhaps_execute_some(random)
        held = [(m, entries) for m in self._world.running if (entries := m.in_flight(executing))]
        if not held:
            return NOTHING
        member, entries = random.choice(held)
        action = random.choice((RecordAction.DROP, RecordAction.RETRY, RecordAction.PARK))
        chosen = random.sample(entries, min(len(entries), random.choice((1, MOST_CHOSEN))))
        places = [(each.record, member.treat_by_hand(action, each.record)) for each in chosen]
        told = (f"{record}: {place.value if place else 'refused'}" for record, place in places)
        return f"{member.name} is asked to {action.value} {', '.join(told)}"

    def _perhaps_execute_some(self, random: Random) -> bool:
        """Half the time: what comes now meets records that execute."""
        if random.random() < 0.5:
            return False
        partition = random.randrange(self._storm.partitions)
        for _ in range(MOST_CHOSEN):
            self._broker.produce(TOPIC, partition)
        for _ in range(MOST_TURNS_TO_EXECUTE):
            if any(member.app.executing for member in self._world.running):
                break
            self._world.turn()
        return True


WEIGHTS: Final[dict[Scene, int]] = {
    Scenes.records: 30,
    Scenes.join: 6,
    Scenes.leave: 3,
    Scenes.crash: 3,
    Scenes.freeze: 2,
    Scenes.expel: 6,
    Scenes.rebalance: 3,
    Scenes.commit_fates: 8,
    Scenes.broker_away: 3,
    Scenes.slow_commits: 3,
    Scenes.app_away: 6,
    Scenes.app_dies: 5,
    Scenes.batch_answers: 2,
    Scenes.hang: 3,
    Scenes.overload: 5,
    Scenes.bad_deployment: 4,
    Scenes.dead_letters: 6,
    Scenes.executors: 4,
    Scenes.pause: 3,
    Scenes.limits: 3,
    Scenes.by_hand: 6,
    Scenes.new_partition: 1,
    Scenes.topic_anew: 1,
    Scenes.stall: 4,
    Scenes.retention: 2,
    Scenes.die: 1,
}
