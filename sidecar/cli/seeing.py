"""sidecar status | routes | in-flight | partitions | top: what a running sidecar says of itself."""

from __future__ import annotations

import json
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from typing import Any

from sidecar.cli import tables
from sidecar.cli.client import Client, add_client_arguments
from sidecar.cli.numbers import seconds, whole_number
from sidecar.cli.printable import printable
from sidecar.errors import ExitCode, SidecarError

_SHOWN: dict[str, tuple[str, Callable[[Any], list[str]]]] = {
    "status": ("/v1/status", tables.status),
    "routes": ("/v1/routes", tables.routes),
    "in-flight": ("/v1/in-flight", tables.in_flight),
    "partitions": ("/v1/partitions", tables.partitions),
}
NO_SIDECAR = "what answers there is not a sidecar of this version: see --url and --socket"
_HOME_AND_CLEAR = "\x1b[H\x1b[J"


def add_arguments(parser: ArgumentParser) -> None:
    add_client_arguments(parser)
    match parser.get_default("command"):
        case "in-flight":
            parser.add_argument(
                "--limit", type=whole_number, default=100, metavar="N", help="at most (100)"
            )
            parser.add_argument(
                "--payload", action="store_true", help="with what the records hold; implies --json"
            )
        case "top":
            parser.add_argument(
                "--interval", type=seconds, default=1.0, metavar="SECONDS", help="(1)"
            )
            parser.add_argument("--times", type=whole_number, metavar="N", help="end after so many")


def main(args: Namespace) -> int:
    client = Client(args)
    if args.command == "top":
        return _top(client, args)
    path, lines_of = _SHOWN[args.command]
    query: dict[str, Any] = {}
    if args.command == "in-flight":
        query["limit"] = args.limit
        if args.payload:
            query["payload"], args.json = "true", True
    show(client.get(path, **query), lines_of, as_json=args.json)
    return ExitCode.CLEAN


def show(
    found: Any, lines_of: Callable[[Any], list[str]], *, as_json: bool, start: str = ""
) -> None:
    if as_json:
        print(json.dumps(found, indent=2))
        return
    try:
        lines = lines_of(found)
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise SidecarError(NO_SIDECAR) from error
    print(start + "\n".join(map(printable, lines)), flush=True)


def _top(client: Client, args: Namespace) -> int:
    """Until interrupted; on a terminal in place."""
    shown = 0
    start = _HOME_AND_CLEAR if sys.stdout.isatty() else ""
    try:
        while True:
            status = client.get("/v1/status")
            if args.json:
                print(json.dumps(status), flush=True)
            else:
                show(status, tables.status, as_json=False, start=start)
            shown += 1
            if shown == args.times:
                return ExitCode.CLEAN
            time.sleep(args.interval)
    except KeyboardInterrupt:
        return ExitCode.CLEAN
