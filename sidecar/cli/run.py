"""sidecar run: read the settings, set up the logs, hand over to the runtime."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from sidecar import logs
from sidecar.cli.options import add_settings_arguments, settings_from


def add_arguments(parser: ArgumentParser) -> None:
    add_settings_arguments(parser)


def main(args: Namespace) -> int:
    settings = settings_from(args)
    logs.set_up(settings.log.format, settings.log.level)
    from sidecar.runtime import run  # noqa: PLC0415 (a wrong configuration is told without it)

    return run(settings)
