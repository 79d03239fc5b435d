"""The command line: one module per command, imported only when it is the one that was asked for.

A command module has `main(args) -> int`, and `add_arguments(parser)` where it takes any; where
several share one, `command` among the arguments tells which it is. Exit
codes: 0 clean, 1 runtime failure, 2 usage or configuration. A user's mistake is one line on
standard error, never a traceback.
"""

from __future__ import annotations

import os
import signal
import sys
from argparse import SUPPRESS, ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module
from typing import NoReturn

import sidecar
from sidecar.cli.printable import printable
from sidecar.errors import ConfigError, ExitCode, SidecarError

COMMANDS = {
    "run": "consume and deliver until told to stop",
    "check": "try configuration, brokers, topics, permissions and the app, and say what to fix",
    "dead-letters": "list, show, count and redrive what was parked, by talking to Kafka itself",
    "demo": "broker, toy app and load in one process: nothing else is needed",
    "status": "health, routes, and why one is slow or stopped",
    "routes": "depth, executors and rates of each route",
    "in-flight": "the records whose requests run, the oldest first",
    "partitions": "assignment, committed offset, watermark and lag",
    "top": "status and routes as a live table",
    "executors": "show or change how many requests may run at once",
    "threshold": "show or change how many records may be in flight",
    "rate-limit": "show or change how many records may start per second",
    "pause": "dispatch nothing until resumed",
    "resume": "go on after a pause or a halt",
    "breaker-reset": "send records to a held app again, at once",
    "log-level": "show or change how much is logged",
    "record": "park, drop or retry one record",
    "drain": "finish what executes, and end the process",
    "inject": "add the sidecar to the workloads of Kubernetes manifests",
    "config-schema": "print the JSON schema of the configuration file",
    "openapi": "print the description of the admin API",
}

# Those that share a module: what shows a running sidecar, and what changes one.
_MODULES = {
    **dict.fromkeys(("status", "routes", "in-flight", "partitions", "top"), "seeing"),
    **dict.fromkeys(
        (
            "executors",
            "threshold",
            "rate-limit",
            "pause",
            "resume",
            "breaker-reset",
            "log-level",
            "record",
            "drain",
        ),
        "changing",
    ),
}


class Parser(ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(ExitCode.USAGE, f"{self.prog}: {message} (see {self.prog} --help)\n")


def main(argv: Sequence[str] | None = None) -> int:
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] == ["run"]:
        # Until the runtime has its own handlers: a stop while things are still being imported is
        # a clean one, and as process 1 of a container it would otherwise not be heard at all.
        signal.signal(signal.SIGTERM, _stopped_early)
    if arguments and arguments[0] in COMMANDS:
        return _run(arguments[0], arguments[1:])
    listing = "\n".join(f"  {name:<15} {text}" for name, text in COMMANDS.items())
    parser = Parser(
        prog="sidecar",
        usage="sidecar COMMAND [OPTIONS]",
        description="Consumes Kafka into a bounded buffer and POSTs each message to an app.",
        epilog=f"commands:\n{listing}\n\n`sidecar COMMAND --help` tells the options of one.",
        formatter_class=RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"sidecar {sidecar.__version__}")
    parser.add_argument("command", nargs="?", help=SUPPRESS)
    return parser.error(_wrong_command(parser.parse_known_args(arguments)[0].command))


def _stopped_early(*_: object) -> NoReturn:
    # At once: an exception makes an extension that is just being imported panic, and while the
    # interpreter ends it leaves another signal to the kernel. Nothing has been started yet.
    os._exit(ExitCode.CLEAN)


def _wrong_command(command: str | None) -> str:
    if command is None:
        return "a command is missing: " + ", ".join(COMMANDS)
    if command in COMMANDS:
        return f"options belong behind the command: sidecar {command} …"
    nearest = get_close_matches(command, COMMANDS, n=1)
    hint = f"did you mean {nearest[0]}?" if nearest else "there are " + ", ".join(COMMANDS)
    return f"unknown command {command!r}; {hint}"


def _run(name: str, arguments: Sequence[str]) -> int:
    module = import_module(f"sidecar.cli.{_MODULES.get(name, name.replace('-', '_'))}")
    parser = Parser(prog=f"sidecar {name}", description=COMMANDS[name], allow_abbrev=False)
    if name in _MODULES:
        parser.set_defaults(command=name)
    if hasattr(module, "add_arguments"):
        module.add_arguments(parser)
    args = parser.parse_args(arguments)
    try:
        return int(module.main(args))
    except ConfigError as error:
        for problem in error.problems:
            print(f"sidecar: {_line(problem)}", file=sys.stderr)
        return ExitCode.USAGE
    except SidecarError as error:
        print(f"sidecar: {_line(error)}", file=sys.stderr)
        return ExitCode.FAILURE
    except BrokenPipeError:
        # The reader of the output has gone (`… | head`): the exit must not complain about it.
        sys.stdout = None
        return ExitCode.FAILURE
    except KeyboardInterrupt:
        return ExitCode.FAILURE


def _line(error: object) -> str:
    """It may quote what others wrote."""
    return printable(" ".join(str(error).split()))
