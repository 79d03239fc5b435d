"""python -m bench [MEASURE ...] [--amount N]: measure, and print a table each."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import Any

from bench import cost, latency

# name: (measure, its default amount)
MEASURES: dict[str, tuple[Callable[[float], list[dict[str, Any]]], float]] = {
    "cost": (cost.cost, 3),  # rounds
    "scaling": (cost.scaling, 1),
    "open-loop": (latency.open_loop, 60),
    "isolation": (latency.isolation, 20),
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench")
    parser.add_argument("measure", nargs="*", help=", ".join(MEASURES))
    parser.add_argument(
        "--amount", type=float, help="rounds, or seconds of load, instead of the default"
    )
    parser.add_argument("--json", action="store_true", help="print JSON lines instead of tables")
    args = parser.parse_args()
    for name in args.measure or MEASURES:
        measure, amount = MEASURES[name]
        rows = measure(args.amount or amount)
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
