"""The commands that change a running sidecar. What they print is what is in force afterwards.

A route need not be named where there is only one. Without a value, executors, threshold, rate-limit
and log-level show what is in force.
"""

from __future__ import annotations

import re
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from typing import Any

from sidecar.cli import tables
from sidecar.cli.client import Client, add_client_arguments, path_of
from sidecar.cli.seeing import NO_SIDECAR, show
from sidecar.errors import ConfigError, ExitCode, Problem, SidecarError

# command -> the name of the value in a body
_NUMBERS = {
    "executors": "count",
    "threshold": "threshold",
    "rate-limit": "max_records_per_second",
}
_ACTIONS = {
    "pause": ("pause",),
    "resume": ("resume",),
    "breaker-reset": ("breaker", "reset"),
}
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "": 1.0}
_COORDINATES = re.compile(r"([A-Za-z0-9._-]+)/(\d{1,10})/(\d{1,19})", re.ASCII)


def add_arguments(parser: ArgumentParser) -> None:
    match parser.get_default("command"):
        case "executors" | "threshold" | "rate-limit" as command:
            value = "N|none" if command == "rate-limit" else "N"
            parser.usage = f"%(prog)s [ROUTE] [{value}] [OPTIONS]"
            parser.add_argument(
                "words",
                nargs="*",
                metavar=f"[ROUTE] [{value}]",
                help="the route, needed if several; and the new value",
            )
        case "pause" | "resume" | "breaker-reset":
            parser.add_argument("route", nargs="?", metavar="ROUTE", help="needed if several")
        case "log-level":
            levels = ["debug", "info", "warning", "error"]
            parser.add_argument("level", nargs="?", choices=levels, help="the new one")
        case "record":
            parser.add_argument("action", choices=["park", "drop", "retry"])
            parser.add_argument("coordinates", type=_coordinates, metavar="TOPIC/PARTITION/OFFSET")
            parser.add_argument("--route", help="where several read the topic")
        case "drain":
            parser.add_argument(
                "--wait", type=_duration, default=0.0, metavar="20s", help="until it is done (0)"
            )
    add_client_arguments(parser)


def main(args: Namespace) -> int:
    client = Client(args)
    match args.command:
        case "executors" | "threshold" | "rate-limit":
            told = _number(client, args)
        case "pause" | "resume" | "breaker-reset":
            name = args.route or _only_route(client)
            told = client.ask("POST", path_of("routes", name, *_ACTIONS[args.command]))
        case "log-level":
            wanted = None if args.level is None else {"level": args.level}
            told = client.ask("GET" if wanted is None else "PUT", path_of("log-level"), wanted)
        case "record":
            told = _record(client, args)
        case _:
            return _drain(client, args)
    show(told, tables.values, as_json=args.json)
    return ExitCode.CLEAN


def _number(client: Client, args: Namespace) -> Any:
    words, value = list(args.words), None
    if len(words) > 2:
        raise ConfigError([Problem(args.command, "takes a route and a value")])
    if words and (len(words) == 2 or _is_value(words[-1])):
        value = words.pop()
    name = words[0] if words else _only_route(client)
    if words and value is None and name not in (names := _routes(client)):
        there = ", ".join(names)
        told = f"{name!r} is neither a value nor a route; the routes are {there}"
        raise ConfigError([Problem(args.command, told)])
    path = path_of("routes", name, args.command)
    if value is None:
        return client.get(path)
    return client.ask("PUT", path, {_NUMBERS[args.command]: _value(args.command, value)})


def _is_value(word: str) -> bool:
    return word == "none" or re.fullmatch(r"-?[0-9.]+(e[0-9]+)?", word) is not None


def _value(command: str, text: str) -> float | int | None:
    try:
        if command != "rate-limit":
            return int(text)
        return None if text == "none" else float(text)
    except ValueError:
        kind = "number, nor none" if command == "rate-limit" else "whole number"
        raise ConfigError([Problem(command, f"{text!r} is no {kind}")]) from None


def _routes(client: Client) -> list[str]:
    try:
        return [str(each["name"]) for each in client.get("/v1/routes")]
    except (LookupError, TypeError) as error:
        raise SidecarError(NO_SIDECAR) from error


def _only_route(client: Client) -> str:
    names = _routes(client)
    if len(names) != 1:
        raise ConfigError([Problem("", f"for which route? There are {', '.join(names)}")])
    return names[0]


def _record(client: Client, args: Namespace) -> Any:
    topic, partition, offset = args.coordinates
    name = args.route
    if name is None:
        lying = {
            each["route"]
            for each in client.get("/v1/partitions")
            if (each["topic"], each["partition"]) == (topic, int(partition))
        }
        where = (topic, int(partition), int(offset))
        owners = lying or {  # one that came back lies elsewhere
            each["route"]
            for each in client.get("/v1/in-flight", limit=10_000)
            if (each["topic"], each["partition"], each["offset"]) == where
        }
        if len(owners) > 1:
            raise ConfigError([Problem("--route", f"which one: {', '.join(sorted(owners))}?")])
        if not owners:
            raise SidecarError(f"{topic}/{partition} is not assigned to this sidecar")
        (name,) = owners
    return client.ask(
        "POST", path_of("routes", name, "records", topic, partition, offset, args.action)
    )


def _drain(client: Client, args: Namespace) -> int:
    """1 if it was waited for and is not done."""
    told = client.ask("POST", "/v1/drain", wait_seconds=args.wait)
    show(told, tables.values, as_json=args.json)
    return ExitCode.CLEAN if told["drained"] or not args.wait else ExitCode.FAILURE


def _coordinates(text: str) -> tuple[str, str, str]:
    match = _COORDINATES.fullmatch(text)
    if match is None:
        raise ArgumentTypeError(f"{text!r} is no TOPIC/PARTITION/OFFSET")
    return match[1], match[2], match[3]


def _duration(text: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|h|)", text, re.ASCII)
    seconds = -1.0 if match is None else float(match[1]) * _UNITS[match[2]]
    if not 0 <= seconds <= 3600:
        raise ArgumentTypeError(f"{text!r} is no time up to 1h, such as 20s")
    return seconds
