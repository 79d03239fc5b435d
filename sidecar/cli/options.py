"""How a command gets its settings: from a file, the environment, and flags for one route."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

from sidecar.errors import ConfigError, Problem
from sidecar.settings import Settings, load_settings
from sidecar.settings.sources import PREFIX

# flag -> where its value belongs
_KAFKA_FLAGS = {"bootstrap_servers": "bootstrap.servers", "group": "group.id"}
_ROUTE_FLAGS = {
    "topic": "topics",
    "target": "target",
    "guarantee": "guarantee",
    "loss_budget": "loss_budget",
    "executors": "executors",
    "threshold": "threshold",
}


def add_file_argument(parser: ArgumentParser) -> None:
    parser.add_argument("-c", "--config", metavar="FILE", type=Path, help="configuration (YAML)")


def add_settings_arguments(parser: ArgumentParser) -> None:
    add_file_argument(parser)
    group = parser.add_argument_group(
        "one route", "enough without a file; with one that has a single route, they come before it"
    )
    group.add_argument("--topic", action="append", help="topic to read; may be repeated")
    group.add_argument("--target", metavar="URL", help="where records are POSTed")
    group.add_argument("--bootstrap-servers", metavar="HOST:PORT,…", help="Kafka")
    group.add_argument("--group", help="consumer group")
    group.add_argument("--guarantee", help="at_least_once (default) or at_most_once")
    group.add_argument("--loss-budget", metavar="N", help="records a crash may lose: at_most_once")
    group.add_argument("--executors", metavar="N", help="concurrent requests (16)")
    group.add_argument("--threshold", metavar="N", help="records in flight at most (1000)")


def settings_from(args: Namespace) -> Settings:
    """The settings of flags over environment over file. Raises ConfigError."""
    overrides: dict[str, Any] = {}
    kafka = _given(args, _KAFKA_FLAGS)
    route = _given(args, _ROUTE_FLAGS)
    if kafka:
        overrides["kafka"] = kafka
    if route:
        overrides["routes"] = {0: route}
    if args.config is None and not overrides and not any(map(_is_ours, os.environ)):
        flags = ", or --bootstrap-servers, --group, --topic and --target"
        has_flags = hasattr(args, "target")
        raise ConfigError(
            [Problem("", f"no configuration: give -c FILE{flags if has_flags else ''}")]
        )
    settings = load_settings(args.config, os.environ, overrides)
    if route and len(settings.routes) > 1:
        flags = ", ".join(
            f"--{flag.replace('_', '-')}" for flag, name in _ROUTE_FLAGS.items() if name in route
        )
        raise ConfigError(
            [Problem(flags, f"for which of the {len(settings.routes)} routes? Write it there")]
        )
    return settings


def _is_ours(variable: str) -> bool:
    return variable.startswith(PREFIX)


def _given(args: Namespace, flags: dict[str, str]) -> dict[str, Any]:
    return {
        name: value
        for flag, name in flags.items()
        if (value := getattr(args, flag, None)) is not None
    }
