"""The real sidecar between a real Kafka and an application: what is promised, seen to hold."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.conftest import TopicFactory
from tests.rig.operations import COMPACTED, KafkaOperations
from tests.rig.processes import Scene, at_the_end, config, route
from tests.rig.scripted_app import Answer, Request, ScriptedApp, held_by
from tests.rig.waiting import eventually

pytestmark = pytest.mark.kafka

GUARANTEES = [{"guarantee": "at_least_once"}, {"guarantee": "at_most_once", "loss_budget": 100}]
QUICK = {"session_timeout_ms": 3000, "heartbeat_interval_ms": 500}


@pytest.mark.parametrize("guarantee", GUARANTEES, ids=lambda each: str(each["guarantee"]))
def test_every_record_reaches_the_app_once_and_the_group_ends_with_lag_0(
    kafka: KafkaOperations,
    topic: TopicFactory,
    group: str,
    scene: Scene,
    guarantee: dict[str, Any],
) -> None:
    name = topic(6)
    for number in range(600):
        kafka.produce(name, [b"%d" % number], partition=number % 6)
    with ScriptedApp() as app:
        sidecar = scene.sidecar(
            config(
                kafka.bootstrap_servers,
                group,
                [route(name, app.port, executors=8, **guarantee)],
            )
        )
        at_the_end(kafka, group, name)
        app.until(lambda seen: len(seen) >= 600)
        assert sidecar.stop() == 0
        assert sorted(int(each.body) for each in app.requests) == list(range(600))


def test_a_slow_record_holds_one_executor_and_nothing_else(
    kafka: KafkaOperations, topic: TopicFactory, group: str, scene: Scene
) -> None:
    """OFF-2: meanwhile nothing is committed past it, and afterwards everything at once."""
    name = topic(1)
    kafka.produce(name, [b"%d" % number for number in range(50)])
    go_on = threading.Event()
    with ScriptedApp(held_by(go_on, b"0")) as app:
        sidecar = scene.sidecar(
            config(kafka.bootstrap_servers, group, [route(name, app.port, executors=2)])
        )
        app.until(lambda seen: len(seen) == 50)
        eventually(
            lambda: kafka.commits(group, name).get(0, ("", ""))[1] != "",
            "the commit says what is done behind the slow record",
        )
        assert kafka.committed(group, name) == {0: 0}
        go_on.set()
        at_the_end(kafka, group, name)
        assert sidecar.stop() == 0


def test_a_restart_repeats_only_what_was_not_done(
    kafka: KafkaOperations, topic: TopicFactory, group: str, scene: Scene
) -> None:
    """OFF-1 and the done-map: after kill -9 the record that hung comes again, no other does."""
    name = topic(1)
    kafka.produce(name, [b"%d" % number for number in range(300)])
    go_on = threading.Event()
    with ScriptedApp(held_by(go_on, b"1")) as app:
        what = config(kafka.bootstrap_servers, group, [route(name, app.port, executors=4)], **QUICK)
        first = scene.sidecar(what)
        app.until(lambda seen: len(seen) == 300)
        eventually(lambda: exposure(first.status())[1] == 1, "all but one are covered by a commit")
        first.kill()
        assert kafka.committed(group, name) == {0: 1}
        go_on.set()
        second = scene.sidecar(what)
        at_the_end(kafka, group, name)
        assert [each.body for each in app.requests[300:]] == [b"1"]
        assert second.stop() == 0


def exposure(status: dict[str, Any]) -> tuple[int, int]:
    return status["exposure"]["would_lose"], status["exposure"]["would_repeat"]


def test_holes_left_by_compaction_cost_nothing(
    kafka: KafkaOperations, topic: TopicFactory, group: str, scene: Scene
) -> None:
    """OFF-3."""
    name = topic(1, config=COMPACTED)
    for number in range(30):
        kafka.produce(name, [b"%d" % number], key=b"%d" % (number % 3))
    kafka.compact(name)
    with ScriptedApp() as app:
        sidecar = scene.sidecar(config(kafka.bootstrap_servers, group, [route(name, app.port)]))
        at_the_end(kafka, group, name)
        assert len(app.requests) < 30
        assert sidecar.stop() == 0


@pytest.mark.parametrize("guarantee", GUARANTEES, ids=lambda each: str(each["guarantee"]))
def test_an_idle_group_ends_with_lag_0_behind_transaction_markers(
    kafka: KafkaOperations,
    topic: TopicFactory,
    group: str,
    scene: Scene,
    guarantee: dict[str, Any],
) -> None:
    """OFF-4, K8S-7: markers of commits and aborts, partitions that hold nothing at all."""
    name = topic(3)
    kafka.produce_transaction(name, [b"1", b"2", b"3"], partition=0)
    kafka.produce_transaction(name, [b"a"], partition=1, abort=True)
    with ScriptedApp() as app:
        sidecar = scene.sidecar(
            config(kafka.bootstrap_servers, group, [route(name, app.port, **guarantee)])
        )
        at_the_end(kafka, group, name)
        assert sorted(each.body for each in app.requests) == [b"1", b"2", b"3"]
        assert kafka.committed(group, name)[0] == 4
        assert sidecar.stop() == 0


def test_markers_do_not_carry_the_watermark_past_an_open_record(
    kafka: KafkaOperations, topic: TopicFactory, group: str, scene: Scene
) -> None:
    """OFF-4, its opposite error."""
    name = topic(1)
    kafka.produce_transaction(name, [b"1", b"2", b"3"])
    with ScriptedApp(held_by(threading.Event(), b"2")) as app:
        scene.sidecar(config(kafka.bootstrap_servers, group, [route(name, app.port)]))
        app.until(lambda seen: len(seen) == 3)
        eventually(lambda: kafka.committed(group, name) == {0: 1}, "the first is committed")


def test_a_first_record_that_fails_is_not_skipped_after_a_restart(
    kafka: KafkaOperations, topic: TopicFactory, group: str, scene: Scene
) -> None:
    """BRK-3: a new group that begins at the end; its first records fail, the process is killed."""
    name = topic(1)
    kafka.produce(name, [b"before"])
    with ScriptedApp(lambda _: 500) as app:
        what = config(
            kafka.bootstrap_servers,
            group,
            [route(name, app.port)],
            auto_offset_reset="latest",
            **QUICK,
        )
        first = scene.sidecar(what)
        eventually(lambda: kafka.committed(group, name) == {0: 1}, "the position is committed")
        kafka.produce(name, [b"%d" % number for number in range(5)])
        app.until(lambda seen: len({each.body for each in seen}) == 5)
        first.kill()
        app.behaviour = lambda _: 204
        app.requests.clear()
        second = scene.sidecar(what)
        at_the_end(kafka, group, name)
        assert sorted(each.body for each in app.requests) == [b"%d" % n for n in range(5)]
        assert second.stop() == 0


def test_partitions_added_to_a_known_topic_start_at_their_beginning(
    kafka: KafkaOperations, topic: TopicFactory, group: str, scene: Scene
) -> None:
    name = topic(1)
    with ScriptedApp() as app:
        sidecar = scene.sidecar(
            config(
                kafka.bootstrap_servers,
                group,
                [route(name, app.port)],
                auto_offset_reset="latest",
                topic_metadata_refresh_interval_ms=60_000,
                **QUICK,
            )
        )
        eventually(lambda: kafka.committed(group, name) == {0: 0}, "the position is committed")
        assert sidecar.stop() == 0
        kafka.add_partitions(name, 2)
        kafka.produce(name, [b"early"], partition=1)
        sidecar = scene.sidecar(
            config(
                kafka.bootstrap_servers,
                group,
                [route(name, app.port)],
                auto_offset_reset="latest",
                **QUICK,
            )
        )
        app.until(lambda seen: [each.body for each in seen] == [b"early"])
        assert sidecar.stop() == 0


def test_a_pattern_takes_every_topic_that_matches(
    kafka: KafkaOperations, topic: TopicFactory, group: str, scene: Scene
) -> None:
    names = [topic(1, name="fan"), topic(1, name="fan")]
    for name in names:
        kafka.produce(name, [name.encode()])
    with ScriptedApp() as app:
        routes = [{"pattern": r"^fan\..*", "target": app.url}]
        sidecar = scene.sidecar(config(kafka.bootstrap_servers, group, routes))
        app.until(lambda seen: {each.body.decode() for each in seen} >= set(names))
        assert {each.path for each in app.requests} >= {f"/events/{name}" for name in names}
        assert sidecar.stop() == 0


def test_a_hot_partition_does_not_starve_a_quiet_one(
    kafka: KafkaOperations, topic: TopicFactory, group: str, scene: Scene
) -> None:
    name = topic(2)
    kafka.produce(name, [b"hot"] * 4000, partition=0)
    gate = threading.Semaphore(0)

    def slowly(_: Request) -> Answer:
        gate.acquire(timeout=0.05)
        return 204

    with ScriptedApp(slowly) as app:
        sidecar = scene.sidecar(
            config(
                kafka.bootstrap_servers, group, [route(name, app.port, executors=4, threshold=500)]
            )
        )
        app.until(lambda seen: len(seen) > 20)
        kafka.produce(name, [b"quiet"], partition=1)
        app.until(lambda seen: any(each.partition == 1 for each in seen), within=15)
        assert len(app.requests) < 1000
        assert sidecar.stop() == 0


def test_a_hanging_app_of_one_route_does_not_touch_another(
    kafka: KafkaOperations, topic: TopicFactory, group: str, scene: Scene
) -> None:
    hanging, fine = topic(1), topic(1)
    kafka.produce(hanging, [b"x"] * 200)
    kafka.produce(fine, [b"x"] * 200)

    def hang(_: Request) -> Answer:
        stuck.released.wait(60)
        return 204

    with ScriptedApp(hang) as stuck, ScriptedApp() as app:
        routes = [
            route(hanging, stuck.port, executors=4, threshold=10),
            route(fine, app.port, executors=4),
        ]
        sidecar = scene.sidecar(config(kafka.bootstrap_servers, group, routes))
        at_the_end(kafka, group, fine)
        assert len(app.requests) == 200

        def held() -> bool:
            states = {each["name"]: each for each in sidecar.status()["routes"]}
            return (states[hanging]["in_flight"], states[hanging]["executing"]) == (10, 4)

        eventually(held, "the other route holds as much as its threshold")
