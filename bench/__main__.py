"""python -m bench [MEASURE ...] [--rounds N] [--json FILE]: measure, and print tables.

`python -m bench report FILE...` prints the tables of earlier runs again; with --publish they and
their figures become those of docs/performance.md.
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
MEASURES: dict[str, tuple[Callable[[int, float], list[Row]], int]] = {
    "cost": (cost.cost, 5),
    "bodies": (cost.bodies, 2),
    "scaling": (cost.scaling, 2),
    "head-of-line": (latency.head_of_line, 2),
    "isolation": (latency.isolation, 8),
    "attacked": (latency.attacked, 3),
    "added-latency": (latency.added_latency, 3),
    "memory": (footprint.memory, 1),
    "start": (footprint.start, 9),
    "open-loop": (latency.open_loop, 1),
}
MACHINE = "machine"
PAGE = Path("docs/performance.md")
PUBLISHED = PAGE.with_suffix(".json")
MARK = "<!-- below: python -m bench report FILE --publish -->\n"


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
    taken = {name: results[name] for name in MEASURES if name in results}
    parts = [", ".join(f"{name} {value}" for name, value in results[MACHINE].items())]
    judged = verdicts(taken)
    if judged:
        parts.append(table(judged))
    for name, rows in taken.items():
        about = (MEASURES[name][0].__doc__ or "").strip()
        parts.append(f"### {name}\n\n{about}\n\n{table(rows)}")
    return "\n\n".join(parts) + "\n"


def write(results: Mapping[str, Any], file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def publish(results: Mapping[str, Any]) -> None:
    write(results, PUBLISHED)
    prose = PAGE.read_text(encoding="utf-8").partition(MARK)[0]
    PAGE.write_text(f"{prose}{MARK}\n{report(results)}", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench")
    parser.add_argument("measure", nargs="*", help=", ".join(MEASURES) + "; or report FILE...")
    parser.add_argument("--rounds", type=int, help="instead of the default of each measure")
    parser.add_argument(
        "--json", type=Path, default=Path("build/performance.json"), help="default: %(default)s"
    )
    parser.add_argument("--publish", action="store_true", help=f"write {PUBLISHED} and {PAGE}")
    parser.add_argument(
        "--share", type=float, default=1.0, help="of records and seconds, to try the tool out"
    )
    args = parser.parse_args()
    results: dict[str, Any] = {MACHINE: machine()}
    if args.share != 1:
        results[MACHINE]["share"] = args.share
    if args.measure[:1] == ["report"]:
        for file in args.measure[1:]:
            results.update(json.loads(Path(file).read_text(encoding="utf-8")))
        if args.publish:
            publish(results)
        print(report(results))
        return
    if unknown := set(args.measure) - MEASURES.keys():
        parser.error(f"no such measure: {', '.join(unknown)}")
    for name in args.measure or MEASURES:
        measure, rounds = MEASURES[name]
        results[name] = measure(args.rounds or rounds, args.share)
        print(f"### {name}\n\n{table(results[name])}\n", flush=True)
        write(results, args.json)  # after each: what was measured is not lost with the next
    print(report(results))


if __name__ == "__main__":
    main()
