"""CPU per message and throughput, against the floor and against plain clients.

All variants read the same records from the same broker and POST them to the same application, one
after the other, each alone on its core; broker and application share the other core. The figures
of the sidecar leave out its start: they are taken between two looks at its own counters. Ratios
are taken within a round, and of the rounds the median, because the speed of a core changes from
minute to minute by more than what is to be seen.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench import app
from bench.figures import Row, median_row
from tests.rig.kafka import KafkaCluster
from tests.rig.ports import free_ports
from tests.rig.processes import Scene, config, route
from tests.rig.waiting import eventually

RECORDS = 200_000
SIZE = 200
FEW = 5_000  # for what is so slow that a part tells enough
BODIES = {200: 200_000, 2_000: 100_000, 20_000: 20_000, 200_000: 2_000}  # bytes: records
AT_MOST_ONCE: dict[str, Any] = {"guarantee": "at_most_once", "loss_budget": 1000}


@contextlib.contextmanager
def _stage(
    partitions: int, records: int, size: int = SIZE
) -> Iterator[tuple[KafkaCluster, str, int]]:
    port = free_ports(1)[0]
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {1})  # this process and, by inheritance, the broker
    with contextlib.ExitStack() as stack:
        stack.callback(os.sched_setaffinity, 0, cores)
        kafka = stack.enter_context(KafkaCluster())
        topic = "bench"
        kafka.create_topic(topic, partitions)
        at_a_time = max(1, min(20_000, 20_000_000 // size))
        for first in range(0, records, at_a_time):
            for partition in range(min(partitions, at_a_time)):
                count = len(range(first + partition, min(first + at_a_time, records), partitions))
                kafka.produce(topic, [b"x" * size] * count, key=b"key-1234", partition=partition)
        server = app.start(port, cpu=1)
        try:
            yield kafka, topic, port
        finally:
            server.terminate()
            server.wait()


def plain(way: str, kafka: KafkaCluster, topic: str, port: int, count: int) -> Row:
    command = [sys.executable, "-m", "bench.plain", way, "--topic", topic, "--port", str(port)]
    command += ["--bootstrap-servers", kafka.bootstrap_servers, "--count", str(count)]
    answer = subprocess.run(["taskset", "-c", "0", *command], check=True, capture_output=True)
    told = json.loads(answer.stdout)
    return {
        "variant": way,
        "cpu_us": told["cpu_s"] / count * 1e6,
        "per_s": count / told["wall_s"],
        "peak_mb": told["peak_mb"],
    }


def _sidecar(
    kafka: KafkaCluster, topic: str, port: int, count: int, variant: str, **settings: Any
) -> Row:
    with Scene(Path(tempfile.mkdtemp(prefix="sidecar-bench-"))) as scene:
        what = config(
            kafka.bootstrap_servers,
            f"{variant}-{os.urandom(4).hex()}",
            [route(topic, port, **{"executors": 32, **settings})],
        )
        sidecar = scene.sidecar(what, cpu=0)

        def delivered() -> int:
            with contextlib.suppress(OSError):
                return int(sidecar.status()["routes"][0]["counters"]["delivered"])
            return 0

        first = eventually(
            lambda: d if (d := delivered()) > count // 20 else 0, "it flows", every=0.1
        )
        begin, cpu = time.monotonic(), sidecar.cpu_seconds()
        last = eventually(
            lambda: d if (d := delivered()) >= count * 9 // 10 else 0,
            "most are done",
            within=120,
            every=0.2,
        )
        wall, cpu = time.monotonic() - begin, sidecar.cpu_seconds() - cpu
        return {
            "variant": variant,
            "cpu_us": cpu / (last - first) * 1e6,
            "per_s": (last - first) / wall,
            "peak_mb": sidecar.peak_mb(),
        }


def cost(rounds: int) -> list[Row]:
    """Each variant once a round, with the floor before and behind both guarantees."""
    by_variant: dict[str, list[Row]] = {}
    with _stage(6, RECORDS) as (kafka, topic, port):
        _sidecar(kafka, topic, port, RECORDS, "warm-up")
        for _ in range(rounds):
            rows = [
                plain("floor", kafka, topic, port, RECORDS),
                _sidecar(kafka, topic, port, RECORDS, "at_least_once"),
                _sidecar(kafka, topic, port, RECORDS, "at_most_once", **AT_MOST_ONCE),
                plain("floor", kafka, topic, port, RECORDS),
                plain("httpx", kafka, topic, port, FEW),
                plain("sequential", kafka, topic, port, FEW),
            ]
            floor = (rows[0]["cpu_us"] + rows[3]["cpu_us"]) / 2
            for row in rows:
                row["times_floor"] = row["cpu_us"] / floor
                row["times_at_least_once"] = row["cpu_us"] / rows[1]["cpu_us"]
                by_variant.setdefault(row["variant"], []).append(row)
    return [median_row(each) for each in by_variant.values()]


def bodies(rounds: int) -> list[Row]:
    """at_least_once and the floor over the size of a record."""
    rows = []
    for size, records in BODIES.items():
        with _stage(6, records, size) as (kafka, topic, port):
            pairs = []
            for _ in range(rounds):
                floor = plain("floor", kafka, topic, port, records)
                ours = _sidecar(kafka, topic, port, records, f"{size:,} B")
                ours["mb_per_s"] = ours["per_s"] * size / 1e6
                ours["floor_cpu_us"] = floor["cpu_us"]
                ours["times_floor"] = ours["cpu_us"] / floor["cpu_us"]
                pairs.append(ours)
            rows.append(median_row(pairs))
    return rows


def scaling(rounds: int) -> list[Row]:
    """at_least_once while one number grows from 10 to 1 000; ratios to 10, within a round."""
    rows: dict[str, list[Row]] = {}
    for partitions in (10, 1000):
        with _stage(partitions, RECORDS) as (kafka, topic, port):
            variants: list[tuple[str, int, dict[str, Any]]] = [("partitions", partitions, {})]
            if partitions == 10:
                _sidecar(kafka, topic, port, RECORDS, "warm-up")
                variants += [
                    ("threshold", n, {"threshold": n, "executors": min(n, 32)})
                    for n in (10, 100, 1000)
                ]
                variants += [
                    ("executors", n, {"executors": n, "threshold": 2000}) for n in (10, 100, 1000)
                ]
            for _ in range(rounds):
                for name, number, settings in variants:
                    variant = f"{name} {number:,}"
                    row = _sidecar(kafka, topic, port, RECORDS, variant, **settings)
                    rows.setdefault(variant, []).append(row)
    for variant, each in rows.items():
        base = rows[variant.split()[0] + " 10"]
        for row, of_ten in zip(each, base, strict=True):
            row["times_ten"] = row["cpu_us"] / of_ten["cpu_us"]
    return [median_row(each) for each in rows.values()]
