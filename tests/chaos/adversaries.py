"""What may happen to processes, brokers, network, disk and clock. The judge is in turmoil."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from confluent_kafka import ElectionType, KafkaException

from tests.chaos.turmoil import Adversary, Trial
from tests.rig.kafka import KafkaCluster
from tests.rig.namespace import Namespace
from tests.rig.ports import free_ports
from tests.rig.properties import Entrance
from tests.rig.relay import Relay
from tests.rig.small_disk import SmallDisk
from tests.rig.waiting import eventually
from tests.rig.wall_clock import WallClock


def for_a_while(seconds: float) -> None:
    """The time that a fault lasts."""
    time.sleep(seconds)


class Killed(Adversary):
    """kill -9 of a member, and another one instead."""

    name = "sidecar-killed"

    def strike(self, trial: Trial, kafka: KafkaCluster, chance: random.Random) -> None:
        for_a_while(chance.uniform(0, 1))
        trial.kill(chance.choice(trial.members))
        trial.join()


class Frozen(Adversary):
    """SIGSTOP of a member, for less or more than its session lasts."""

    name = "sidecar-frozen"

    def strike(self, trial: Trial, kafka: KafkaCluster, chance: random.Random) -> None:
        member = chance.choice(trial.members)
        member.pause()
        for_a_while(chance.uniform(0.3, 7))
        member.resume()


class Rolled(Adversary):
    """Each member is replaced, one after the other, the new one first."""

    name = "sidecars-rolled"
    repeats = False

    def strike(self, trial: Trial, kafka: KafkaCluster, chance: random.Random) -> None:
        for member in list(trial.members):
            trial.join().until_said("assigned")
            for_a_while(chance.uniform(0, 0.5))
            trial.leave(member)


class ComingAndGoing(Adversary):
    """Members join, leave in order and are killed, whether the one before has settled or not."""

    name = "members-come-and-go"

    def strike(self, trial: Trial, kafka: KafkaCluster, chance: random.Random) -> None:
        for _ in range(6):
            for_a_while(chance.uniform(0, 1.5))
            if len(trial.members) < 2 or chance.random() < 0.5:
                trial.join()
                continue
            member = chance.choice(trial.members[:-1])  # the newest may not be born yet
            if chance.random() < 0.5:
                trial.kill(member)
            else:
                trial.leave(member)


class AppKilled(Adversary):
    """kill -9 of the application, which is back after a while."""

    name = "app-killed"

    def strike(self, trial: Trial, kafka: KafkaCluster, chance: random.Random) -> None:
        trial.at.app.kill()
        for_a_while(chance.uniform(0, 3))
        trial.at.app.start()


class AppFrozen(Adversary):
    """SIGSTOP of the application."""

    name = "app-frozen"
    repeats = False

    def strike(self, trial: Trial, kafka: KafkaCluster, chance: random.Random) -> None:
        trial.at.app.pause()
        for_a_while(chance.uniform(0.3, 7))
        trial.at.app.resume()


class BrokerKilled(Adversary):
    """kill -9 of the only broker, which is back after a while."""

    name = "broker-killed"

    def strike(self, trial: Trial, kafka: KafkaCluster, chance: random.Random) -> None:
        kafka.node(1).kill()
        for_a_while(chance.uniform(0, 5))
        kafka.heal()


class BrokerFrozen(Adversary):
    """SIGSTOP of the only broker."""

    name = "broker-frozen"

    def strike(self, trial: Trial, kafka: KafkaCluster, chance: random.Random) -> None:
        kafka.node(1).pause()
        for_a_while(chance.uniform(0.3, 7))
        kafka.heal()


class OneOfThreeKilled(Adversary):
    """kill -9 of one broker of three, be it leader, coordinator or neither."""

    name = "one-of-three-killed"

    def cluster(self) -> KafkaCluster:
        return KafkaCluster(3)

    def strike(self, trial: Trial, kafka: KafkaCluster, chance: random.Random) -> None:
        kafka.node(chance.randint(1, 3)).kill()
        for_a_while(chance.uniform(1, 6))
        kafka.heal()


class LeadersMoved(Adversary):
    """One broker of three is restarted: its leaders move in order, and are moved back."""

    name = "leaders-moved"

    def cluster(self) -> KafkaCluster:
        return KafkaCluster(3)

    def strike(self, trial: Trial, kafka: KafkaCluster, chance: random.Random) -> None:
        kafka.node(chance.randint(1, 3)).restart()
        eventually(lambda: _elected(kafka), "the preferred leaders lead again", every=0.5)


def _elected(kafka: KafkaCluster) -> bool:
    try:
        kafka.admin.elect_leaders(ElectionType.PREFERRED, None).result(30)
    except KafkaException:
        return False
    return True


class Cut(Adversary):
    """The members' network is cut off from the broker: packets are lost, nothing is reset."""

    name = "network-cut"

    def __init__(self) -> None:
        self._place = Namespace()
        self.prefix = self._place.prefix

    @contextmanager
    def cluster(self) -> Iterator[KafkaCluster]:
        (port,) = free_ports(1)
        address = f"{self._place.here}:{port}"
        self.kafka = {"bootstrap.servers": address}
        with self._place, KafkaCluster(entrance=Entrance(address, address)) as kafka:
            yield kafka

    def strike(self, trial: Trial, kafka: KafkaCluster, chance: random.Random) -> None:
        for _ in range(chance.randint(1, 3)):
            self._place.cut()
            for_a_while(chance.uniform(0.3, 6))
            self._place.mend()
            for_a_while(chance.uniform(0, 1))


