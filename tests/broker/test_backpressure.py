"""A full buffer: what it costs in memory and membership, and that it is never fuller than told."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.conftest import TopicFactory
from tests.rig.operations import KafkaOperations
from tests.rig.processes import Scene, Sidecar, at_the_end, config, route
from tests.rig.scripted_app import Answer, Request, ScriptedApp, held_by
from tests.rig.waiting import eventually

pytestmark = pytest.mark.kafka

POLL_INTERVAL = 6.0
SHORT = {
    "max_poll_interval_ms": int(POLL_INTERVAL * 1000),
    "session_timeout_ms": int(POLL_INTERVAL * 1000),
    "heartbeat_interval_ms": 500,
}
RECORD_BYTES = 175_000
LIMIT_BYTES = 256 * 1024 * 1024


def routes_of(sidecar: Sidecar) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in sidecar.status()["routes"]}


def test_neither_a_full_buffer_nor_an_idle_topic_costs_the_membership(
    kafka: KafkaOperations, topic: TopicFactory, group: str, scene: Scene
) -> None:
    """FLOW-2: both last twice the poll interval; then consumption goes on at once."""
    idle, kept, spent = topic(2), topic(2), topic(2)
    for name in (kept, spent):
        for number in range(100):
            kafka.produce(name, [b"%d" % number], partition=number % 2)
    go_on = threading.Event()
    with ScriptedApp(held_by(go_on)) as app:
        full = {"executors": 4, "timeout_seconds": 60}
        routes = [
            route(idle, app.port, group_id=f"{group}-idle"),
            route(kept, app.port, group_id=f"{group}-kept", threshold=20, **full),
            route(
                spent, app.port, group_id=f"{group}-spent",
                guarantee="at_most_once", loss_budget=20, **full,
            ),
        ]  # fmt: skip
        what = config(kafka.bootstrap_servers, group, routes, **SHORT)
        sidecar = scene.sidecar({**what, "drain_seconds": 70})

        def is_full() -> bool:
            states = routes_of(sidecar)
            return all(states[name]["in_flight"] == 20 for name in (kept, spent))

        sidecar.until_said("assigned", 3)
        eventually(is_full, "both buffers are full")
        since = time.monotonic()
        eventually(
            lambda: is_full() and time.monotonic() - since > 2 * POLL_INTERVAL + 1,
            "the buffers stay full for twice the poll interval",
        )
        go_on.set()
        released = time.monotonic()
        app.until(lambda seen: len(seen) == 200)
        assert max(each.at for each in app.requests) - released < 3
        for name, kind in ((kept, "kept"), (spent, "spent")):
            at_the_end(kafka, f"{group}-{kind}", name)
        kafka.produce(idle, [b"awake"])
        app.until(lambda seen: len(seen) == 201)
        assert [each["counters"]["rebalances"] for each in sidecar.status()["routes"]] == [0, 0, 0]
        assert len(sidecar.said("assigned")) == 3
        assert sidecar.stop() == 0


def incompressible(number: int) -> bytes:
    return os.urandom(RECORD_BYTES)


def repetitive(number: int) -> bytes:
    """Unfolds to about seventy times what travels."""
    return os.urandom(RECORD_BYTES // 100) * 100


def backlog(
    kafka: KafkaOperations, topic: str, partitions: int, count: int, value: Callable[[int], bytes]
) -> None:
    producer = Producer(
        kafka.client_config(
            **{"compression.type": "lz4", "linger.ms": 20, "queue.buffering.max.kbytes": 65_536}
        )
    )
    for number in range(count):
        while True:
            try:
                producer.produce(topic, value(number), partition=number % partitions)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(60) == 0


@pytest.mark.parametrize("value", [incompressible, repetitive], ids=lambda each: each.__name__)
def test_memory_follows_the_buffer_not_the_backlog(
    kafka: KafkaOperations,
    topic: TopicFactory,
    group: str,
    scene: Scene,
    value: Callable[[int], bytes],
) -> None:
    """FLOW-1: 12 partitions hold 350 MB, the buffer 100 records, the app hangs."""
    name = topic(12, config={"max.message.bytes": "2000000"})
    backlog(kafka, name, 12, 2000, value)

    def hang(_: Request) -> Answer:
        app.released.wait(60)
        return 503

    with ScriptedApp(hang) as app:
        what = route(name, app.port, executors=8, threshold=100, timeout_seconds=60)
        sidecar = scene.sidecar(
            {**config(kafka.bootstrap_servers, group, [what]), "drain_seconds": 70}
        )
        app.until(lambda seen: len(seen) == 8)
        samples: list[tuple[float, int]] = []

        def plateau() -> bool:
            """Nothing has changed by more than 1 MB for three seconds, nor is there any CPU."""
            now = time.monotonic()
            samples.append((now, sidecar.resident_bytes()))
            recent = [size for at, size in samples if at > now - 3]
            long_enough = now - samples[0][0] > 3
            return long_enough and max(recent) - min(recent) < 1_000_000

        eventually(plateau, "memory stays where it is", within=60)
        state = sidecar.route()
        most = max(size for _, size in samples)
        assert state["in_flight"] <= 100
        assert state["in_flight_bytes"] <= 16_777_216 + 2_000_000
        assert most < LIMIT_BYTES


@pytest.mark.parametrize("guarantee", ["at_least_once", "at_most_once"])
def test_in_flight_never_exceeds_the_threshold(
    kafka: KafkaOperations, topic: TopicFactory, group: str, scene: Scene, guarantee: str
) -> None:
    thresholds = (1, 7, 100)
    name = topic(5)
    for partition in range(5):
        kafka.produce(name, [b"%d" % number for number in range(60)], partition=partition)
    # More executors than places: what the app sees at one moment is bounded by the places alone.
    with ExitStack() as stack:
        pace = threading.Event()
        apps: dict[int, ScriptedApp] = {}
        routes = []
        for threshold in thresholds:

            def briefly(_: Request, seconds: float = 0.002 * threshold) -> Answer:
                pace.wait(seconds)
                return 204

            apps[threshold] = app = stack.enter_context(ScriptedApp(briefly))
            bound = "threshold" if guarantee == "at_least_once" else "loss_budget"
            routes.append(
                route(
                    name, app.port, name=f"r{threshold}", group_id=f"{group}-{threshold}",
                    guarantee=guarantee, executors=threshold + 20, **{bound: threshold},
                )
            )  # fmt: skip
        sidecar = scene.sidecar(config(kafka.bootstrap_servers, group, routes))
        sidecar.until_said("assigned", 3)
        most = dict.fromkeys(thresholds, 0)

        def all_done() -> bool:
            states = routes_of(sidecar)
            for threshold in thresholds:
                most[threshold] = max(most[threshold], states[f"r{threshold}"]["in_flight"])
            return all(len(app.requests) == 300 for app in apps.values())

        eventually(all_done, "all is delivered", every=0.003)
        for threshold, app in apps.items():
            assert most[threshold] <= threshold
            assert app.most_at_once <= threshold
            at_the_end(kafka, f"{group}-{threshold}", name)
        assert apps[1].most_at_once == 1
        assert apps[7].most_at_once == 7
        assert apps[100].most_at_once > 20
        assert sidecar.stop() == 0


def test_in_flight_is_bounded_in_bytes_as_well(
    kafka: KafkaOperations, topic: TopicFactory, group: str, scene: Scene
) -> None:
    """By less than a record beyond it, where all are of a size and one has been seen.

    Before the first, a batch is as large as what the client has by then.
    """
    name = topic(1)
    kafka.produce(name, [bytes(50_000)])
    go_on = threading.Event()
    with ScriptedApp(held_by(go_on)) as app:
        what = route(name, app.port, executors=2, threshold=1000, threshold_bytes=1_000_000)
        sidecar = scene.sidecar(config(kafka.bootstrap_servers, group, [what]))
        app.until(lambda seen: len(seen) == 1)
        kafka.produce(name, [bytes(50_000)] * 59)
        app.until(lambda seen: len(seen) == 2)
        eventually(lambda: sidecar.route()["in_flight_bytes"] >= 950_000, "the bytes are used up")
        go_on.set()
        most = 0

        def all_done() -> bool:
            nonlocal most
            most = max(most, sidecar.route()["in_flight_bytes"])
            return len(app.requests) == 60

        eventually(all_done, "all is delivered", every=0.01)
        at_the_end(kafka, group, name)
        assert most <= 1_050_000
        assert sidecar.stop() == 0
