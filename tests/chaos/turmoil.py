"""One adversary against a group under load, and a judge who knows nothing of what it did.

Rounds are drawn from the seed. They take both guarantees and all rebalance protocols in turn; retry
topic (`at_least_once`) and dead-letter topic are in use throughout: of a hundred records one is
answered 400, two are answered 500 whenever they come. While the adversary is at work and until
records of every partition are delivered again, the load goes on; then all has to come to its end.

| figure | what must be 0 (but where a claim says otherwise) |
|---|---|
| lost | `at_least_once`: neither taken by the application nor parked. `at_most_once`: neither parked nor ever sent, which may be |
| repeated | taken again. `at_most_once`: sent again |
| out_of_budget | lost beyond what was told, and a loss budget for each crash |
| too_many_attempts | records that were told an attempt beyond those they have, and refused as often |
| parked_wrongly | good ones that were parked, bad ones that were not; `at_most_once`: parked, though taken |
| strange_keys | records that did not keep one idempotency key of their own |
| stuck | what the group had not done in a minute |
"""  # noqa: E501

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, ClassVar, Final

from confluent_kafka import KafkaException

from tests.chaos.failures import ENDLESS
from tests.chaos.stage import PROTOCOLS, Line, Stage, cut_short, flows, judged, stage
from tests.rig.journal import Journal
from tests.rig.kafka import KafkaCluster
from tests.rig.processes import Sidecar
from tests.rig.recorder import Rule
from tests.rig.waiting import eventually

BUDGET: Final = 200
RATE: Final = 300.0
ATTEMPTS: Final = 2  # and one by the retry topic
RULES: Final = (Rule(400, every=97), Rule(500, every=41))
_LOST: Final = re.compile(r"(\d+) records? (?:may be )?lost")
GUARANTEES: Final = ("at_least_once", "at_most_once")


def is_bad(number: int) -> bool:
    return any(rule.fits(number) for rule in RULES)


def verdict(
    journal: Journal,
    parked: Counter[int],
    numbers: range,
    *,
    precise: bool,
    told: int = 0,
    crashes: int = 0,
) -> dict[str, float]:
    """See the module. precise: at_most_once; told: how many records are said to be lost."""
    reached = journal.arrivals if precise else journal.answered
    lost = sum(not reached[n] and not parked[n] for n in numbers)
    wrongly = sum(not is_bad(n) and (not precise or journal.answered[n] > 0) for n in parked)
    missed = sum(is_bad(n) and reached[n] > 0 and not parked[n] for n in numbers)
    allowed = 1 if precise else ATTEMPTS + 1
    keys = [each for n, each in journal.keys.items() if n in numbers]
    shared = sum(map(len, keys)) - len(set().union(*keys))
    return {
        "lost": lost,
        "told": told,
        "repeated": sum(reached[n] - 1 for n in numbers if reached[n]),
        "out_of_budget": max(0, lost - told - BUDGET * crashes) if precise else lost,
        "too_many_attempts": sum(
            journal.refused[n] > allowed for n, each in journal.attempt.items() if each > allowed
        ),
        "parked_wrongly": wrongly + (0 if precise and crashes else missed),
        "strange_keys": shared + sum(len(each) != 1 for each in keys),
        "parked_again": parked.total() - len(parked),
        "records": len(numbers),
    }


