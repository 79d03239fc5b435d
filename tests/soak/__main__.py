"""python -m tests.soak [--seconds 3600] [--rate 160] [--results FILE]

Runs, and prints the table of docs/reliability.md. Samples go to the results' file as they are
taken, one JSON object a line, and last what they came to.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from tests.rig.kafka import KafkaCluster
from tests.soak.run import Report, Sample, soak


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak")
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--cycle", type=float, default=60, help="seconds of one round of changes")
    parser.add_argument("--rate", type=float, default=160, help="records per second")
    parser.add_argument("--results", type=Path, default=Path(".cache/soak.jsonl"))
    args = parser.parse_args()
    args.results.parent.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="sidecar-soak-"))
    print(f"{args.seconds:g} s, logs and journals in {directory}", flush=True)
    with args.results.open("w", encoding="utf-8") as file:

        def tell(sample: Sample) -> None:
            file.write(json.dumps(sample._asdict()) + "\n")
            file.flush()

        with KafkaCluster() as kafka:
            report = soak(
                kafka,
                directory,
                seconds=args.seconds,
                cycle_seconds=args.cycle,
                rate=args.rate,
                tell=tell,
            )
        quantities = {name: each._asdict() for name, each in report.quantities.items()}
        whole = {**report._asdict(), "quantities": quantities, "ok": report.ok}
        file.write(json.dumps(whole) + "\n")
    print(table(report))
    return int(not report.ok)


def table(report: Report) -> str:
    lines = [
        "| quantity | at first | at last | most | growth by the slope | limit | |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, each in report.quantities.items():
        numbers = (each.first, each.last, each.most, round(each.growth, 2), each.limit)
        cells = [name.replace("_", " "), *(f"{n:,.10g}" for n in numbers)]
        lines.append("| " + " | ".join([*cells, "flat" if each.flat else "GROWS"]) + " |")
    lines += ["", f"{report.seconds:g} s at {report.rate:g} records/s; " + ", ".join(
        f"{name.replace('_', ' ')} {value:,}" for name, value in report.figures.items()
    )]  # fmt: skip
    lines += [
        f"{'holds' if holds else 'BROKEN'}: {claim}" for claim, holds in report.claims.items()
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
