"""CPU per message, throughput and memory, against the floor and against plain clients.

All variants read the same records from the same broker and POST them to the same application, one
after the other, each alone on its core; broker and application share the other core. The figures
of the sidecar leave out its start: they are taken between two looks at its own counter.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench import app
from tests.rig.kafka import KafkaCluster
from tests.rig.ports import free_ports
from tests.rig.processes import Scene, config, route
from tests.rig.waiting import eventually

RECORDS = 200_000
SIZE = 200
FEW = 20_000  # for what is so slow that a part tells enough


@contextlib.contextmanager
def _stage(partitions: int, records: int, size: int) -> Iterator[tuple[KafkaCluster, str, int]]:
    port = free_ports(1)[0]
    os.sched_setaffinity(0, {1})  # this process and, by inheritance, the broker
    with KafkaCluster() as kafka:
        topic = "bench"
        kafka.create_topic(topic, partitions)
        for first in range(0, records, 20_000):
            for partition in range(partitions):
                count = len(range(first + partition, min(first + 20_000, records), partitions))
                kafka.produce(topic, [b"x" * size] * count, key=b"key-1234", partition=partition)
        server = app.start(port, cpu=1)
        try:
            yield kafka, topic, port
        finally:
            server.terminate()
            server.wait()


def _plain(way: str, kafka: KafkaCluster, topic: str, port: int, count: int) -> dict[str, Any]:
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
) -> dict[str, Any]:
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
            lambda: d if (d := delivered()) > count // 20 else 0, "it flows", every=0.2
        )
        begin, cpu = time.monotonic(), sidecar.cpu_seconds()
        last = eventually(
            lambda: d if (d := delivered()) >= count * 9 // 10 else 0,
            "most are done",
            within=120,
            every=0.5,
        )
        wall, cpu = time.monotonic() - begin, sidecar.cpu_seconds() - cpu
        peak = sidecar.peak_mb()
        return {
            "variant": variant,
            "cpu_us": cpu / (last - first) * 1e6,
            "per_s": (last - first) / wall,
            "peak_mb": peak,
        }


def cost(repeats: int) -> list[dict[str, Any]]:
    """Each variant so many times, in turn; medians, and ratios to the floor of the same round."""
    rounds: dict[str, list[dict[str, Any]]] = {}
    with _stage(6, RECORDS, SIZE) as (kafka, topic, port):
        for _ in range(repeats):
            rows = [
                _plain("floor", kafka, topic, port, RECORDS),
                _sidecar(kafka, topic, port, RECORDS, "at_least_once"),
                _sidecar(
                    kafka,
                    topic,
                    port,
                    RECORDS,
                    "at_most_once",
                    guarantee="at_most_once",
                    loss_budget=1000,
                ),
                _plain("httpx", kafka, topic, port, FEW),
                _plain("sequential", kafka, topic, port, FEW),
            ]
            for row in rows:
                row["times_floor"] = row["cpu_us"] / rows[0]["cpu_us"]
                rounds.setdefault(row["variant"], []).append(row)
    return [_median(each) for each in rounds.values()]


def scaling(repeats: int) -> list[dict[str, Any]]:
    """at_least_once while one number grows from 10 to 1 000."""
    rows = []
    for partitions in (10, 1000):
        with _stage(partitions, RECORDS, SIZE) as (kafka, topic, port):
            variants: list[tuple[str, dict[str, Any]]] = [(f"partitions {partitions}", {})]
            if partitions == 10:
                variants += [
                    (f"threshold {n}", {"threshold": n, "executors": min(n, 32)})
                    for n in (10, 100, 1000)
                ]
                variants += [
                    (f"executors {n}", {"executors": n, "threshold": 2000}) for n in (10, 100, 1000)
                ]
            for variant, settings in variants:
                each = [
                    _sidecar(kafka, topic, port, RECORDS, variant, **settings)
                    for _ in range(repeats)
                ]
                rows.append(_median(each))
    return rows


def _median(rows: list[dict[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {"variant": rows[0]["variant"]}
    for column in rows[0]:
        if column != "variant":
            result[column] = round(statistics.median(row[column] for row in rows), 2)
    return result
