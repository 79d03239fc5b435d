"""python -m bench [MEASURE ...] [--rounds N]: measure, and print a table each."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import Any

from bench import cost, latency

# name: (measure, rounds)
MEASURES: dict[str, tuple[Callable[[int], list[dict[str, Any]]], int]] = {
    "cost": (cost.cost, 3),
    "scaling": (cost.scaling, 1),
    "open-loop": (latency.open_loop, 3),
    "isolation": (latency.isolation, 3),
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench")
    parser.add_argument("measure", nargs="*", help=", ".join(MEASURES))
    parser.add_argument("--rounds", type=int, help="instead of the default of each measure")
    parser.add_argument("--json", action="store_true", help="print JSON lines instead of tables")
    args = parser.parse_args()
    for name in args.measure or MEASURES:
        measure, rounds = MEASURES[name]
        rows = measure(args.rounds or rounds)
        if args.json:
            print(json.dumps({"measure": name, "rows": rows}), flush=True)
            continue
        columns = list(dict.fromkeys(column for row in rows for column in row))
        print(f"\n{name}\n\n| " + " | ".join(columns) + " |\n|" + "---|" * len(columns))
        for row in rows:
            print(
                "| " + " | ".join(str(row.get(column, "")) for column in columns) + " |", flush=True
            )


if __name__ == "__main__":
    main()
