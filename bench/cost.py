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
from bench.cores import FEED, SUBJECT, on_core
from bench.figures import Row, median_row
from tests.rig.kafka import KafkaCluster
from tests.rig.ports import free_ports
from tests.rig.processes import Scene, config, route
from tests.rig.waiting import eventually

RECORDS = 200_000
SIZE = 200
FEW = 5_000  # for what is so slow that a part tells enough
BODIES = {200: 200_000, 2_000: 100_000, 20_000: 20_000, 200_000: 4_000}  # bytes: records
LEAST = 2_000  # fewer are done between two looks at the counters
AT_MOST_ONCE: dict[str, Any] = {"guarantee": "at_most_once", "loss_budget": 1000}


class Stage:
    """A broker and the application, on one core."""

    def __init__(self, kafka: KafkaCluster, port: int) -> None:
        self._kafka = kafka
        self._port = port

    def fill(self, topic: str, partitions: int, records: int, size: int = SIZE) -> None:
        self._kafka.create_topic(topic, partitions)
        at_a_time = max(1, min(20_000, 20_000_000 // size))
        for partition in range(partitions):
            left = len(range(partition, records, partitions))
            while left:
                count = min(left, at_a_time)
                values = [b"x" * size] * count
                self._kafka.produce(topic, values, key=b"key-1234", partition=partition)
                left -= count

    def plain(self, way: str, topic: str, count: int) -> Row:
        return plain(way, self._kafka, topic, self._port, count)

    def sidecar(self, variant: str, topic: str, count: int, **settings: Any) -> Row:
        with Scene(Path(tempfile.mkdtemp(prefix="sidecar-bench-"))) as scene:
            what = config(
                self._kafka.bootstrap_servers,
                f"bench-{os.urandom(8).hex()}",
                [route(topic, self._port, **{"executors": 32, **settings})],
            )
            with on_core(SUBJECT):
                sidecar = scene.sidecar(what)

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
                every=0.5,
            )
            wall, cpu = time.monotonic() - begin, sidecar.cpu_seconds() - cpu
            return {
                "variant": variant,
                "cpu_us": cpu / (last - first) * 1e6,
                "per_s": (last - first) / wall,
                "peak_mb": sidecar.peak_mb() * 2**20 / 1e6,
            }


@contextlib.contextmanager
def _stage() -> Iterator[Stage]:
    with on_core(FEED), KafkaCluster() as kafka:
        port = free_ports(1)[0]
        server = app.start(port)
        try:
            yield Stage(kafka, port)
        finally:
            server.terminate()
            server.wait()


def plain(way: str, kafka: KafkaCluster, topic: str, port: int, count: int) -> Row:
    command = [sys.executable, "-m", "bench.plain", way, "--topic", topic, "--port", str(port)]
    command += ["--bootstrap-servers", kafka.bootstrap_servers, "--count", str(count)]
    with on_core(SUBJECT):
        answer = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    told = json.loads(answer.stdout)
    return {
        "variant": way,
        "cpu_us": told["cpu_s"] / count * 1e6,
        "per_s": count / told["wall_s"],
        "peak_mb": told["peak_mb"],
    }


def cost(rounds: int, share: float) -> list[Row]:
    """Each variant once a round, with the floor before and behind both guarantees."""
    records, few = int(RECORDS * share), int(FEW * share)
    by_variant: dict[str, list[Row]] = {}
    with _stage() as stage:
        stage.fill("cost", 6, records)
        stage.sidecar("warm-up", "cost", records)
        for _ in range(rounds):
            rows = [
                stage.plain("floor", "cost", records),
                stage.sidecar("at_least_once", "cost", records),
                stage.sidecar("at_most_once", "cost", records, **AT_MOST_ONCE),
                stage.plain("floor", "cost", records),
                stage.plain("httpx", "cost", few),
                stage.plain("sequential", "cost", few),
            ]
            floor = (rows[0]["cpu_us"] + rows[3]["cpu_us"]) / 2
            for row in rows:
                row["times_floor"] = row["cpu_us"] / floor
                row["times_at_least_once"] = row["cpu_us"] / rows[1]["cpu_us"]
                by_variant.setdefault(row["variant"], []).append(row)
    return [median_row(each, spread=("cpu_us", "times_floor")) for each in by_variant.values()]


def bodies(rounds: int, share: float) -> list[Row]:
    """at_least_once and the floor over the size of a record."""
    rows = []
    with _stage() as stage:
        for size, all_records in BODIES.items():
            topic = f"bodies-{size}"
            records = max(LEAST, int(all_records * share))
            stage.fill(topic, 6, records, size)
            pairs = []
            for _ in range(rounds):
                floor = stage.plain("floor", topic, records)
                ours = stage.sidecar(f"{size:,} B", topic, records)
                ours["mb_per_s"] = ours["per_s"] * size / 1e6
                ours["floor_cpu_us"] = floor["cpu_us"]
                ours["times_floor"] = ours["cpu_us"] / floor["cpu_us"]
                pairs.append(ours)
            rows.append(median_row(pairs, spread=("times_floor",)))
    return rows


def scaling(rounds: int, share: float) -> list[Row]:
    """at_least_once while one number grows from 10 to 1 000; ratios to 10, within a round."""
    records = int(RECORDS * share)
    numbers = (10, 100, 1000)
    variants: list[tuple[str, int, str, dict[str, Any]]] = [
        *(("threshold", n, "of-10", {"threshold": n, "executors": min(n, 32)}) for n in numbers),
        *(("executors", n, "of-10", {"executors": n, "threshold": 2000}) for n in numbers),
        *(("partitions", n, f"of-{n}", {}) for n in numbers),
    ]
    rows: dict[str, list[Row]] = {}
    with _stage() as stage:
        for partitions in numbers:
            stage.fill(f"of-{partitions}", partitions, records)
        stage.sidecar("warm-up", "of-10", records)
        for _ in range(rounds):
            base = 0.0
            for name, number, topic, settings in variants:
                row = stage.sidecar(f"{name} {number:,}", topic, records, **settings)
                base = row["cpu_us"] if number == numbers[0] else base
                row["times_ten"] = row["cpu_us"] / base
                rows.setdefault(row["variant"], []).append(row)
    return [median_row(each, spread=("times_ten",)) for each in rows.values()]
