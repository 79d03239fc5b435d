"""What is broken, and how it is judged. Each scenario gives one line of the table per round."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from tests.chaos import failures, retries
from tests.chaos.adversaries import ADVERSARIES
from tests.chaos.stage import (
    PARTITIONS,
    PROTOCOLS,
    Entry,
    Line,
    Scenario,
    cut_short,
    drained,
    flows,
    rounds,
)
from tests.chaos.turmoil import Adversary
from tests.rig.journal import Journal
from tests.rig.kafka import KafkaCluster
from tests.rig.operations import KafkaOperations
from tests.rig.processes import ADMIN_TOKEN, Scene, Sidecar, config, route
from tests.rig.waiting import eventually

BUDGET = 200
KILLS = 10  # in a round
RECORDS_A_KILL = 3000


def _guarantee(guarantee: str) -> dict[str, Any]:
    extra = {"loss_budget": BUDGET} if guarantee == "at_most_once" else {"threshold": 1000}
    return {"guarantee": guarantee, "executors": 32, **extra}


@contextmanager
def _stage(
    kafka: KafkaOperations, directory: Path, name: str
) -> Iterator[tuple[Scene, str, int, Journal]]:
    """A scene, a topic whose name is the group's as well, an application's port and journal."""
    topic = f"{name}-{time.time_ns()}"
    kafka.create_topic(topic, PARTITIONS)
    journal_file = directory / f"{topic}.journal"
    with Scene(directory) as scene:
        yield scene, topic, scene.app(journal_file), Journal(journal_file)


def kill(
    kafka: KafkaCluster, directory: Path, seed: int, first: int, last: int, guarantee: str
) -> Iterator[Line]:
    """kill -9 at random moments under load, each time with a new sidecar in the same group."""
    name = f"kill-{guarantee}"
    with _stage(kafka, directory, f"{name}-{seed}") as (scene, topic, port, journal):
        what = config(
            kafka.bootstrap_servers,
            topic,
            [route(topic, port, **_guarantee(guarantee))],
            session_timeout_ms=1500,
            heartbeat_interval_ms=300,
        )
        sidecar = scene.sidecar(what, f"{name}-{first}")
        produced = first * RECORDS_A_KILL * KILLS
        for number in range(first, last):
            chance = random.Random(f"{seed} {number}")
            numbers = range(produced, produced + RECORDS_A_KILL * KILLS)
            produced = numbers.stop
            load = scene.load(
                kafka.bootstrap_servers,
                topic,
                partitions=PARTITIONS,
                first=numbers.start,
                count=len(numbers),
                rate=1000,
                delay_ms=5,
                slow_every=100,
                slow_ms=300,
            )
            kills = 0
            while kills < KILLS and load.poll() is None:
                journal.refresh()
                more = partial(_has_more_than, journal, journal.arrivals.total())
                eventually(more, "records come to the application", within=60)
                time.sleep(chance.uniform(0, 1.2))
                sidecar.kill()
                sidecar = scene.sidecar(what, f"{name}-{number + 1}")
                kills += 1
            assert load.wait(60) == 0, "the load was not confirmed"
            eventually(partial(drained, kafka, topic, topic), "the group is at the end", within=60)
            if guarantee == "at_least_once":
                eventually(partial(_has_seen, journal, numbers), "all records seen", within=30)
            else:
                time.sleep(0.5)  # what is committed may still be executing
            journal.refresh()
            verdict = journal.judge(numbers)
            ok = (
                verdict.lost == 0
                if guarantee == "at_least_once"
                else verdict.lost <= BUDGET * kills and verdict.repeats == 0
            )
            figures = {
                "kills": kills,
                "lost": verdict.lost,
                "repeated": verdict.repeats,
                "records": len(numbers),
            }
            yield Line(name, number, ok, figures)
        sidecar.stop()


def _has_more_than(journal: Journal, arrivals: int) -> bool:
    journal.refresh()
    return journal.arrivals.total() > arrivals


def _has_seen(journal: Journal, numbers: range, at_least: int | None = None) -> bool:
    """Whether the application got so many of the numbers, all of them by default."""
    journal.refresh()
    seen = sum(1 for number in numbers if journal.arrivals[number])
    return seen >= (len(numbers) if at_least is None else at_least)


def members(
    kafka: KafkaCluster, directory: Path, seed: int, first: int, last: int, protocol: str
) -> Iterator[Line]:
    """A second member joins, leaves in order, or is killed; each time all partitions go on."""
    name = f"members-{protocol}"
    rate = 500.0
    with _stage(kafka, directory, f"{name}-{seed}") as (scene, topic, port, journal):
        what = config(
            kafka.bootstrap_servers,
            topic,
            [route(topic, port, executors=32)],
            **PROTOCOLS[protocol],
        )
        what["commit_interval_seconds"] = 0.1
        scene.sidecar(what, f"{name}-constant")
        second: Sidecar | None = None
        count = int((last - first) * 12 * rate)
        load = scene.load(
            kafka.bootstrap_servers,
            topic,
            partitions=PARTITIONS,
            count=count,
            rate=rate,
            delay_ms=10,
            slow_every=200,
            slow_ms=1500,
        )
        eventually(partial(flows, journal, 0), "every partition flows", within=60)
        for number in range(first, last):
            chance = random.Random(f"{seed} {number}")
            time.sleep(chance.uniform(0.1, 1.0))
            code = 0
            if second is None:
                change = 0
                second = scene.sidecar(what, f"{name}-{number}")
            elif chance.random() < 0.7:
                change = 1
                code = 0 if _stopped_unborn(second, stopped := second.stop()) else stopped
                second = None
            else:
                change = 2
                second.kill()
                second = None
            changed = time.monotonic()
            newer = max(journal.arrivals, default=0) + int(rate * 2)
            eventually(partial(flows, journal, newer), "every partition flows again", within=30)
            stall = time.monotonic() - changed
            figures = {"change": change, "flows_again_s": round(stall, 1), "exit": code}
            yield Line(name, number, code == 0, figures)
        confirmed = cut_short(load)
        eventually(partial(drained, kafka, topic, topic), "the group is at the end", within=60)
        eventually(partial(_has_seen, journal, range(confirmed)), "all records seen", within=30)
        verdict = journal.judge(range(confirmed))
        figures = {"lost": verdict.lost, "repeated": verdict.repeats, "records": confirmed}
        yield Line(name, last, verdict.lost == 0, figures)


def _stopped_unborn(sidecar: Sidecar, code: int) -> bool:
    """Whether the signal came while the interpreter was starting, before a line of ours ran."""
    return code == -signal.SIGTERM and sidecar.log.stat().st_size == 0


def resize(
    kafka: KafkaOperations, directory: Path, seed: int, first: int, last: int
) -> Iterator[Line]:
    """CTL-1: the number of executors changes under load, while a second member comes and goes.

    Nothing may be lost, repeated or cancelled; each change is reported at once, and in force
    within 2 s.
    """
    name, counts = "resize", (1, 50, 2, 0, 10)
    with _stage(kafka, directory, f"{name}-{seed}") as (scene, topic, port, journal):
        what = config(
            kafka.bootstrap_servers,
            topic,
            [route(topic, port, executors=10)],
            **PROTOCOLS["cooperative"],
        )
        what["admin"] = {"token": ADMIN_TOKEN}
        constant = scene.sidecar(what, f"{name}-constant")
        second: Sidecar | None = None
        load = scene.load(
            kafka.bootstrap_servers,
            topic,
            partitions=PARTITIONS,
            count=10_000_000,
            rate=300,
            delay_ms=5,
            slow_every=100,
            slow_ms=300,
        )
        eventually(partial(flows, journal, 0), "every partition flows", within=60)
        for number in range(first, last):
            if number % 4 == 1:
                second = scene.sidecar(what, f"{name}-{number}")
            longest = 0.0
            reported = True
            for count in counts:
                began = time.monotonic()
                told = constant.change("PUT", f"/v1/routes/{topic}/executors", {"count": count})
                reported &= told["wanted"] == count
                eventually(partial(_is_running, constant, count), f"{count} run", within=10)
                longest = max(longest, time.monotonic() - began)
            if number % 4 == 3 and second is not None:
                code = second.stop()
                reported &= code == 0 or _stopped_unborn(second, code)
                second = None
            figures = {"in_force_s": round(longest, 2)}
            yield Line(name, number, reported and longest < 2, figures)
        load.terminate()
        assert load.stdout is not None
        confirmed = int(load.stdout.read().split()[1])
        eventually(partial(drained, kafka, topic, topic), "the group is at the end", within=60)
        eventually(partial(_has_seen, journal, range(confirmed)), "all records seen", within=30)
        verdict = journal.judge(range(confirmed))
        late = constant.route()["counters"]["late_results"]
        ok = verdict.lost == verdict.repeats == late == 0 and constant.stop() == 0
        figures = {"lost": verdict.lost, "repeated": verdict.repeats, "records": confirmed}
        yield Line(name, last, ok, figures)


def _is_running(sidecar: Sidecar, count: int) -> bool:
    executors: dict[str, int] = sidecar.route()["executors"]
    return (executors["wanted"], executors["running"]) == (count, count)


def broker(
    kafka: KafkaCluster, directory: Path, seed: int, first: int, last: int, kind: str
) -> Iterator[Line]:
    """The broker is stopped for 30 s, or the leader of three is killed; the sidecar stays."""
    name = f"broker-{kind}"
    for number in range(first, last):
        with _stage(kafka, directory, f"{name}-{seed}") as (scene, topic, port, journal):
            what = config(
                kafka.bootstrap_servers,
                topic,
                [route(topic, port, executors=32)],
                session_timeout_ms=6000,
            )
            sidecar = scene.sidecar(what, f"{name}-{number}")
            count = 20_000
            load = scene.load(
                kafka.bootstrap_servers,
                topic,
                partitions=PARTITIONS,
                count=count,
                rate=400,
                delay_ms=5,
            )
            eventually(partial(flows, journal, 2000), "it flows", within=60)
            if kind == "stopped":
                kafka.node(1).terminate()
                time.sleep(30)
            else:
                kafka.node(kafka.leader(topic, 0)).kill()
                time.sleep(10)
            kafka.heal()
            healed = time.monotonic()
            newer = max(journal.arrivals) + 500
            eventually(partial(flows, journal, newer), "it flows again", within=90)
            back = time.monotonic() - healed
            assert load.wait(120) == 0, "the load was not confirmed"
            eventually(partial(_has_seen, journal, range(count)), "all records seen", within=60)
            eventually(partial(drained, kafka, topic, topic), "the group is at the end", within=60)
            verdict = journal.judge(range(count))
            same_process = sidecar.process.poll() is None
            code = sidecar.stop()
            figures = {
                "lost": verdict.lost,
                "repeated": verdict.repeats,
                "records": count,
                "flows_again_s": round(back, 1),
                "exit": code,
            }
            yield Line(name, number, verdict.lost == 0 and same_process and code == 0, figures)


def _with(function: Callable[..., Iterator[Line]], choice: str) -> Scenario:
    def scenario(
        kafka: KafkaCluster, directory: Path, seed: int, first: int, last: int
    ) -> Iterator[Line]:
        return function(kafka, directory, seed, first, last, choice)

    return scenario


def _entry(adversary: Adversary) -> Entry:
    return Entry(adversary.scenario, adversary.rounds, cluster=adversary.cluster)


SCENARIOS: dict[str, Entry] = {
    "kill-at_least_once": Entry(_with(kill, "at_least_once"), 10),
    "kill-at_most_once": Entry(_with(kill, "at_most_once"), 10),
    "members-eager": Entry(_with(members, "eager"), 30),
    "members-cooperative": Entry(_with(members, "cooperative"), 30),
    "members-consumer": Entry(_with(members, "consumer"), 30),
    "resize": Entry(resize, 200),
    "broker-stopped": Entry(_with(broker, "stopped"), 1),
    "broker-leader_killed": Entry(_with(broker, "leader_killed"), 1, nodes=3),
    "always-fails": Entry(rounds(failures.always_fails), 1),
    "app-stopped": Entry(rounds(failures.app_stopped), 1),
    "killer": Entry(rounds(failures.killer), 2),
    "one-refused": Entry(rounds(failures.one_refused), 1),
    "misdeployed": Entry(rounds(failures.misdeployed), len(failures.STATUSES)),
    "letters-refused-by_acl": Entry(rounds(failures.letters_refused), 1, guarded=True),
    "letters-refused-by_a_stopped_broker": Entry(
        rounds(partial(failures.letters_refused, refusing=failures.by_a_stopped_broker)), 1, nodes=3
    ),
    "killed-while-parking": Entry(failures.killed_while_parking, 50),
    "durable-retries": Entry(rounds(retries.durable_retries), 1),
    "relieved": Entry(rounds(retries.relieved), 1),
    "redriven": Entry(rounds(retries.redriven), 1),
    "left-group": Entry(rounds(retries.left_group), 2),
    **{each.name: _entry(each()) for each in ADVERSARIES},
}
