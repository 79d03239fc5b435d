"""sidecar check: one line per finding, about everything that can be tried without starting.

Nothing is consumed, written or committed. Exit code 1 if anything fails, 2 if the configuration
cannot be read at all.
"""

from __future__ import annotations

import asyncio
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path

from sidecar.cli.options import add_settings_arguments, settings_from
from sidecar.core.findings import Finding, Grade, fail, ok, warn
from sidecar.delivery import TlsOptions, open_delivery
from sidecar.errors import ExitCode
from sidecar.kafka.check import check_kafka
from sidecar.kafka.client_config import prefetch_bytes
from sidecar.model import Guarantee, OnExhausted
from sidecar.settings import RouteSettings, Settings

BASE_BYTES = 75 * 2**20
_MEMORY_LIMIT = Path("/sys/fs/cgroup/memory.max")


def add_arguments(parser: ArgumentParser) -> None:
    add_settings_arguments(parser)
    parser.add_argument(
        "--no-app", action="store_true", help="leave out the app: it is not beside this process"
    )


def main(args: Namespace) -> int:
    settings = settings_from(args)
    failed = False
    for finding in findings_of(settings, with_app=not args.no_app):
        print(finding, flush=True)
        failed = failed or finding.grade is Grade.FAIL
    return ExitCode.FAILURE if failed else ExitCode.CLEAN


def findings_of(settings: Settings, *, with_app: bool = True) -> Iterator[Finding]:
    routes = f"{len(settings.routes)} route{'s' if len(settings.routes) > 1 else ''}"
    yield ok("configuration", f"valid: {routes}")
    yield from check_choices(settings)
    yield check_memory(settings, memory_limit())
    yield from check_kafka(settings)
    if with_app:
        yield from asyncio.run(check_app(settings))


def check_choices(settings: Settings) -> Iterator[Finding]:
    """What is allowed, and worth knowing before it bites."""
    for route in settings.routes:
        subject = f"route {route.name}"
        if route.on_exhausted is OnExhausted.RETRY_FOREVER:
            yield warn(
                subject,
                "a record the app never takes is retried for ever and holds its place in flight:"
                " add dead_letter, or choose on_exhausted: drop or halt",
            )
        if route.on_exhausted is OnExhausted.DROP:
            yield warn(
                subject,
                "records the app does not take are dropped and counted: add dead_letter to keep"
                " them",
            )
        if route.executors == 0:
            yield warn(subject, "executors is 0: nothing is dispatched until that is changed")
        if route.executors > route.threshold:
            yield warn(
                subject,
                f"only {route.threshold} of {route.executors} executors can ever be busy: raise"
                " threshold, or lower executors",
            )
        if route.guarantee is Guarantee.AT_MOST_ONCE:
            yield ok(subject, f"a crash loses at most {route.loss_budget} records")
    if settings.admin.token is None and settings.admin.socket is None:
        yield warn("admin", "neither token nor socket: nothing can be changed at run time")


def check_memory(settings: Settings, limit: int | None) -> Finding:
    """What the process needs under full load, as docs/configuration.md explains it."""
    need = BASE_BYTES + sum(
        route.threshold_bytes + prefetch_bytes(settings, route) for route in settings.routes
    )
    text = f"about {_mib(need)} under full load with one broker, more with compressed batches"
    if limit is None or need <= limit:
        return ok("memory", text)
    return warn(
        "memory",
        f"{text}, but the limit is {_mib(limit)}: raise it, or lower threshold_bytes or kafka's"
        " queued.max.messages.kbytes",
    )


def memory_limit() -> int | None:
    try:
        text = _MEMORY_LIMIT.read_text(encoding="ascii").strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def _mib(count: int) -> str:
    return f"{count / 2**20:.0f} MiB"


async def check_app(settings: Settings) -> list[Finding]:
    """Connect to each target once, and ask for the app's health where it has an address."""
    targets: dict[str, RouteSettings] = {}
    for route in settings.routes:
        targets.setdefault(route.target, route)
    return [await _check_target(settings, route) for route in targets.values()]


async def _check_target(settings: Settings, route: RouteSettings) -> Finding:
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[str | None] = loop.create_future()
    tls = route.tls
    delivery = open_delivery(
        target=route.parsed_target,
        loop=loop,
        content_type=route.content_type,
        max_header_bytes=route.max_header_bytes,
        health=settings.app.health,
        tls=None if tls is None else TlsOptions(**dict(tls)),
        http2=route.http2,
        probe_seconds=route.timeout_seconds,
    )
    try:
        delivery.probe(answer.set_result)
        reason = await answer
    finally:
        await delivery.close()
    tried = settings.app.health or route.target
    if reason is None:
        return ok("app", f"{tried} answers")
    return fail("app", f"{tried}: {reason}; start the app, or correct target and app.health")
