"""What records feel: from production to the arrival of their request, through a real Kafka.

* open-loop: a steady load whatever becomes of it, with and without records that take 10 s.
* head-of-line: the same into a single partition, and what a sequential consumer makes of it.
* isolation: one route alone, and beside another whose application hangs.
* added-latency: at a tenth of the load, against a consumer that does nothing.

Each load begins with seconds that are not counted: the producer connects, and the broker's code
is compiled.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.cost import plain
from bench.figures import Row
from tests.rig.journal import Journal
from tests.rig.kafka import KafkaCluster
from tests.rig.processes import Scene, Sidecar, config, route
from tests.rig.waiting import eventually

PARTITIONS = 6
UNCOUNTED_SECONDS = 5
SEQUENTIAL = 2_000  # records that the sequential consumer is given


def _quantiles(latencies_ms: list[float]) -> Row:
    thousand = statistics.quantiles(latencies_ms, n=1000)
    return {
        "p50_ms": round(thousand[499], 2),
        "p99_ms": round(thousand[989], 2),
        "p999_ms": round(thousand[998], 2),
        "max_ms": round(max(latencies_ms), 1),
    }


def _counted(journal: Journal, rate: float, count: int, slow_every: int = 0) -> Row:
    """Of the fast ones, without the beginning."""
    first = int(UNCOUNTED_SECONDS * rate)
    fast = (n for n in range(first, count) if not slow_every or (n + 1) % slow_every)
    return _quantiles([journal.latencies_us[n] / 1000 for n in fast])


def _all_answered(journal: Journal, count: int) -> None:
    def answered() -> bool:
        journal.refresh()
        return len(journal.answered) >= count

    eventually(answered, "all records are answered", within=60)


def _median_ratio(rows: list[Row], column: str) -> float:
    """Rows come in pairs, the plain one first."""
    plain_one, other = (statistics.median(row[column] for row in rows[i::2]) for i in (0, 1))
    return round(float(other / plain_one), 2)


# --- slow ones --------------------------------------------------------------------------------


def open_loop(rounds: int) -> list[Row]:
    """2 000 records/s for 60 s on 6 partitions, 64 executors; 1 in 1 000 takes 10 s, or none."""
    rows = []
    settings = {"executors": 64}
    with KafkaCluster() as kafka:
        for number in range(rounds):
            for every in (0, 1000):
                name = f"open-loop-{number}-{every}"
                rows.append(_slow_ones(kafka, name, PARTITIONS, 2000, 60, every, settings))
    ratios = {c: _median_ratio(rows, c) for c in ("p50_ms", "p99_ms", "p999_ms")}
    return [*rows, {"variant": "with / without, medians", **ratios}]


def head_of_line(rounds: int) -> list[Row]:
    """4 000 records/s into one partition, 128 executors, threshold 4 000."""
    rows = []
    settings = {"executors": 128, "threshold": 4000}
    with KafkaCluster() as kafka:
        for number in range(rounds):
            for every in (0, 1000):
                name = f"head-of-line-{number}-{every}"
                rows.append(_slow_ones(kafka, name, 1, 4000, 30, every, settings))
        with Scene(Path(tempfile.mkdtemp(prefix="sidecar-bench-"))) as scene:
            port = scene.app(Path(tempfile.mkdtemp(prefix="sidecar-bench-")) / "journal")
            sequential = plain("sequential", kafka, "head-of-line-0-1000", port, SEQUENTIAL)
    merged = []
    for index, variant in enumerate(("without slow ones", "with slow ones")):
        each = rows[index::2]
        row: Row = {"variant": variant}
        for column in ("records", "lost", "repeated", "p50_ms", "p99_ms", "p999_ms", "per_s"):
            row[column] = round(statistics.median(r[column] for r in each), 2)
        row["lost"], row["repeated"] = (sum(r[c] for r in each) for c in ("lost", "repeated"))
        merged.append(row)
    merged[1]["times_without"] = _median_ratio(rows, "p99_ms")
    merged[1]["times_sequential"] = round(merged[1]["per_s"] / sequential["per_s"], 1)
    return [*merged, {"variant": "sequential", "per_s": round(sequential["per_s"], 1)}]


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
    directory = Path(tempfile.mkdtemp(prefix="sidecar-bench-"))
    journal = Journal(directory / "journal")
    with Scene(directory) as scene:
        port = scene.app(directory / "journal")
        sidecar = scene.sidecar(
            config(kafka.bootstrap_servers, name, [route(name, port, **settings)])
        )
        _joined(sidecar)
        load = scene.load(
            kafka.bootstrap_servers,
            name,
            partitions=partitions,
            count=count,
            rate=rate,
            delay_ms=5,
            slow_every=slow_every,
            slow_ms=10_000,
        )
        assert load.wait(seconds + 90) == 0, "the load was not confirmed"
        _all_answered(journal, count)
        eventually(
            lambda: not any(kafka.lag(name, name).values()), "the group is at the end", within=30
        )
        verdict = journal.judge(range(count))
        return {
            "variant": f"1 in {slow_every:,} slow" if slow_every else "none slow",
            "records": count,
            "lost": verdict.lost,
            "repeated": verdict.repeats,
            **_counted(journal, rate, count, slow_every),
            "per_s": rate,  # all were answered within the time
            "exit": sidecar.stop(),
        }


def _joined(sidecar: Sidecar) -> None:
    sidecar.until_said("assigned")


# --- isolation --------------------------------------------------------------------------------


def isolation(rounds: int) -> list[Row]:
    """500 records/s through route B, alone and beside route A, whose application hangs."""
    rows: list[Row] = []
    with KafkaCluster() as kafka:
        for _ in range(rounds):
            for hangs in (False, True):
                rows.append(_isolation(kafka, 20, hangs, len(rows)))
    ratios = {column: _median_ratio(rows, column) for column in ("p50_ms", "p99_ms")}
    return [*rows, {"variant": "beside / alone", **ratios}]


def _isolation(kafka: KafkaCluster, seconds: float, hangs: bool, run: int) -> Row:
    names = [f"a-{run}", f"b-{run}"]
    for name in names:
        kafka.create_topic(name, PARTITIONS)
    directory = Path(tempfile.mkdtemp(prefix="sidecar-bench-"))
    journals = [Journal(directory / name) for name in names]
    rate = 500.0
    count = int(rate * (seconds + UNCOUNTED_SECONDS))
    with Scene(directory) as scene:
        ports = [
            scene.app(directory / names[0], hang_path="/events/"),
            scene.app(directory / names[1]),
        ]
        routes = [route(name, port, executors=16) for name, port in zip(names, ports, strict=True)]
        sidecar = scene.sidecar(
            config(kafka.bootstrap_servers, f"isolation-{run}", routes if hangs else routes[1:])
        )
        _joined(sidecar)
        options = {"partitions": PARTITIONS, "count": count, "rate": rate}
        loads = [scene.load(kafka.bootstrap_servers, names[1], delay_ms=2, **options)]
        if hangs:
            loads.append(scene.load(kafka.bootstrap_servers, names[0], **options))
        for load in loads:
            assert load.wait(seconds + 60) == 0, "the load was not confirmed"
        _all_answered(journals[1], count)
        journals[0].refresh()
        arrived = len(journals[0].arrivals)
        row = {
            "variant": f"beside a hanging route ({arrived} arrived)" if hangs else "alone",
            "records": count,
            "lost": journals[1].judge(range(count)).lost,
            **_counted(journals[1], rate, count),
        }
        sidecar.kill()
        return row


# --- added latency ----------------------------------------------------------------------------


def added_latency(rounds: int) -> list[Row]:
    """2 500 records/s, about a tenth of what one core carries; medians of the rounds."""
    rate, seconds = 2500.0, 15
    count = int(rate * (seconds + UNCOUNTED_SECONDS))
    ours, bare = [], []
    with KafkaCluster() as kafka:
        for number in range(rounds):
            for kind, rows in (("bare", bare), ("sidecar", ours)):
                rows.append(_arrivals(kafka, f"added-{kind}-{number}", kind, rate, count))
    merged: list[Row] = []
    for variant, rows in (("a consumer that does nothing", bare), ("request arrives", ours)):
        row: Row = {"variant": variant}
        for column in ("p50_ms", "p99_ms"):
            row[column] = round(statistics.median(r[column] for r in rows), 2)
        merged.append(row)
    added = {c: round(merged[1][c] - merged[0][c], 2) for c in ("p50_ms", "p99_ms")}
    return [*merged, {"variant": "added", **added}]


def _arrivals(kafka: KafkaCluster, topic: str, kind: str, rate: float, count: int) -> Row:
    kafka.create_topic(topic, PARTITIONS)
    directory = Path(tempfile.mkdtemp(prefix="sidecar-bench-"))
    with Scene(directory) as scene:
        options = {"partitions": PARTITIONS, "count": count, "rate": rate}
        if kind == "sidecar":
            journal = Journal(directory / "journal")
            port = scene.app(directory / "journal")
            sidecar = scene.sidecar(
                config(kafka.bootstrap_servers, topic, [route(topic, port, executors=32)])
            )
            _joined(sidecar)
            assert scene.load(kafka.bootstrap_servers, topic, **options).wait(90) == 0
            _all_answered(journal, count)
            return _counted(journal, rate, count)
        command = [sys.executable, "-m", "bench.plain", "arrivals", "--topic", topic]
        command += ["--bootstrap-servers", kafka.bootstrap_servers, "--count", str(count)]
        consumer = subprocess.Popen([*command, "--port", "0"], stdout=subprocess.PIPE)
        assert scene.load(kafka.bootstrap_servers, topic, **options).wait(90) == 0
        out, _ = consumer.communicate(timeout=60)
        latencies: list[float] = json.loads(out)
        return _quantiles(latencies[int(UNCOUNTED_SECONDS * rate) :])
