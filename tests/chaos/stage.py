"""What scenarios have in common: the line of the table, the stage, and how records are judged."""

from __future__ import annotations

import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import KafkaException, Message

from tests.rig.journal import Journal
from tests.rig.kafka import KafkaCluster
from tests.rig.operations import KafkaOperations
from tests.rig.processes import Scene, Sidecar, config, route
from tests.rig.recording_app import RecordingApp
from tests.rig.waiting import eventually

PARTITIONS = 6
QUICK = {"session_timeout_ms": 6000, "heartbeat_interval_ms": 500}
TOLD = "sidecar-dlq-"
PROTOCOLS: dict[str, dict[str, Any]] = {
    "eager": {
        "partition_assignment_strategy": "range",
        "session_timeout_ms": 3000,
        "heartbeat_interval_ms": 500,
    },
    "cooperative": {
        "partition_assignment_strategy": "cooperative-sticky",
        "session_timeout_ms": 3000,
        "heartbeat_interval_ms": 500,
    },
    "consumer": {"group_protocol": "consumer"},
}


class Line(NamedTuple):
    """One line of the table; ok is the judgement."""

    scenario: str
    round: int
    ok: bool
    figures: Mapping[str, float]


Scenario = Callable[[KafkaCluster, Path, int, int, int], Iterator[Line]]


def rounds(proof: Callable[[KafkaCluster, Path, int], Line]) -> Scenario:
    """A scenario whose rounds have nothing to do with each other."""

    def scenario(
        kafka: KafkaCluster, directory: Path, _seed: int, first: int, last: int
    ) -> Iterator[Line]:
        for number in range(first, last):
            yield proof(kafka, directory, number)

    return scenario


class Entry(NamedTuple):
    """One scenario of the command: its rounds, and the cluster it needs."""

    scenario: Scenario
    rounds: int
    nodes: int = 1
    guarded: bool = False  # a broker with an authorizer, for whoever sets ACLs
    cluster: Callable[[], AbstractContextManager[KafkaCluster]] | None = None  # else: by the above


def judged(
    name: str, number: int, figures: Mapping[str, float], claims: Mapping[str, bool]
) -> Line:
    """A line that is ok if all claims hold; those that do not stand among its figures."""
    broken = {f"NOT {claim}": 1.0 for claim, holds in claims.items() if not holds}
    return Line(name, number, not broken, {**figures, **broken})


def drained(kafka: KafkaOperations, group: str, topic: str) -> bool:
    """Whether the group has committed the end of every partition."""
    try:
        return kafka.committed(group, topic) == kafka.end_offsets(topic)
    except KafkaException:  # the coordinator is moving
        return False


def flows(journal: Journal, newer_than: int) -> bool:
    """Whether something new has come from every partition."""
    journal.refresh()
    return len({n % PARTITIONS for n in journal.arrivals if n >= newer_than}) == PARTITIONS


def number_of(value: bytes | None) -> int:
    """Of a numbered record."""
    return int((value or b"").split(b" ", 1)[0])


def headers_of(message: Message) -> list[tuple[str, bytes | None]]:
    headers: Any = message.headers() or []  # the client's annotation allows a dict as well
    return list(headers)


def own_headers(letter: Message) -> list[tuple[str, bytes | None]]:
    """What the record came with."""
    return [each for each in headers_of(letter) if not each[0].startswith(TOLD)]


def told(letter: Message) -> dict[str, bytes]:
    """The story of a dead letter, by the names without the prefix."""
    return {
        name.removeprefix(TOLD): value or b""
        for name, value in headers_of(letter)
        if name.startswith(TOLD)
    }


def origin(story: Mapping[str, bytes]) -> tuple[str, int, int]:
    """The coordinates a dead letter came from."""
    return (
        story.get("topic", b"").decode(),
        int(story.get("partition", -1)),
        int(story.get("offset", -1)),
    )