class Trial:
    """One round: topics, the application, the members of the group."""

    def __init__(self, at: Stage, adversary: Adversary, number: int) -> None:
        self.at = at
        self.guarantee = GUARANTEES[number % 2]
        self.protocol = list(PROTOCOLS)[number % 3]
        self.members: list[Sidecar] = []
        self.crashes = 0
        self.codes: list[int] = []  # of those that left in order
        self._everyone: list[Sidecar] = []
        self._adversary = adversary

    @property
    def precise(self) -> bool:
        return self.guarantee == "at_most_once"

    @property
    def retry_topic(self) -> str:
        return f"{self.at.topic}.retry"

    def join(self) -> Sidecar:
        """One more member."""
        what = self.at.config(kafka=PROTOCOLS[self.protocol], **self._guarantee())
        what["commit_interval_seconds"] = 0.1
        what["kafka"] |= self._adversary.kafka
        member = self.at.scene.sidecar(
            what,
            f"{self.at.topic}-{len(self._everyone)}",
            prefix=self._adversary.prefix,
            variables=self._adversary.variables,
        )
        self.members.append(member)
        self._everyone.append(member)
        return member

    def kill(self, member: Sidecar) -> None:
        member.kill()
        self.members.remove(member)
        self.crashes += 1

    def leave(self, member: Sidecar) -> None:
        self.codes.append(member.stop())
        self.members.remove(member)

    def flows(self) -> None:
        """Wait until what is produced from now on is delivered."""
        at = self.at
        at.journal.refresh()
        newer = max(at.journal.arrivals, default=0) + int(RATE)
        eventually(lambda: flows(at.journal, newer), "every partition flows")

    def is_done(self) -> bool:
        topics = [self.at.topic] if self.precise else [self.at.topic, self.retry_topic]
        try:
            return all(not any(self.at.kafka.lag(self.at.topic, t).values()) for t in topics)
        except KafkaException:  # the coordinator is moving
            return False

    def _guarantee(self) -> dict[str, Any]:
        more: dict[str, Any] = {"guarantee": self.guarantee, "max_parked_in_a_row": 10_000}
        if self.precise:
            return {**more, "loss_budget": BUDGET}
        retry = {
            "max_attempts": ATTEMPTS,
            "initial_backoff_seconds": 0.1,
            "max_backoff_seconds": 0.5,
            "topics": [{"delay_seconds": 1, "topic": self.retry_topic}],
        }
        return {**more, "threshold": 1000, "retry": retry}

    def _told_as_lost(self) -> int:
        """How many records members have said they lost, or may have."""
        texts = [text for each in self._everyone for text in each.said("lost")]
        return sum(int(found[1]) for text in texts if (found := _LOST.match(text)))

    def figures(self, count: int) -> dict[str, float]:
        self.at.journal.refresh()
        return verdict(
            self.at.journal,
            self.at.parked(),
            range(count),
            precise=self.precise,
            told=self._told_as_lost(),
            crashes=self.crashes,
        )


class Adversary:
    """What is done to a group. The attributes say where its members run, and what it may cost."""

    name: ClassVar[str]
    rounds: ClassVar[int] = 12
    members: ClassVar[int] = 2
    repeats: ClassVar[bool] = True  # `at_least_once` may
    prefix: Sequence[str] = ()
    variables: Mapping[str, str] = {}
    kafka: Mapping[str, Any] = {}

    def cluster(self) -> AbstractContextManager[KafkaCluster]:
        return KafkaCluster()

    def surround(self) -> Mapping[str, Any]:
        """More about the recording application."""
        return {"prefix": self.prefix}

    def prepare(self, directory: Path) -> None:
        """Before the members start."""

    def strike(self, trial: Trial, kafka: KafkaCluster, chance: random.Random) -> None:
        """Break something, and mend it."""
        raise NotImplementedError

    def scenario(
        self, kafka: KafkaCluster, directory: Path, seed: int, first: int, last: int
    ) -> Iterator[Line]:
        for number in range(first, last):
            yield self.round(kafka, directory, seed, number)

    def round(self, kafka: KafkaCluster, directory: Path, seed: int, number: int) -> Line:
        chance = random.Random(f"{self.name} {seed} {number}")
        app = {"rules": RULES, "at_once": True, **self.surround()}
        with stage(kafka, directory, f"{self.name}-{seed}-{number}", **app) as at:
            self.prepare(directory)
            trial = Trial(at, self, number)
            for _ in range(self.members):
                trial.join()
            for each in trial.members:  # a rebalance that goes on would be another adversary
                each.until_said("assigned")
            load = at.load(ENDLESS, RATE, delay_ms=10, slow_every=200, slow_ms=500)
            trial.flows()
            stuck = 0.0
            try:
                self.strike(trial, kafka, chance)
                trial.flows()
            except TimeoutError:
                stuck = 1.0
            count = cut_short(load)
            try:
                eventually(trial.is_done, "the group is at the end", every=0.2)
            except TimeoutError:
                stuck = float(sum(kafka.lag(at.topic, at.topic).values())) or 1.0
            for each in list(trial.members):
                trial.leave(each)
            figures = trial.figures(count) | {"stuck": stuck}
            silent = ("lost", "told", "repeated", "records", "parked_again")
            claims = {name: not figure for name, figure in figures.items() if name not in silent}
            claims["once"] = figures["repeated"] == 0 or (self.repeats and not trial.precise)
            claims["ends in order"] = not any(trial.codes)
            figures |= {trial.guarantee: 1.0, trial.protocol: 1.0}
            return judged(self.name, number, figures, claims)
