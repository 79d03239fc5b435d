"""sidecar demo: the sidecar beside a one-at-a-time consumer, with nothing else needed."""

from __future__ import annotations

import logging
import sys
from argparse import ArgumentParser, Namespace

from sidecar import logs
from sidecar.cli.numbers import positive_number, whole_number
from sidecar.demo.screen import AboveThePanel, Screen
from sidecar.model import Guarantee


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--seconds",
        type=positive_number,
        metavar="N",
        help="end after so long (default: on Ctrl-C)",
    )
    parser.add_argument(
        "--rate", type=positive_number, default=400, metavar="N", help="records per second (400)"
    )
    parser.add_argument(
        "--slow-every",
        type=whole_number,
        default=50,
        metavar="N",
        help="one record in N is slow (50)",
    )
    parser.add_argument(
        "--slow-seconds", type=positive_number, default=1.5, metavar="S", help="how slow (1.5)"
    )
    parser.add_argument(
        "--executors", type=whole_number, default=32, metavar="N", help="concurrent requests (32)"
    )
    parser.add_argument(
        "--threshold",
        type=whole_number,
        default=1000,
        metavar="N",
        help="records in flight at most, and the loss budget of at_most_once (1000)",
    )
    parser.add_argument(
        "--guarantee",
        choices=[each.value for each in Guarantee],
        default=Guarantee.AT_LEAST_ONCE.value,
        help="at_least_once (default) or at_most_once",
    )


def main(args: Namespace) -> int:
    screen = Screen(sys.stdout)
    if sys.stdout.isatty():
        logging.basicConfig(handlers=[AboveThePanel(screen)], level=logging.WARNING, force=True)
    else:
        logs.set_up("text", "warning")
    from sidecar.demo.stage import Options, perform  # noqa: PLC0415 (wrong options end before)

    try:
        return perform(Options(**vars(args)), screen)
    except KeyboardInterrupt:
        return 0  # so early that nothing was in flight
