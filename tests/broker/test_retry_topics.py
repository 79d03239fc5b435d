"""Durable retries on a real Kafka: when, how often, by whom, and what the app is told."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
)

from sidecar.core.retry_mark import RETRY_MARK
from tests.conftest import TopicFactory
from tests.rig.kafka import KafkaCluster
from tests.rig.operations import KafkaOperations
from tests.rig.processes import Scene, Sidecar, at_the_end, config, route
from tests.rig.scripted_app import Answer, Request, ScriptedApp
from tests.rig.waiting import eventually

pytestmark = pytest.mark.kafka

QUICK = {"session_timeout_ms": 3000, "heartbeat_interval_ms": 300}
FORGED: list[tuple[str, bytes | None]] = [
    ("a", b"1"),
    (RETRY_MARK, b'{"topic":"else","partition":0,"offset":9,"attempts":900}'),
    ("a", None),
]
ANY: Any = None
EVERY_ACL = AclBindingFilter(
    ResourceType.ANY,
    ANY,
    ResourcePatternType.ANY,
    ANY,
    ANY,
    AclOperation.ANY,
    AclPermissionType.ANY,
)


def tiers(*delays: float, **more: Any) -> dict[str, Any]:
    topics = [{"delay_seconds": delay} for delay in delays]
    return {"max_attempts": 2, "max_backoff_seconds": 0.2, "topics": topics, **more}


def fails(body: bytes = b"bad", times: int = 1000) -> Any:
    """500 to so many requests with this body, 204 to all others."""
    left = [times]

    def behave(request: Request) -> Answer:
        if request.body == body and left[0] > 0:
            left[0] -= 1
            return 500
        return 204

    return behave


def of_bad(app: ScriptedApp) -> list[Request]:
    return [each for each in list(app.requests) if each.body == b"bad"]


def judge_gaps(app: ScriptedApp, *delays: float) -> None:
    """Never early, and at most a second late."""
    gaps = [after.at - before.at for before, after in pairwise(of_bad(app))]
    for gap, delay in zip(gaps[-len(delays) :], delays, strict=True):
        assert delay <= gap <= delay + 1.0, gaps


def counters(sidecar: Sidecar) -> Mapping[str, int]:
    """Once it listens."""
    eventually(lambda: sidecar.said("admin API"), "it listens")
    found: Mapping[str, int] = sidecar.route()["counters"]
    return found


def retry_topic(name: str, group: str, delay: str) -> str:
    return f"{name}.{group}.retry.{delay}s"


def test_gaps_are_right_and_the_record_ends_as_it_was(
    kafka: KafkaOperations, topic: TopicFactory, group: str, scene: Scene
) -> None:
    """DLQ-8: tiers of 1, 2 and 4 s. The original speaks everywhere, a forged mark nowhere; the
    topics are made at the start; a restart brings nothing back.
    """
    name, dead = topic(3), topic(1, name="dead")
    kafka.produce(name, [b"%d" % number for number in range(100)])
    kafka.produce(name, [b"bad"], partition=1, key=b"k", headers=FORGED)
    with ScriptedApp(fails()) as app:
        what = config(
            kafka.bootstrap_servers,
            group,
            [route(name, app.port, retry=tiers(1, 2, 4), dead_letter={"topic": dead})],
        )
        sidecar = scene.sidecar(what)
        app.until(lambda seen: len(seen) == 105)
        at_the_end(kafka, group, name)
        for delay in ("0", "1", "2", "4"):
            at_the_end(kafka, group, retry_topic(name, group, delay))
        judge_gaps(app, 1, 2, 4)
        requests = of_bad(app)
        assert [each.attempt for each in requests] == [1, 2, 3, 4, 5]
        for told in ("Kafka-Topic", "Kafka-Partition", "Kafka-Offset", "Kafka-Timestamp"):
            assert len({each.headers[told] for each in requests}) == 1
        assert {each.headers["Idempotency-Key"] for each in requests} == {
            f'"{name}/1/{requests[0].offset}/{requests[0].headers["Kafka-Timestamp"]}"'
        }
        assert len({each.headers["Kafka-Headers"] for each in requests}) == 1
        assert {each.path for each in requests} == {f"/events/{name}"}
        (parked,) = kafka.read(dead)
        headers: Any = parked.headers()
        assert (parked.key(), parked.value(), headers[:3]) == (b"k", b"bad", FORGED)
        story = dict(headers[3:])
        assert story["sidecar-dlq-topic"] == name.encode()
        assert story["sidecar-dlq-attempts"] == b"5"
        assert RETRY_MARK not in story
        assert counters(sidecar)["retried_later"] == 3
        assert counters(sidecar)["rebalances"] == 0
        assert sidecar.stop() == 0
        again = scene.sidecar(what)
        eventually(lambda: again.said("assigned"), "it is assigned")
        at_the_end(kafka, group, name)
        assert again.stop() == 0
        assert len(app.requests) == 105
    later = retry_topic(name, group, "4")
    assert len(kafka.end_offsets(later)) == 1
    (answer,) = kafka.admin.describe_configs(
        [ConfigResource(ConfigResource.Type.TOPIC, later)]
    ).values()
    settings = answer.result(10)
    assert settings["cleanup.policy"].value == "delete"
    assert int(settings["retention.ms"].value) > 604_800_000


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_a_restart_in_the_middle_loses_nothing_and_is_not_early(
    kafka: KafkaOperations, topic: TopicFactory, group: str, scene: Scene, end: str
) -> None:
    """REB-7: the count of attempts and the due time survive."""
    name, dead = topic(1), topic(1, name="dead")
    kafka.produce(name, [b"1", b"bad", b"2"])
    with ScriptedApp(fails()) as app:
        what = config(
            kafka.bootstrap_servers,
            group,
            [route(name, app.port, retry=tiers(4), dead_letter={"topic": dead})],
            **QUICK,
        )
        first = scene.sidecar(what)
        eventually(lambda: counters(first)["retried_later"] == 1, "it waits in the topic")
        at_the_end(kafka, group, name)
        if end == "kill":
            first.kill()
        else:
            assert first.stop() == 0
        second = scene.sidecar(what)
        at_the_end(kafka, group, retry_topic(name, group, "4"))
        eventually(lambda: len(kafka.read(dead)) == 1, "it is parked")
        assert [each.attempt for each in of_bad(app)] == [1, 2, 3]
        assert of_bad(app)[2].at - of_bad(app)[1].at >= 4
        assert len(app.requests) == 5
        assert second.stop() == 0


def test_a_second_member_shares_what_waits(
    kafka: KafkaOperations, topic: TopicFactory, group: str, scene: Scene
) -> None:
    """REB-8: the first gives up partitions that are asleep, the second wakes them. A retry topic
    that is there already is used as it is.
    """
    name = topic(1)
    delay = 15  # within which the second member has to start
    later = retry_topic(name, group, f"{delay}")
    kafka.create_topic(later, 5)
    for number in range(40):
        kafka.produce(name, [b"%d" % number], key=b"%d" % number)
    with ScriptedApp(lambda request: 500 if request.attempt == 1 else 204) as app:
        what = config(
            kafka.bootstrap_servers,
            group,
            [route(name, app.port, retry=tiers(delay, max_attempts=1), max_parked_in_a_row=40)],
            **QUICK,
        )
        first = scene.sidecar(what)
        eventually(lambda: counters(first)["retried_later"] == 40, "all wait in the topic")
        second = scene.sidecar(what)
        eventually(lambda: second.said(f"retry.{delay}s"), "it has a part of what waits")
        app.until(lambda seen: len(seen) == 80)
        at_the_end(kafka, group, later)
        by_body: dict[bytes, list[Request]] = {}
        for each in app.requests:
            by_body.setdefault(each.body, []).append(each)
        assert {tuple(each.attempt for each in seen) for seen in by_body.values()} == {(1, 2)}
        assert min(two.at - one.at for one, two in by_body.values()) >= delay
        assert counters(second)["delivered"] > 0
        assert [first.stop(), second.stop()] == [0, 0]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_pattern_that_matches_its_own_retry_topics_does_no_harm(
    kafka: KafkaOperations, topic: TopicFactory, group: str, scene: Scene, protocol: str
) -> None:
    """DLQ-6: each attempt is made once, for the original, and no topic begets another."""
    name = topic(2, name=f"{group}.orders")
    kafka.produce(name, [b"1", b"bad", b"2"])
    with ScriptedApp(fails(times=3)) as app:
        matching = {
            **route(name, app.port, name=f"{group}.orders", retry=tiers(1, 2)),
            "topics": None,
            "pattern": f"^{re.escape(group)}.*",
        }
        sidecar = scene.sidecar(
            config(kafka.bootstrap_servers, group, [matching], group_protocol=protocol)
        )
        app.until(lambda seen: len(of_bad(app)) == 4)
        for delay in ("0", "1", "2"):
            at_the_end(kafka, group, retry_topic(f"{group}.orders", group, delay))
        judge_gaps(app, 1, 2)
        assert [each.attempt for each in of_bad(app)] == [1, 2, 3, 4]
        assert {each.path for each in of_bad(app)} == {f"/events/{name}"}
        assert sidecar.stop() == 0
    known = kafka.admin.list_topics(timeout=10).topics
    assert len([each for each in known if each.startswith(group)]) == 4


def test_where_topics_may_not_be_made_the_names_are_said_and_it_heals(
    guarded: KafkaCluster, topic: TopicFactory, group: str, scene: Scene
) -> None:
    """It goes on with the topics that exist; the record waits here until somebody makes one."""
    name = topic(1, on=guarded)
    later = retry_topic(name, group, "1")
    acls = [
        AclBinding(kind, name, pattern, "User:ANONYMOUS", "*", operation, permission)
        for kind, name, pattern in (
            (ResourceType.TOPIC, f"{name}.{group}", ResourcePatternType.PREFIXED),
            (ResourceType.BROKER, "kafka-cluster", ResourcePatternType.LITERAL),
        )
        for operation, permission in (
            (AclOperation.ALL, AclPermissionType.ALLOW),
            (AclOperation.CREATE, AclPermissionType.DENY),
        )
    ]
    for future in guarded.admin.create_acls(acls).values():
        future.result(10)
    guarded.produce(name, [b"1", b"bad", b"2"])
    with ScriptedApp(fails(times=2)) as app:
        what = route(name, app.port, retry=tiers(1))
        sidecar = scene.sidecar(config(guarded.bootstrap_servers, group, [what]))
        sidecar.until_said("retry topics are missing and cannot be made")
        (said,) = sidecar.said("cannot be made")
        assert later in said
        assert retry_topic(name, group, "0") in said
        sidecar.until_said("cannot move")
        app.until(lambda seen: len(seen) == 4)
        causes = [each["cause"] for each in sidecar.route()["causes"]]
        assert "dead_letter_writes_failing" in causes
        for bindings in guarded.admin.delete_acls([EVERY_ACL]).values():
            assert bindings.result(10)
        guarded.create_topic(later, 1)
        app.until(lambda seen: len(seen) == 5, within=60)
        at_the_end(guarded, group, name)
        assert sidecar.stop() == 0
