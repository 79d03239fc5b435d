"""Puts the demo together: embedded broker, toy application, load, the sidecar and its rival.

The sidecar is the real runtime with settings as a user could write them. Ends when told to by a
signal or after so many seconds, with a drain; nothing it started is left behind.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from sidecar.demo.app import FAST_SECONDS, ToyApp
from sidecar.demo.figures import Figures, Pace, Progress, summary
from sidecar.demo.one_at_a_time import OneAtATime
from sidecar.demo.screen import Screen
from sidecar.dispatch.causes import Now
from sidecar.dispatch.route import Phase
from sidecar.dispatch.status import executing_records, route_status
from sidecar.errors import ExitCode
from sidecar.kafka.client_config import consumer_config
from sidecar.kafka.embedded import EmbeddedBroker
from sidecar.kafka.load import SteadyLoad
from sidecar.kafka.source import KafkaSource
from sidecar.runtime import Runtime, run_on_loop
from sidecar.settings import Settings, load_settings

TOPIC: Final = "orders"
SAMPLE_SECONDS: Final = 0.25
LISTENING_SECONDS: Final = 0.01
_STOP_RESERVE: Final = 5.0


@dataclass(frozen=True)
class Options:
    """seconds: until it ends by itself; None: not at all."""

    rate: float
    executors: int
    threshold: int
    guarantee: str
    slow_every: int
    slow_seconds: float
    seconds: float | None


def perform(options: Options, screen: Screen) -> int:
    """Play until stopped; the exit code. Raises ConfigError for options that cannot be."""
    return run_on_loop(lambda: _perform(options, screen))


async def _perform(options: Options, screen: Screen) -> int:
    with ExitStack() as stack:
        broker = stack.enter_context(EmbeddedBroker())
        if broker.create_topic(TOPIC, 1) != 1:
            screen.text("(this client library cannot make topics: the partition is one of several)")
        app = stack.enter_context(ToyApp(options.slow_every, options.slow_seconds))
        settings = demo_settings(options, broker.bootstrap_servers, app.port)
        load = SteadyLoad(broker.bootstrap_servers, TOPIC, options.rate)
        rival = _rival(settings, app.port)
        screen.text(*_introduction(options, broker, app))
        runtime = Runtime(settings, embedded=True)
        running = asyncio.create_task(runtime.run())
        # Both begin together: the admin surface takes a moment to be imported.
        while (address := runtime.admin_address) is None:
            if await _over(running, LISTENING_SECONDS):
                return running.result()
        screen.text(f"What the sidecar says of itself: {address.url}/v1/status", "")
        load.start()
        stack.callback(load.stop)
        rival.start()
        stack.callback(rival.stop)
        try:
            last = await _play(options, screen, runtime, running, load, rival)
        except OSError as error:  # nobody looks any more
            runtime.stop(str(error))
            await running
            raise
        code = await running
        screen.leave()
        screen.text("", *summary(last))
        if code == ExitCode.CLEAN:
            screen.text("What it had in flight was then finished and committed.")
    return code


def demo_settings(options: Options, bootstrap_servers: str, app_port: int) -> Settings:
    timeout = options.slow_seconds * 2 + _STOP_RESERVE
    places = "loss_budget" if options.guarantee == "at_most_once" else "threshold"
    return load_settings(
        None,
        {},
        {
            "kafka": {
                **EmbeddedBroker.client_overrides,
                "bootstrap.servers": bootstrap_servers,
                "group.id": "sidecar",
            },
            "routes": [
                {
                    "topics": [TOPIC],
                    "target": f"http://127.0.0.1:{app_port}/events/{{topic}}",
                    "guarantee": options.guarantee,
                    places: options.threshold,
                    "executors": options.executors,
                    "timeout_seconds": timeout,
                }
            ],
            "drain_seconds": timeout + _STOP_RESERVE,
            "admin": {"port": 0, "socket": None},
        },
    )


def _rival(settings: Settings, app_port: int) -> OneAtATime:
    route = settings.routes[0].model_copy(update={"group_id": "one-at-a-time"})
    source = KafkaSource(consumer_config(settings, route), route.topics, None, topic_ids=False)
    return OneAtATime(source, app_port, route.timeout_seconds)


def _introduction(options: Options, broker: EmbeddedBroker, app: ToyApp) -> list[str]:
    fast, slow = f"{FAST_SECONDS * 1000:g} ms", f"{options.slow_seconds:g} s"
    return [
        f"{options.rate:g} records/s go into one partition.",
        f"The application takes {fast} for a record, but {slow} for 1 in {options.slow_every}.",
        "Two consumers deliver them, each in its own group: one record at a time, and the sidecar.",
        f"Broker {broker.bootstrap_servers}, application 127.0.0.1:{app.port}. Ctrl-C ends it.",
    ]


async def _play(
    options: Options,
    screen: Screen,
    runtime: Runtime,
    running: asyncio.Task[int],
    load: SteadyLoad,
    rival: OneAtATime,
) -> Figures:
    """Show how it goes until the sidecar drains; the last figures before that."""
    pace = Pace()
    route = runtime.routes[0]
    while True:
        figures = _figures(runtime, load, rival)
        screen.show(figures, pace.add(figures))
        if route.phase not in (Phase.WAITING, Phase.RUNNING):
            return figures
        if options.seconds is not None and figures.seconds >= options.seconds:
            runtime.stop("the time is up")
            return figures
        await _over(running, SAMPLE_SECONDS)


async def _over(running: asyncio.Task[int], seconds: float) -> bool:
    """Let so much time pass; at once True if the sidecar has ended."""
    done, _ = await asyncio.wait((running,), timeout=seconds)
    return bool(done)


def _figures(runtime: Runtime, load: SteadyLoad, rival: OneAtATime) -> Figures:
    route = runtime.routes[0]
    now = Now(asyncio.get_running_loop().time(), time.time())
    delivered, produced = route.counters.delivered, load.produced
    # Records start in the order of their offsets, so the oldest request is for the oldest.
    oldest = next((each.offset for each in executing_records(route, now, 1)), delivered)
    return Figures(
        seconds=now.wall - load.started_at,
        produced=produced,
        sidecar=Progress(delivered, max(0, produced - delivered), load.age_of(oldest)),
        one_at_a_time=Progress(
            rival.delivered,
            max(0, produced - rival.position),
            load.age_of(rival.position),
        ),
        expired=rival.expired,
        route=route_status(route, now),
    )
