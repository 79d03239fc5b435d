"""What records feel: from production to the arrival of their request, through a real Kafka.

* open-loop: a steady load whatever becomes of it, with and without records that take 10 s.
* isolation: one route alone, and beside another whose application hangs.
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path
from typing import Any

from tests.rig.journal import Journal
from tests.rig.kafka import KafkaCluster
from tests.rig.processes import Scene, config, route
from tests.rig.waiting import eventually

PARTITIONS = 6


def open_loop(rounds: int) -> list[dict[str, Any]]:
    """2 000 records/s on 6 partitions, 64 executors; 1 in 1 000 takes 10 s, or none does.

    The last row has the ratios of the medians: with slow ones to without.
    """
    rows = []
    with KafkaCluster() as kafka:
        for number in range(rounds):
            rows += [_open_loop(kafka, 60, every, number) for every in (0, 1000)]
    with_slow: dict[str, Any] = {"slow": "with / without, medians"}
    for column in ("p50_ms", "p99_ms", "p999_ms"):
        without, slow = (statistics.median(row[column] for row in rows[i::2]) for i in (0, 1))
        with_slow[column] = round(slow / without, 2)
    return [*rows, with_slow]


def _open_loop(kafka: KafkaCluster, seconds: float, slow_every: int, number: int) -> dict[str, Any]:
    topic = group = f"open-loop-{number}-{slow_every}"
    count = int(2000 * seconds)
    kafka.create_topic(topic, PARTITIONS)
    directory = Path(tempfile.mkdtemp(prefix="sidecar-bench-"))
    journal = Journal(directory / "journal")
    with Scene(directory) as scene:
        port = scene.app(directory / "journal")
        sidecar = scene.sidecar(
            config(kafka.bootstrap_servers, group, [route(topic, port, executors=64)])
        )
        _warm_up(scene, kafka, topic, journal)
        before = sidecar.cpu_seconds()
        load = scene.load(
            kafka.bootstrap_servers,
            topic,
            partitions=PARTITIONS,
            count=count,
            rate=2000,
            delay_ms=5,
            slow_every=slow_every,
            slow_ms=10_000,
        )
        assert load.wait(seconds + 60) == 0, "the load was not confirmed"
        eventually(
            lambda: len(_refreshed(journal).answered) >= count, "all records answered", within=60
        )
        cpu = sidecar.cpu_seconds() - before
        eventually(
            lambda: not any(kafka.lag(group, topic).values()), "the group is at the end", within=30
        )
        fast = [n for n in range(count) if not slow_every or n % slow_every != slow_every - 1]
        verdict = journal.judge(range(count))
        code = sidecar.stop()
        return {
            "slow": f"1 in {slow_every}" if slow_every else "none",
            "records": count,
            "lost": verdict.lost,
            "repeated": verdict.repeats,
            "p50_ms": round(journal.latency_ms(fast, 0.5), 2),
            "p99_ms": round(journal.latency_ms(fast, 0.99), 2),
            "p999_ms": round(journal.latency_ms(fast, 0.999), 2),
            "max_ms": round(max(journal.latencies_us[n] for n in fast) / 1000, 1),
            "cpu_us_per_record": round(cpu / count * 1e6, 1),
            "exit": code,
        }


def isolation(rounds: int) -> list[dict[str, Any]]:
    """500 records/s through route B, alone and beside route A, whose application hangs.

    The last row has the ratios of the medians: beside to alone.
    """
    rows: list[dict[str, Any]] = []
    with KafkaCluster() as kafka:
        for _ in range(rounds):
            for hangs in (False, True):
                rows.append(_isolation(kafka, 20, hangs, len(rows)))
    beside: dict[str, Any] = {"beside": "beside / alone, medians"}
    for column in ("p50_ms", "p99_ms"):
        alone, hanging = (statistics.median(row[column] for row in rows[i::2]) for i in (0, 1))
        beside[column] = round(hanging / alone, 2)
    return [*rows, beside]


def _isolation(kafka: KafkaCluster, seconds: float, hangs: bool, run: int) -> dict[str, Any]:
    names = [f"a-{run}", f"b-{run}"]
    for name in names:
        kafka.create_topic(name, PARTITIONS)
    directory = Path(tempfile.mkdtemp(prefix="sidecar-bench-"))
    journals = [Journal(directory / name) for name in names]
    count = int(500 * seconds)
    with Scene(directory) as scene:
        ports = [
            scene.app(directory / names[0], hang_path="/events/"),
            scene.app(directory / names[1]),
        ]
        routes = [route(name, port, executors=16) for name, port in zip(names, ports, strict=True)]
        sidecar = scene.sidecar(
            config(kafka.bootstrap_servers, f"isolation-{run}", routes if hangs else routes[1:])
        )
        _warm_up(scene, kafka, names[1], journals[1])
        options = {"partitions": PARTITIONS, "count": count, "rate": 500.0}
        loads = [scene.load(kafka.bootstrap_servers, names[1], delay_ms=2, **options)]
        if hangs:
            loads.append(scene.load(kafka.bootstrap_servers, names[0], **options))
        for load in loads:
            assert load.wait(seconds + 60) == 0, "the load was not confirmed"
        eventually(
            lambda: len(_refreshed(journals[1]).answered) >= count,
            "all records answered",
            within=30,
        )
        journals[0].refresh()
        row = {
            "beside": f"a hanging route ({len(journals[0].arrivals)} arrived)"
            if hangs
            else "nothing",
            "records": count,
            "lost": journals[1].judge(range(count)).lost,
            "p50_ms": round(journals[1].latency_ms(range(count), 0.5), 2),
            "p99_ms": round(journals[1].latency_ms(range(count), 0.99), 2),
        }
        sidecar.kill()
        return row


def _warm_up(scene: Scene, kafka: KafkaCluster, topic: str, journal: Journal) -> None:
    """Records that are not counted: the group is joined, and the broker's code is compiled."""
    count = 4000
    options = {"partitions": PARTITIONS, "first": 10_000_000, "count": count, "rate": 800.0}
    assert scene.load(kafka.bootstrap_servers, topic, delay_ms=5, **options).wait(60) == 0
    eventually(lambda: len(_refreshed(journal).answered) >= count, "warmed up", within=60)
    journal.answered.clear()


def _refreshed(journal: Journal) -> Journal:
    journal.refresh()
    return journal
