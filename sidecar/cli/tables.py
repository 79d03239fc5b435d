"""What a running sidecar says, as text for people: tables, and causes with the next step first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

Row = Sequence[object]


def table(head: Sequence[str], rows: Iterable[Row]) -> list[str]:
    """Columns as wide as they need; what looks like a number stands on the right."""
    texts = [[_cell(each) for each in row] for row in rows]
    lines = [list(head), *texts]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    right = [
        bool(texts) and all(line[column][:1].isdigit() or line[column] == "-" for line in texts)
        for column in range(len(head))
    ]
    return [
        "  ".join(
            cell.rjust(width) if number else cell.ljust(width)
            for cell, width, number in zip(line, widths, right, strict=True)
        ).rstrip()
        for line in lines
    ]


def routes(found: Iterable[Mapping[str, Any]]) -> list[str]:
    head = ["ROUTE", "STATE", "APP", "IN FLIGHT", "BUFFERED", "EXECUTING", "DELAYED", "EXECUTORS"]
    head += ["OLDEST", "DELIVERED", "PER SECOND", "PARKED", "CRASH"]
    return table(head, [_route(each) for each in found])


def _route(route: Mapping[str, Any]) -> Row:
    executors, counters = route["executors"], route["counters"]
    changed = "" if executors["wanted"] == executors["configured"] else "*"
    lose, repeat = route["exposure"]["would_lose"], route["exposure"]["would_repeat"]
    return [
        route["name"],
        route["state"],
        route["availability"]["state"],
        f"{route['in_flight']}/{route['threshold']}",
        route["buffered"],
        route["executing"],
        route["delayed"],
        f"{executors['busy']}/{executors['wanted']}{changed}",
        _seconds(route["oldest_age_seconds"]),
        counters["delivered"],
        f"{route['rates']['delivered_per_second']:.1f}",
        counters["parked"],
        f"loses {lose}" if lose else f"repeats {repeat}",
    ]


def causes(found: Iterable[Mapping[str, Any]], now: datetime | None = None) -> list[str]:
    """Two lines each: what to do, and why."""
    now = now or datetime.now(UTC)
    lines = []
    for route in found:
        for cause in route["causes"]:
            since = cause["since"]
            age = "" if since is None else f", for {_seconds(_age(since, now))}"
            lines += [
                f"{route['name']}: {cause['next_step']}",
                f"    {cause['cause']}{age}: {cause['detail']}",
            ]
    return lines


def status(found: Mapping[str, Any]) -> list[str]:
    health = ", ".join(
        name if found[name] else f"NOT {name}" for name in ("alive", "started", "ready")
    )
    lines = [f"sidecar {found['version']}, up {_seconds(found['uptime_seconds'])}: {health}", ""]
    lines += routes(found["routes"])
    why = causes(found["routes"])
    return [*lines, "", *(why or ["nothing is slow or stopped"])]


def in_flight(found: Iterable[Mapping[str, Any]]) -> list[str]:
    return table(
        ["ROUTE", "RECORD", "ATTEMPT", "EXECUTING", "AGE"],
        [
            [
                each["route"],
                f"{each['topic']}/{each['partition']}/{each['offset']}",
                each["attempt"],
                _seconds(each["executing_seconds"]),
                _seconds(each["age_seconds"]),
            ]
            for each in found
        ],
    )


def partitions(found: Iterable[Mapping[str, Any]]) -> list[str]:
    return table(
        ["ROUTE", "PARTITION", "COMMITTED", "WATERMARK", "SPAN", "OPEN", "LAG", "PAUSED", "OLDEST"],
        [
            [
                each["route"],
                f"{each['topic']}/{each['partition']}",
                each["committed"],
                each["watermark"],
                each["span"],
                each["outstanding"],
                each["lag"],
                {True: "yes", False: "no", None: None}[each["paused"]],
                _seconds(each["oldest_age_seconds"]),
            ]
            for each in found
        ],
    )


def values(found: Mapping[str, Any]) -> list[str]:
    return [", ".join(f"{name.replace('_', ' ')} {_cell(each)}" for name, each in found.items())]


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    # A name of a topic could hold no control characters, but an application's answer can.
    return "-" if value is None else "".join(c if c.isprintable() else "?" for c in str(value))


def _age(since: str, now: datetime) -> float:
    return max(0.0, (now - datetime.fromisoformat(since)).total_seconds())


def _seconds(value: float | None) -> str:
    if value is None:
        return "-"
    if value < 60:
        return f"{value:.1f} s"
    minutes, seconds = divmod(round(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {seconds:02} s"