class Stage:
    """Topic and dead-letter topic, a recording application, its journal. The group: the topic."""

    def __init__(
        self,
        kafka: KafkaOperations,
        scene: Scene,
        name: str,
        *,
        dead_replication: int | None = None,
        **app: Any,
    ) -> None:
        """app: of the recording application."""
        self.kafka = kafka
        self.scene = scene
        self.topic = f"{name}-{time.time_ns()}"
        self.dead = f"{self.topic}.dead"
        kafka.create_topic(self.topic, PARTITIONS)
        kafka.create_topic(self.dead, 1, dead_replication)
        self.journal_file = self._another_file()
        self.journal = Journal(self.journal_file)
        self.app = scene.recording_app(self.journal_file, **app)

    def another_app(self) -> tuple[RecordingApp, Journal]:
        file = self._another_file()
        return self.scene.recording_app(file), Journal(file)

    def _another_file(self) -> Path:
        return self.scene.directory / f"{self.topic}-{time.time_ns()}.journal"

    def config(self, *, port: int = 0, kafka: Mapping[str, Any] | None = None, **more: Any) -> Any:
        """Of one route to the application, or to the port; more: settings of the route."""
        what = {"executors": 32, "dead_letter": {"topic": self.dead}, **more}
        return config(
            self.kafka.bootstrap_servers,
            self.topic,
            [route(self.topic, port or self.app.port, **what)],
            **(QUICK if kafka is None else kafka),
        )

    def sidecar(self, **more: Any) -> Sidecar:
        """Start one with this `config`."""
        return self.scene.sidecar(self.config(**more))

    def load(self, count: int, rate: float, **more: float) -> subprocess.Popen[bytes]:
        """Begin to produce numbered records."""
        return self.scene.load(
            self.kafka.bootstrap_servers,
            self.topic,
            partitions=PARTITIONS,
            count=count,
            rate=rate,
            **more,
        )

    def produced(self, count: int, rate: float = 50_000, **more: float) -> None:
        """Produce them, and wait until the broker has all."""
        ended(self.load(count, rate, **more))

    def until_drained(self, within: float = 60, topic: str = "") -> None:
        which = topic or self.topic
        eventually(
            lambda: drained(self.kafka, self.topic, which),
            f"the group is at the end of {which}",
            within=within,
            every=0.2,
        )

    def until(self, count: int, within: float = 60) -> None:
        """Wait until the application has taken so many records."""

        def reached() -> bool:
            self.journal.refresh()
            return len(self.journal.answered) >= count

        eventually(reached, f"{count} records are delivered", within=within)

    def seen(self, numbers: Iterable[int]) -> bool:
        """Whether the application was asked about any of them."""
        self.journal.refresh()
        return any(self.journal.arrivals[number] for number in numbers)

    def taken(self, numbers: Iterable[int]) -> bool:
        """Whether the application has taken all of them."""
        self.journal.refresh()
        return all(self.journal.answered[number] for number in numbers)

    def seconds_for(self, numbers: Iterable[int]) -> float:
        """From the first of them that was taken to the last."""
        times = [self.journal.answered_at[n] for n in numbers if n in self.journal.answered_at]
        return max(times) - min(times)

    def letters(self) -> list[Message]:
        return self.kafka.read(self.dead)

    def parked(self) -> Counter[int]:
        """How often each number is in the dead-letter topic."""
        return Counter(number_of(letter.value()) for letter in self.letters())

    def figures(
        self, numbers: Iterable[int], *further: Journal, parked: Counter[int] | None = None
    ) -> dict[str, float]:
        """lost: neither taken by an application nor parked. repeated: taken again."""
        parked = self.parked() if parked is None else parked
        taken: Counter[int] = Counter()
        for journal in (self.journal, *further):
            journal.refresh()
            taken.update(journal.answered)
        which = set(numbers)
        return {
            "lost": len(which - taken.keys() - parked.keys()),
            "repeated": sum(taken[number] - 1 for number in which & taken.keys()),
            "parked": len(parked),
            "parked_again": parked.total() - len(parked),
            "records": len(which),
        }


def ended(load: subprocess.Popen[bytes], within: float = 120) -> None:
    """Wait for a load that is to be confirmed."""
    assert load.wait(within) == 0, "the load was not confirmed"


def cut_short(load: subprocess.Popen[bytes]) -> int:
    """End a load; how many records the broker has."""
    load.terminate()
    assert load.stdout is not None
    confirmed = int(load.stdout.read().split()[1])
    ended(load)
    return confirmed


@contextmanager
def stage(kafka: KafkaOperations, directory: Path, name: str, **more: Any) -> Iterator[Stage]:
    """A stage whose processes end with it."""
    with Scene(directory) as scene:
        yield Stage(kafka, scene, name, **more)
