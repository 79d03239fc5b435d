"""python -m bench [MEASURE ...] [--rounds N] [--json FILE]: measure, and print tables.

`python -m bench report FILE...` prints the tables of earlier runs again, for docs/performance.md.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import confluent_kafka

from bench import app, cost, footprint, latency
from bench.figures import Row, table, verdicts

# name: (measure, rounds)
MEASURES: dict[str, tuple[Callable[[int], list[Row]], int]] = {
    "cost": (cost.cost, 5),
    "bodies": (cost.bodies, 3),
    "scaling": (cost.scaling, 3),
    "head-of-line": (latency.head_of_line, 2),
    "isolation": (latency.isolation, 3),
    "added-latency": (latency.added_latency, 3),
    "memory": (footprint.memory, 1),
    "start": (footprint.start, 9),
    "open-loop": (latency.open_loop, 3),
}
MACHINE = "machine"


def machine() -> dict[str, str]:
    """What the figures depend on, and nothing that names a host."""
    cpus = Path("/proc/cpuinfo").read_text(encoding="ascii").splitlines()
    pom = Path("tests/rig/pom.xml").read_text(encoding="utf-8")
    kafka = re.search(r"<version>([\d.]+)</version>", pom[pom.index("org.apache.kafka") :])
    models = [line.partition(":")[2].strip() for line in cpus if line.startswith("model name")]
    return {
        "cores": f"{len(models)} x {models[0] if models else platform.machine()}",
        "Kafka": kafka[1] if kafka else "",
        "Python": platform.python_version(),
        "confluent-kafka": version("confluent-kafka"),
        "librdkafka": confluent_kafka.libversion()[0],
        "application": app.name(),
    }


def report(results: Mapping[str, Any]) -> str:
    taken = {name: rows for name, rows in results.items() if name in MEASURES}
    parts = [f"{name}: {value}" for name, value in results[MACHINE].items()]
    text = [", ".join(parts), table(verdicts(taken))] if verdicts(taken) else [", ".join(parts)]
    text += [f"### {name}\n\n{table(rows)}" for name, rows in taken.items()]
    return "\n\n".join(text)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench")
    parser.add_argument("measure", nargs="*", help=", ".join(MEASURES) + "; or report FILE...")
    parser.add_argument("--rounds", type=int, help="instead of the default of each measure")
    parser.add_argument("--json", type=Path, help="write the figures to this file as well")
    args = parser.parse_args()
    results: dict[str, Any] = {MACHINE: machine()}
    if args.measure[:1] == ["report"]:
        for file in args.measure[1:]:
            results.update(json.loads(Path(file).read_text(encoding="utf-8")))
        print(report(results))
        return
    for name in args.measure or MEASURES:
        measure, rounds = MEASURES[name]
        results[name] = measure(args.rounds or rounds)
        print(f"### {name}\n\n{table(results[name])}\n", flush=True)
        if args.json is not None:  # after each: what was measured is not lost with the next
            args.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print(report(results))


if __name__ == "__main__":
    main()
