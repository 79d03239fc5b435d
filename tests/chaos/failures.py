"""Records and applications that fail, and a dead-letter topic that refuses: what it may cost.

Each proof takes its size, so that the suite runs a small one of it. `max_attempts: 1` stands
wherever nobody may be charged: one charge would be seen in the dead-letter topic.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from tests.chaos.stage import (
    PARTITIONS,
    Line,
    cut_short,
    ended,
    judged,
    number_of,
    origin,
    own_headers,
    stage,
    told,
)
from tests.rig.kafka import KafkaCluster
from tests.rig.operations import KafkaOperations
from tests.rig.processes import Sidecar
from tests.rig.recorder import Rule
from tests.rig.waiting import eventually

KEY = b"key \x00\xff"
HEADERS = [
    ("plain", b"1"),
    ("twice", b"a"),
    ("twice", b"b"),
    ("null", None),
    ("empty", b""),
    ("b\xc3\xa4r", bytes(range(256))),
]
ENDLESS = 1_000_000  # records of a load that is cut short
QUICKLY = {"initial_backoff_seconds": 0.1, "max_backoff_seconds": 0.5}


def for_a_while(seconds: float) -> None:
    """The time that a fault lasts."""
    time.sleep(seconds)


def always_fails(
    kafka: KafkaOperations, directory: Path, number: int, *, good: int = 10_000
) -> Line:
    """One record that is always answered 500, in the middle of good ones; then a restart."""
    name = "always-fails"
    with stage(kafka, directory, name) as at:
        bad = good // 2
        at.app.answer(Rule(500, number=bad))
        sidecar = at.sidecar(retry={"max_attempts": 3})
        at.produced(bad)
        value = b"%d %d 0 " % (bad, time.monotonic_ns()) + bytes(range(256))
        sent = kafka.produce(at.topic, [value], key=KEY, headers=HEADERS)[0]
        at.produced(good - bad, first=bad + 1)
        at.until_drained()
        letters = at.letters()
        code = sidecar.stop()
        figures = at.figures(range(good + 1))
        arrivals = at.journal.arrivals.total()

        again = at.sidecar(retry={"max_attempts": 3})
        at.produced(1, first=good + 1)
        at.until(good + 1)
        at.until_drained()
        story = told(letters[0]) if letters else {}
        claims = {
            "each good one once": figures["lost"] == 0 and figures["repeated"] == 0,
            "asked as often as allowed": at.journal.arrivals[bad] == 3,
            "parked once": len(letters) == 1,
            "byte for byte": [(each.key(), each.value()) for each in letters] == [(KEY, value)],
            "headers in order": [own_headers(each) for each in letters] == [HEADERS],
            "its origin": origin(story) == (sent.topic(), sent.partition(), sent.offset()),
            "its timestamp and group": [story.get("timestamp"), story.get("group")]
            == [str(sent.timestamp()[1]).encode(), at.topic.encode()],
            "its attempts": [story.get(each) for each in ("status", "attempts", "answer")]
            == [b"500", b"3", b"by rule"],
            "its times": int(story.get("first-attempt") or 0) < int(story.get("last-attempt") or 0),
            "a restart brings nothing back": at.journal.arrivals.total() == arrivals + 1
            and len(at.letters()) == 1,
            "ends in order": (code, again.stop()) == (0, 0),
        }
        return judged(name, number, figures, claims)


def app_stopped(
    kafka: KafkaOperations,
    directory: Path,
    number: int,
    *,
    seconds: float = 60,
    rate: float = 500,
) -> Line:
    """The application is gone for a while under load, and comes back."""
    name = "app-stopped"
    with stage(kafka, directory, name) as at:
        sidecar = at.sidecar(retry={"max_attempts": 1})
        sidecar.until_said("assigned")
        load = at.load(ENDLESS, rate, delay_ms=5)
        at.until(int(rate * 3))
        gone = time.monotonic()
        at.app.stop()
        for_a_while(seconds)
        state = sidecar.route()["state"], sidecar.route()["availability"]["state"]
        at.app.start()
        back = time.monotonic()
        for_a_while(5)
        count = cut_short(load)
        at.until_drained()
        figures = at.figures(range(count))
        before = at.journal.rate(gone - 2, gone)
        after = at.journal.rate(back + 2, back + 4)
        first_answer = min(t for t in at.journal.answered_at.values() if t > back - 0.1) - back
        figures |= {"before_s": before, "after_s": after, "first_after_s": first_answer}
        claims = {
            "held": "held" in state or "trial" in state,
            "nothing parked, so nobody charged": figures["parked"] == 0,
            "nothing lost": figures["lost"] == 0,
            # before may be more than is offered, while the start is made up for
            "full speed": after >= 0.9 * min(before, rate),
            "ends in order": sidecar.stop() == 0,
        }
        return judged(name, number, figures, claims)


def killer(
    kafka: KafkaOperations,
    directory: Path,
    number: int,
    *,
    good: int = 10_000,
    rate: float = 1000,
) -> Line:
    """One record ends the application each time; it is back 0.3 s later.

    Odd rounds with the default number of attempts, even ones with a single one.
    """
    name = "killer"
    attempts = (1, 5)[number % 2]
    with stage(kafka, directory, name, revive_seconds=0.3) as at:
        bad = good // 2
        at.app.answer(Rule("exit", number=bad))
        sidecar = at.sidecar(retry={"max_attempts": attempts, **QUICKLY})
        ended(at.load(good + 1, rate, delay_ms=5))
        at.until_drained(within=90)
        parked = at.parked()
        figures = at.figures(range(good + 1), parked=parked)
        figures |= {"attempts": attempts, "deaths": at.app.lives - 1}
        claims = {
            "it alone is parked": parked == {bad: 1},
            "nothing lost": figures["lost"] == 0,
            "ends in order": sidecar.stop() == 0,
        }
        return judged(name, number, figures, claims)


def one_refused(
    kafka: KafkaOperations,
    directory: Path,
    number: int,
    *,
    good: int = 10_000,
    slower: float | None = 1.1,
) -> Line:
    """One record is always answered 503, one 403; and the same without them.

    The application's delay sets the pace, so that a busy machine does not. A trickle goes on:
    as long as nothing else is delivered, such answers are an outage and charge nobody.
    """
    name = "one-refused"
    without = _seconds_for(kafka, directory, name, good)
    rules = {good // 4: 503, good // 2: 403}
    with stage(kafka, directory, name) as at:
        at.app.answer(*(Rule(status, number=each) for each, status in rules.items()))
        at.produced(good, delay_ms=20)
        sidecar = at.sidecar(executors=16, retry={"max_attempts": 3, **QUICKLY})
        trickle = at.load(ENDLESS, 20, first=good)
        at.until(good - len(rules), within=120)
        eventually(lambda: sum(kafka.end_offsets(at.dead).values()) == 2, "both are parked")
        count = good + cut_short(trickle)
        at.until_drained()
        seconds = at.seconds_for(range(good))
        stories = {number_of(each.value()): told(each) for each in at.letters()}
        figures = at.figures(range(count))
        figures |= {"without_s": without, "with_s": seconds}
        asked = {each: at.journal.arrivals[each] for each in rules}
        figures |= {f"asked_{rules[each]}": times for each, times in asked.items()}
        claims = {
            "both are parked": {each: int(s["status"] or 0) for each, s in stories.items()}
            == rules,
            # What comes before anything was delivered between is free.
            "they end by their attempts": all(3 <= times <= 5 for times in asked.values()),
            "each good one once": figures["lost"] == 0 and figures["repeated"] == 0,
            "as fast as without": slower is None or seconds <= slower * without,
            "ends in order": sidecar.stop() == 0,
        }
        return judged(name, number, figures, claims)


def _seconds_for(kafka: KafkaOperations, directory: Path, name: str, good: int) -> float:
    with stage(kafka, directory, name) as at:
        at.produced(good, delay_ms=20)
        at.sidecar(executors=16)
        at.load(ENDLESS, 20, first=good)
        at.until(good, within=120)
        eventually(lambda: at.taken(range(good)), "all are delivered")
        return at.seconds_for(range(good))


STATUSES = (401, 404, 302, 500)


def misdeployed(
    kafka: KafkaOperations,
    directory: Path,
    number: int,
    *,
    seconds: float = 30,
    rate: float = 200,
) -> Line:
    """RSP-3: for a while everything is answered 401 (404, 302, 500: a round each)."""
    name = "misdeployed"
    status = STATUSES[number % len(STATUSES)]
    with stage(kafka, directory, name) as at:
        sidecar = at.sidecar(executors=64, retry={"max_attempts": 3, **QUICKLY})
        sidecar.until_said("assigned")
        load = at.load(ENDLESS, rate)
        at.until(int(rate))
        at.app.answer(Rule(status))
        for_a_while(seconds)
        at.app.answer()
        fixed = time.monotonic()
        for_a_while(1)
        count = cut_short(load)
        at.until_drained()
        parked = at.parked()
        figures = at.figures(range(count), parked=parked)
        resumed = min((t for t in at.journal.answered_at.values() if t > fixed), default=fixed)
        in_vain = at.journal.arrivals.total() - at.journal.answered.total()
        figures |= {"status": status, "asked_in_vain": in_vain, "resumed_s": resumed - fixed}
        claims = {
            "at most 20 parked": parked.total() <= 20,
            "the rest delivered": figures["lost"] == 0,
            "ends in order": sidecar.stop() == 0,
        }
        return judged(name, number, figures, claims)


Refusing = Callable[[KafkaCluster, str], AbstractContextManager[None]]


@contextmanager
def by_acl(kafka: KafkaCluster, topic: str) -> Iterator[None]:
    """The topic may be seen by us, and written by nobody."""
    describe = AclBinding(
        ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, "User:ANONYMOUS", "*",
        AclOperation.DESCRIBE, AclPermissionType.ALLOW,
    )  # fmt: skip
    every = AclBindingFilter(
        ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, None, None,  # type: ignore[arg-type]
        AclOperation.ANY, AclPermissionType.ANY,
    )  # fmt: skip
    for made in kafka.admin.create_acls([describe]).values():
        made.result(30)
    yield
    for gone in kafka.admin.delete_acls([every]).values():
        gone.result(30)


@contextmanager
def by_a_stopped_broker(kafka: KafkaCluster, topic: str) -> Iterator[None]:
    """The only node that has the topic is down; all else lives on the others."""
    kafka.node(kafka.leader(topic)).terminate()
    yield
    kafka.heal()


def letters_refused(
    kafka: KafkaCluster,
    directory: Path,
    number: int,
    refusing: Refusing = by_acl,
    *,
    seconds: float = 60,
    rate: float = 200,
) -> Line:
    """DLQ-1, DLQ-2: for a while the dead-letter topic takes nothing; one in 100 is for it."""
    name = f"letters-refused-{refusing.__name__}"
    with stage(kafka, directory, name, dead_replication=1) as at:
        at.app.answer(Rule(400, every=100))
        sidecar = at.sidecar(retry={"max_backoff_seconds": 3})
        sidecar.until_said("assigned")
        load = at.load(ENDLESS, rate)
        at.until(int(rate * 2))
        with refusing(kafka, at.dead):
            refused = time.monotonic()
            for_a_while(seconds)
            still = time.monotonic()
            shown = sidecar.route()
            committed = kafka.committed(at.topic, at.topic)
            at.journal.refresh()
        healed = time.monotonic()
        for_a_while(1)
        count = cut_short(load)
        at.until_drained(within=60)
        lag_gone = time.monotonic() - healed
        parked = at.parked()
        figures = at.figures(range(count), parked=parked)
        flowing = at.journal.rate(still - seconds / 2, still)
        stuck = [n for n, t in at.journal.refused_at.items() if refused + 1 < t < still]
        figures |= {"stuck": len(stuck), "flowing_s": flowing, "lag_gone_s": lag_gone}
        causes = [each["cause"] for each in shown["causes"]]
        claims = {
            "other records flow": flowing >= 0.8 * rate,
            "what is stuck is not committed": bool(stuck)
            and all(committed[each % PARTITIONS] <= each // PARTITIONS for each in stuck),
            "it is shown": "dead_letter_writes_failing" in causes,
            "nothing lost": figures["lost"] == 0,
            "each good one once": figures["repeated"] == 0,
            "each bad one parked": parked.keys() == set(range(0, count, 100)),
            "by the same process": sidecar.process.poll() is None,
            "ends in order": sidecar.stop() == 0,
        }
        return judged(name, number, figures, claims)


def killed_while_parking(
    kafka: KafkaOperations,
    directory: Path,
    seed: int,
    first: int,
    last: int,
    *,
    per_round: int = 1500,
) -> Iterator[Line]:
    """DLQ-1: kill -9 at random moments while one record in five fails and is parked."""
    name = "killed-while-parking"
    with stage(kafka, directory, f"{name}") as at:
        at.app.answer(Rule(500, every=5))
        quick = {"session_timeout_ms": 1500, "heartbeat_interval_ms": 300}
        attempts = {"max_attempts": 2, "initial_backoff_seconds": 0.05}

        def start() -> Sidecar:
            # What is left at the end of a round are bad ones alone.
            what = at.config(retry=attempts, max_parked_in_a_row=per_round, kafka=quick)
            return at.scene.sidecar({**what, "commit_interval_seconds": 0.1})

        sidecar = start()
        for number in range(first, last):
            chance = random.Random(f"{seed} {number}")
            begin = (number - first) * per_round
            numbers = range(begin, begin + per_round)
            load = at.load(per_round, 3000, first=begin, delay_ms=2)
            eventually(partial(at.seen, numbers), "the round begins", within=60, every=0.01)
            for_a_while(chance.uniform(0, 0.8))
            sidecar.kill()
            sidecar = start()
            ended(load)
            at.until_drained()
            parked = at.parked()
            figures = at.figures(numbers, parked=parked)
            figures["parked"] = sum(1 for each in parked if each in numbers)
            figures["parked_again"] = sum(n - 1 for each, n in parked.items() if each in numbers)
            claims = {
                "delivered or parked": figures["lost"] == 0,
                "each bad one parked": all(parked[each] for each in numbers if each % 5 == 0),
                "no good one parked": not any(parked[each] for each in numbers if each % 5),
            }
            yield judged(name, number, figures, claims)
        assert sidecar.stop() == 0
