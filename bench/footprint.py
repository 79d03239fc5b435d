"""Memory in MB, and the time of a start."""

from __future__ import annotations

import statistics
import tempfile
import time
import urllib.request
from pathlib import Path

from bench.figures import Row
from tests.rig.journal import Journal
from tests.rig.kafka import KafkaCluster
from tests.rig.processes import Scene, config, route
from tests.rig.waiting import eventually

SIZE = 20_000
RECORDS = 20_000
FEW = 2_000  # small ones, before it is idle


def memory(rounds: int, share: float) -> list[Row]:
    """Resident memory: idle, after a few records; and with a full buffer of large ones."""
    with KafkaCluster() as kafka:
        rows = [
            _memory(kafka, f"memory-{number}", int(RECORDS * share)) for number in range(rounds)
        ]
    idle = statistics.median(row[0] for row in rows)
    peak = statistics.median(row[1] for row in rows)
    return [
        {"variant": "idle", "resident_mb": round(idle, 1)},
        {
            "variant": "loaded",
            "resident_mb": round(peak, 1),
            "beyond_idle_mb": round(peak - idle, 1),
        },
    ]


def _memory(kafka: KafkaCluster, topic: str, count: int) -> tuple[float, float]:
    """Idle and at its peak."""
    kafka.create_topic(topic, 6)
    directory = Path(tempfile.mkdtemp(prefix="sidecar-bench-"))
    journal = Journal(directory / "journal")
    with Scene(directory) as scene:
        port = scene.app(directory / "journal")
        what = config(kafka.bootstrap_servers, topic, [route(topic, port, executors=32)])
        sidecar = scene.sidecar(what)
        sidecar.until_said("assigned")
        few = scene.load(kafka.bootstrap_servers, topic, partitions=6, count=FEW, rate=1_000)
        assert few.wait(60) == 0, "the load was not confirmed"
        eventually(lambda: not any(kafka.lag(topic, topic).values()), "idle", within=30)
        idle = sidecar.resident_bytes() / 1e6
        load = scene.load(
            kafka.bootstrap_servers,
            topic,
            partitions=6,
            first=1_000_000,
            count=count,
            rate=2_000,
            size=SIZE,
            delay_ms=20,
        )
        assert load.wait(120) == 0, "the load was not confirmed"

        def answered() -> bool:
            journal.refresh()
            return len(journal.answered) >= FEW + count

        eventually(answered, "all records are answered", within=120)
        return idle, sidecar.peak_mb() * 2**20 / 1e6


def start(rounds: int, _: float) -> list[Row]:
    """From the start of the process to the first 200 of /livez; neither broker nor application."""
    times = []
    for _ in range(rounds):
        with Scene(Path(tempfile.mkdtemp(prefix="sidecar-bench-"))) as scene:
            began = time.monotonic()
            sidecar = scene.sidecar(config("127.0.0.1:1", "start", [route("t", 1)]))
            url = f"http://127.0.0.1:{sidecar.port}/livez"
            while True:
                try:
                    with urllib.request.urlopen(url, timeout=1):
                        break
                except OSError:
                    time.sleep(0.005)
            times.append(time.monotonic() - began)
            sidecar.kill()
    return [
        {
            "variant": "start",
            "seconds": round(statistics.median(times), 2),
            "slowest": round(max(times), 2),
        }
    ]