class Delayed(Adversary):
    """Every byte between members and broker is late, by up to a second; then no longer."""

    name = "network-delayed"

    def __init__(self) -> None:
        self._relay: Relay

    @contextmanager
    def cluster(self) -> Iterator[KafkaCluster]:
        far, near = free_ports(2)
        self.kafka = {"bootstrap.servers": f"127.0.0.1:{near}"}
        entrance = Entrance(f"127.0.0.1:{far}", f"127.0.0.1:{near}")
        with Relay(near, far) as self._relay, KafkaCluster(entrance=entrance) as kafka:
            yield kafka

    def strike(self, trial: Trial, kafka: KafkaCluster, chance: random.Random) -> None:
        for _ in range(4):
            self._relay.delay_seconds = chance.choice((0.02, 0.1, 0.4, 1))
            for_a_while(chance.uniform(0.5, 2))
        self._relay.delay_seconds = 0


class DiskFull(Adversary):
    """The broker's disk is full: it ends, as Kafka does; room is made, and it starts again."""

    name = "disk-full"
    rounds = 6

    def __init__(self) -> None:
        self._disk: SmallDisk

    @contextmanager
    def cluster(self) -> Iterator[KafkaCluster]:
        with ExitStack() as stack:
            self._disk = stack.enter_context(SmallDisk(64))
            directory = self._disk.path / "kafka"
            directory.mkdir()
            yield stack.enter_context(KafkaCluster(directory=directory))

    def strike(self, trial: Trial, kafka: KafkaCluster, chance: random.Random) -> None:
        self._disk.fill()
        eventually(lambda: not kafka.node(1).running, "the broker gives up")
        for_a_while(chance.uniform(0, 3))
        self._disk.clear()
        kafka.heal()


class ClockJumped(Adversary):
    """The members' wall clock jumps to and fro: by hours, or as far as retries may wait.

    What is due by a clock that was wrong is late by as much (decision 0012).
    """

    name = "clock-jumped"
    repeats = False
    JUMPS: Final = (-7200.0, -60, 60, 7200)
    JUMPS_WITH_RETRIES: Final = (-5.0, -2, 2, 5)

    def __init__(self) -> None:
        self._clock: WallClock

    def prepare(self, directory: Path) -> None:
        self._clock = WallClock(directory)
        self.variables = self._clock.variables

    def strike(self, trial: Trial, kafka: KafkaCluster, chance: random.Random) -> None:
        jumps = self.JUMPS if trial.precise else self.JUMPS_WITH_RETRIES
        for _ in range(3):
            self._clock.shift(chance.choice(jumps))
            for_a_while(chance.uniform(0.5, 2))
        self._clock.shift(0)


ADVERSARIES: Final[tuple[type[Adversary], ...]] = (
    Killed, Frozen, Rolled, ComingAndGoing, AppKilled, AppFrozen, BrokerKilled, BrokerFrozen,
    OneOfThreeKilled, LeadersMoved, Cut, Delayed, DiskFull, ClockJumped,
)  # fmt: skip
