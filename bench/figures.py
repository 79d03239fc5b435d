"""Rows of figures, and what they come to: medians, the budgets, and tables."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

Row = dict[str, Any]
Results = Mapping[str, Sequence[Row]]


def median_row(rows: Sequence[Row], spread: Collection[str] = ()) -> Row:
    """The median of each column, and of some the extremes; what is no number is the first row's."""
    merged: Row = {}
    for column, value in rows[0].items():
        if not isinstance(value, (int, float)):
            merged[column] = value
            continue
        values = [row[column] for row in rows]
        merged[column] = round(statistics.median(values), 2)
        if column in spread:
            merged[f"{column}, all"] = f"{min(values):.2f} to {max(values):.2f}"
    return merged


def compared(
    pairs: Sequence[tuple[Row, Row]], columns: Collection[str], sums: Collection[str] = ()
) -> list[Row]:
    """Both sides' medians (or sums); and of each pair's ratio, second to first, the median."""
    rows: list[Row] = [
        {**median_row(side), **{c: sum(row[c] for row in side) for c in sums}}
        for side in zip(*pairs, strict=True)
    ]
    ratios = [{c: second[c] / first[c] for c in columns} for first, second in pairs]
    return [*rows, {"variant": "ratio", **median_row(ratios, spread=columns)}]


class Budget(NamedTuple):
    """A figure that must not be above (or, at_least, not below) a limit."""

    name: str
    measure: str
    figure: Callable[[Sequence[Row]], float]
    limit: float
    unit: str
    at_least: bool = False

    def met(self, value: float) -> bool:
        return value >= self.limit if self.at_least else value <= self.limit


def _of(variant: str, column: str) -> Callable[[Sequence[Row]], float]:
    def figure(rows: Sequence[Row]) -> float:
        return float(next(row[column] for row in rows if row["variant"] == variant))

    return figure


def _largest(prefix: str) -> Callable[[Sequence[Row]], float]:
    def figure(rows: Sequence[Row]) -> float:
        return max(float(r["times_ten"]) for r in rows if r["variant"].startswith(prefix))

    return figure


BUDGETS = (
    Budget(
        "CPU per message, at_least_once", "cost", _of("at_least_once", "times_floor"), 1.6, "floor"
    ),
    Budget(
        "CPU per message, at_most_once", "cost", _of("at_most_once", "times_floor"), 1.6, "floor"
    ),
    Budget(
        "CPU of an httpx client",
        "cost",
        _of("httpx", "times_at_least_once"),
        30,
        "at_least_once",
        at_least=True,
    ),
    *(
        Budget(f"CPU per message, {name} 10 to 1,000", "scaling", _largest(name), 1.3, "of 10")
        for name in ("threshold", "executors", "partitions")
    ),
    Budget(
        "head of line: p99 of the fast ones",
        "head-of-line",
        _of("ratio", "p99_ms"),
        2,
        "without slow ones",
    ),
    Budget(
        "head of line: throughput",
        "head-of-line",
        _of("sequential", "times_slower"),
        50,
        "sequential",
        at_least=True,
    ),
    Budget(
        "isolation: p99 beside a hanging route",
        "isolation",
        _of("ratio", "p99_ms"),
        1.2,
        "alone",
    ),
    Budget("added latency, p50", "added-latency", _of("added", "p50_ms"), 2, "ms"),
    Budget("added latency, p99", "added-latency", _of("added", "p99_ms"), 10, "ms"),
    Budget("memory, idle", "memory", _of("idle", "resident_mb"), 75, "MB"),
    Budget(
        "memory, loaded beyond idle",
        "memory",
        _of("loaded", "beyond_idle_mb"),
        33.55,  # threshold_bytes and the client's queue, 16 MiB each
        "MB",
    ),
    Budget("start to /livez", "start", _of("start", "seconds"), 1.0, "s"),
)


def verdicts(results: Results) -> list[Row]:
    """One row for each budget whose measure was taken."""
    rows = []
    for budget in BUDGETS:
        if budget.measure in results:
            value = budget.figure(results[budget.measure])
            sign = "≥" if budget.at_least else "≤"
            factor = "× " if budget.unit not in ("ms", "s", "MB") else ""
            rows.append(
                {
                    "measure": budget.name,
                    "must": f"{sign} {budget.limit:g} {factor}{budget.unit}",
                    "measured": f"{value:.2f}",
                    "met": "yes" if budget.met(value) else "**no**",
                }
            )
    return rows


def table(rows: Sequence[Row]) -> str:
    """In Markdown."""
    columns = list(dict.fromkeys(column for row in rows for column in row))
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(_cell(row.get(c, "")) for c in columns) + " |" for row in rows]
    return "\n".join(lines)


def _cell(value: object) -> str:
    if isinstance(value, float) and value >= 1000:
        return f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
