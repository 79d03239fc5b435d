"""Run scenarios, keep what was found, go on where the last run ended, print the table.

python -m tests.chaos [SCENARIO ...] [--rounds N] [--seed S] [--results FILE] [--again]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import traceback
from collections import defaultdict
from pathlib import Path

from tests.chaos.scenarios import SCENARIOS
from tests.chaos.stage import Line
from tests.chaos.turmoil import GUARANTEES
from tests.rig.kafka import KafkaCluster
from tests.rig.properties import GUARDED

SUMS = ("kills", "lost", "out_of_budget", "repeated", "parked_wrongly", "stuck", "records")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos")
    parser.add_argument("scenario", nargs="*", help=", ".join(SCENARIOS))
    parser.add_argument("--rounds", type=int, help="instead of each scenario's own number")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--results", type=Path, default=Path(".cache/chaos.jsonl"))
    parser.add_argument("--again", action="store_true", help="forget earlier results")
    args = parser.parse_args()
    if wrong := set(args.scenario) - SCENARIOS.keys():
        parser.error(f"unknown: {', '.join(wrong)}; there are {', '.join(SCENARIOS)}")
    if args.again:
        args.results.unlink(missing_ok=True)
    lines = _load(args.results)
    for name in args.scenario or SCENARIOS:
        _run(name, args.rounds, args.seed, args.results, lines)
    return _print_table(lines)


def _load(results: Path) -> list[Line]:
    if not results.exists():
        return []
    return [Line(**json.loads(line)) for line in results.read_text(encoding="utf-8").splitlines()]


def _run(name: str, rounds: int | None, seed: int, results: Path, lines: list[Line]) -> None:
    entry = SCENARIOS[name]
    done = sum(1 for line in lines if line.scenario == name)
    wanted = rounds or entry.rounds
    if done >= wanted:
        return
    directory = Path(tempfile.mkdtemp(prefix=f"sidecar-chaos-{name}-"))
    print(f"{name}: rounds {done}..{wanted - 1}, logs and journals in {directory}", flush=True)
    results.parent.mkdir(parents=True, exist_ok=True)
    cluster = (
        entry.cluster()
        if entry.cluster is not None
        else KafkaCluster(entry.nodes, config=GUARDED if entry.guarded else {})
    )
    with (
        cluster as kafka,
        results.open("a", encoding="utf-8") as file,
    ):
        try:
            for line in entry.scenario(kafka, directory, seed, done, wanted):
                lines.append(line)
                file.write(json.dumps(line._asdict()) + "\n")
                file.flush()
                print(f"  {line.round:4} {'ok ' if line.ok else 'NOT'} {line.figures}", flush=True)
        except Exception:  # noqa: BLE001 (judged, not raised)
            traceback.print_exc()
            lines.append(Line(name, -1, ok=False, figures={}))


def _print_table(lines: list[Line]) -> int:
    by_name: dict[str, list[Line]] = defaultdict(list)
    for line in lines:
        guarantee = next((f", {each}" for each in GUARANTEES if each in line.figures), "")
        by_name[line.scenario + guarantee].append(line)
    print(f"\n| scenario | rounds | failed | most lost in a round | {' | '.join(SUMS)} |")
    print("|---" * (4 + len(SUMS)) + "|")
    for name, each in by_name.items():
        failed = sum(not line.ok for line in each)
        most = max(line.figures.get("lost", 0) for line in each)
        sums = [sum(line.figures.get(which, 0) for line in each) for which in SUMS]
        columns = [name, len(each), failed, *(f"{number:.0f}" for number in (most, *sums))]
        print("| " + " | ".join(map(str, columns)) + " |")
    return int(any(not line.ok for line in lines))


if __name__ == "__main__":
    sys.exit(main())
