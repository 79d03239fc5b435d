"""What records feel: from production to the arrival of their request, through a real Kafka.

* open-loop: a steady load whatever becomes of it, with and without records that take 10 s.
* head-of-line: the same into a single partition, and what a sequential consumer makes of it.
* isolation: one route alone, and beside another whose application hangs.
* attacked: one route alone, and while clients do their worst to the admin surface.
* added-latency: at a tenth of the load, against a consumer that does nothing.

Nothing is pinned: load and broker alone fill a core, and a queue there would be all that is seen.
Each load begins with seconds that are not counted: the producer connects, and the broker's code is
compiled.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.cost import plain
from bench.figures import Row, compared, median_row
from tests.rig.journal import Journal
from tests.rig.kafka import KafkaCluster
from tests.rig.processes import Scene, Sidecar, config, route
from tests.rig.waiting import eventually

PARTITIONS = 6
UNCOUNTED_SECONDS = 5
SLOW_EVERY = 1000
SLOW_MS = 10_000


def _directory() -> Path:
    return Path(tempfile.mkdtemp(prefix="sidecar-bench-"))


def _sidecar(
    scene: Scene, kafka: KafkaCluster, group: str, routes: list[dict[str, Any]]
) -> Sidecar:
    """Start it, and wait until it has partitions of each route."""
    sidecar = scene.sidecar(config(kafka.bootstrap_servers, group, routes))
    sidecar.until_said("assigned", times=len(routes))
    return sidecar


def _quantiles(latencies_ms: list[float]) -> Row:
    thousand = statistics.quantiles(latencies_ms, n=1000)
    return {
        "p50_ms": thousand[499],
        "p99_ms": thousand[989],
        "p999_ms": thousand[998],
        "max_ms": max(latencies_ms),
    }


def _counted(journal: Journal, rate: float, count: int, slow_every: int = 0) -> Row:
    """Of the fast ones, without the beginning."""
    first = int(UNCOUNTED_SECONDS * rate)
    fast = (n for n in range(first, count) if not slow_every or (n + 1) % slow_every)
    return _quantiles([journal.latencies_us[n] / 1000 for n in fast])


def _answered(journal: Journal, count: int, within: float = 60) -> tuple[float, int]:
    """Wait until so many are answered: when that was, and how many they were by then."""

    def answered() -> bool:
        journal.refresh()
        return len(journal.answered) >= count

    eventually(answered, f"{count} records are answered", within=within)
    return time.monotonic(), len(journal.answered)


# --- slow ones --------------------------------------------------------------------------------


def open_loop(rounds: int, share: float) -> list[Row]:
    """2 000 records/s on 6 partitions, 64 executors; 1 in 1 000 takes 10 s, or none."""
    with KafkaCluster() as kafka:
        pairs = _pairs(kafka, rounds, PARTITIONS, 2000, 30 * share, {"executors": 64})
    return compared(pairs, ("p50_ms", "p99_ms", "p999_ms"), ("lost", "repeated"))


def head_of_line(rounds: int, share: float) -> list[Row]:
    """4 000 records/s into one partition, 128 executors, threshold 4 000."""
    settings = {"executors": 128, "threshold": 4000}
    directory = _directory()
    with KafkaCluster() as kafka:
        pairs = _pairs(kafka, rounds, 1, 4000, 30 * share, settings)
        with Scene(directory) as scene:
            port = scene.app(directory / "journal")
            # Two of the slow ones are among them, as many as there should be.
            sequential = plain("sequential", kafka, _topic(0, SLOW_EVERY), port, 2 * SLOW_EVERY)
    rows = compared(pairs, ("p50_ms", "p99_ms", "p999_ms"), ("lost", "repeated"))
    per_s = sequential["per_s"]
    slower = {"per_s": round(per_s, 1), "times_slower": round(rows[1]["per_s"] / per_s, 1)}
    return [*rows, {"variant": "sequential", **slower}]


def _pairs(
    kafka: KafkaCluster,
    rounds: int,
    partitions: int,
    rate: float,
    seconds: float,
    settings: dict[str, Any],
) -> list[tuple[Row, Row]]:
    """Without slow ones and with them."""
    pairs = []
    for number in range(rounds):
        none, some = (
            _slow_ones(kafka, _topic(number, every), partitions, rate, seconds, every, settings)
            for every in (0, SLOW_EVERY)
        )
        pairs.append((none, some))
    return pairs


def _topic(number: int, slow_every: int) -> str:
    return f"round-{number}-{slow_every}"


def _slow_ones(
    kafka: KafkaCluster,
    name: str,
    partitions: int,
    rate: float,
    seconds: float,
    slow_every: int,
    settings: dict[str, Any],
) -> Row:
    count = int(rate * (seconds + UNCOUNTED_SECONDS))
    kafka.create_topic(name, partitions)
    directory = _directory()
    journal = Journal(directory / "journal")
    with Scene(directory) as scene:
        port = scene.app(directory / "journal")
        sidecar = _sidecar(scene, kafka, name, [route(name, port, **settings)])
        load = scene.load(
            kafka.bootstrap_servers,
            name,
            partitions=partitions,
            count=count,
            rate=rate,
            delay_ms=5,
            slow_every=slow_every,
            slow_ms=SLOW_MS,
        )
        begun, first = _answered(journal, int(rate * UNCOUNTED_SECONDS))
        # The last slow ones say nothing about the throughput.
        ended, last = _answered(journal, count * 98 // 100, within=seconds + 60)
        assert load.wait(60) == 0, "the load was not confirmed"
        _answered(journal, count)
        eventually(
            lambda: not any(kafka.lag(name, name).values()), "the group is at the end", within=30
        )
        assert sidecar.stop() == 0
        verdict = journal.judge(range(count))
        return {
            "variant": f"1 in {slow_every:,} takes {SLOW_MS // 1000} s"
            if slow_every
            else "all fast",
            "records": count,
            "lost": verdict.lost,
            "repeated": verdict.repeats,
            "per_s": (last - first) / (ended - begun),
            **_counted(journal, rate, count, slow_every),
        }


# --- isolation --------------------------------------------------------------------------------


def isolation(rounds: int, share: float) -> list[Row]:
    """500 records/s through route B, alone and beside route A, whose application hangs.

    The broker gets the same load for A in both: what differs is the sidecar.
    """
    with KafkaCluster() as kafka:
        pairs = [
            (
                _isolation(kafka, 20 * share, f"{number}-alone", hangs=False),
                _isolation(kafka, 20 * share, f"{number}-beside", hangs=True),
            )
            for number in range(rounds)
        ]
    return compared(pairs, ("p50_ms", "p99_ms"), ("lost",))


def _isolation(kafka: KafkaCluster, seconds: float, run: str, *, hangs: bool) -> Row:
    names = [f"a-{run}", f"b-{run}"]
    for name in names:
        kafka.create_topic(name, PARTITIONS)
    directory = _directory()
    journals = [Journal(directory / name) for name in names]
    rate = 500.0
    count = int(rate * (seconds + UNCOUNTED_SECONDS))
    with Scene(directory) as scene:
        ports = [
            scene.app(directory / names[0], hang_path="/events/"),
            scene.app(directory / names[1]),
        ]
        routes = [route(name, port, executors=16) for name, port in zip(names, ports, strict=True)]
        sidecar = _sidecar(scene, kafka, f"isolation-{run}", routes if hangs else routes[1:])
        options = {"partitions": PARTITIONS, "count": count, "rate": rate}
        loads = [
            scene.load(kafka.bootstrap_servers, names[1], delay_ms=2, **options),
            scene.load(kafka.bootstrap_servers, names[0], **options),
        ]
        for load in loads:
            assert load.wait(seconds + 60) == 0, "the load was not confirmed"
        _answered(journals[1], count)
        journals[0].refresh()
        assert bool(journals[0].arrivals) == hangs, "what hangs was reached"
        sidecar.kill()
        return {
            "variant": "beside a hanging route" if hangs else "alone",
            "records": count,
            "lost": journals[1].judge(range(count)).lost,
            **_counted(journals[1], rate, count),
        }


# --- the admin surface attacked ---------------------------------------------------------------


def attacked(rounds: int, share: float) -> list[Row]:
    """500 records/s, alone and while the admin surface is attacked (bench/attack.py): 500 idle
    connections, slow heads and bodies, huge ones, clients that read nothing, four that ask at once
    again.
    """
    with KafkaCluster() as kafka:
        pairs = [
            (
                _attacked(kafka, 20 * share, f"{number}-alone", attack=False),
                _attacked(kafka, 20 * share, f"{number}-attacked", attack=True),
            )
            for number in range(rounds)
        ]
    return compared(pairs, ("p50_ms", "p99_ms"), ("lost",))


def _attacked(kafka: KafkaCluster, seconds: float, run: str, *, attack: bool) -> Row:
    kafka.create_topic(run, PARTITIONS)
    directory = _directory()
    journal = Journal(directory / "journal")
    rate = 500.0
    count = int(rate * (seconds + UNCOUNTED_SECONDS))
    with Scene(directory) as scene:
        port = scene.app(directory / "journal")
        sidecar = _sidecar(scene, kafka, run, [route(run, port, executors=16)])
        attacker, answers = None, 0
        if attack:
            command = [sys.executable, "-m", "bench.attack", str(sidecar.port)]
            attacker = subprocess.Popen(command, stdout=subprocess.PIPE)
        try:
            _load(scene, kafka, run, rate, count)
            _answered(journal, count)
        finally:
            if attacker is not None:
                attacker.terminate()
                answers = int(attacker.communicate(timeout=10)[0])
        began = time.monotonic()
        assert sidecar.stop() == 0
        return {
            "variant": "attacked" if attack else "alone",
            "records": count,
            "lost": journal.judge(range(count)).lost,
            "answers_per_s": round(answers / (seconds + UNCOUNTED_SECONDS)),
            "stop_s": round(time.monotonic() - began, 2),
            **_counted(journal, rate, count),
        }


# --- added latency ----------------------------------------------------------------------------


def added_latency(rounds: int, share: float) -> list[Row]:
    """1 000 records/s, about a tenth of what two cores carry that have the broker and the load,
    the application and the sidecar to serve; medians of the rounds.
    """
    rate = 1000.0
    count = int(rate * (15 * share + UNCOUNTED_SECONDS))
    bare, ours = [], []
    with KafkaCluster() as kafka:
        for number in range(rounds):
            bare.append(_consumed(kafka, f"consumed-{number}", rate, count))
            ours.append(_requested(kafka, f"requested-{number}", rate, count))
    merged = [median_row(bare), median_row(ours)]
    added = {c: round(merged[1][c] - merged[0][c], 2) for c in ("p50_ms", "p99_ms")}
    return [*merged, {"variant": "added", **added}]


def _consumed(kafka: KafkaCluster, topic: str, rate: float, count: int) -> Row:
    kafka.create_topic(topic, PARTITIONS)
    command = [sys.executable, "-m", "bench.plain", "arrivals", "--topic", topic, "--port", "0"]
    command += ["--bootstrap-servers", kafka.bootstrap_servers, "--count", str(count)]
    consumer = subprocess.Popen(command, stdout=subprocess.PIPE)
    try:
        with Scene(_directory()) as scene:
            _load(scene, kafka, topic, rate, count)
            out, _ = consumer.communicate(timeout=60)
    finally:
        consumer.kill()
        consumer.wait()
    latencies: list[float] = json.loads(out)
    row = _quantiles(latencies[int(UNCOUNTED_SECONDS * rate) :])
    return {"variant": "a consumer that does nothing", **row}


def _requested(kafka: KafkaCluster, topic: str, rate: float, count: int) -> Row:
    kafka.create_topic(topic, PARTITIONS)
    directory = _directory()
    journal = Journal(directory / "journal")
    with Scene(directory) as scene:
        port = scene.app(directory / "journal")
        _sidecar(scene, kafka, topic, [route(topic, port, executors=32)])
        _load(scene, kafka, topic, rate, count)
        _answered(journal, count)
    return {"variant": "the request arrives", **_counted(journal, rate, count)}


def _load(scene: Scene, kafka: KafkaCluster, topic: str, rate: float, count: int) -> None:
    load = scene.load(kafka.bootstrap_servers, topic, partitions=PARTITIONS, count=count, rate=rate)
    assert load.wait(count / rate + 60) == 0, "the load was not confirmed"
