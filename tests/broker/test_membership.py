"""Two real members of one group: what a rebalance may cost, and what it must not."""

from __future__ import annotations

import threading
import time
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest

from tests.conftest import TopicFactory
from tests.rig.operations import KafkaOperations
from tests.rig.processes import Scene, Sidecar, at_the_end, config, route
from tests.rig.scripted_app import Answer, Request, ScriptedApp, held_by
from tests.rig.waiting import eventually

pytestmark = pytest.mark.kafka

CLASSIC = {"session_timeout_ms": 3000, "heartbeat_interval_ms": 300}
PROTOCOLS: dict[str, dict[str, Any]] = {
    "range": {"partition_assignment_strategy": "range", **CLASSIC},
    "cooperative-sticky": CLASSIC,
    "consumer": {"group_protocol": "consumer"},
}
every_protocol = pytest.mark.parametrize("protocol", PROTOCOLS)


class Answers:
    """Holds the first and the second request for a record until that event is set."""

    def __init__(self) -> None:
        self._seen: Counter[tuple[int, int]] = Counter()
        self._lock = threading.Lock()
        self.go = {1: threading.Event(), 2: threading.Event()}

    def __call__(self, request: Request) -> Answer:
        with self._lock:
            where = (request.partition, request.offset)
            self._seen[where] += 1
            time_of = self._seen[where]
        if time_of in self.go:
            self.go[time_of].wait(60)
        return 204


def filled(kafka: KafkaOperations, topic: TopicFactory, values: list[bytes]) -> str:
    """A topic of two partitions, each with these records."""
    name = topic(2)
    for partition in range(2):
        kafka.produce(name, values, partition=partition)
    return name


def repeated(seen: list[Request]) -> dict[tuple[int, int], int]:
    """The records that came more than once."""
    times = Counter((each.partition, each.offset) for each in seen)
    return {where: count for where, count in times.items() if count > 1}


def late_results(sidecar: Sidecar) -> int:
    count: int = sidecar.route()["counters"]["late_results"]
    return count


def partitions_of(sidecar: Sidecar) -> int:
    return sum(len(each.split(", ")) for each in sidecar.said("assigned")) - sum(
        len(each.split(", "))
        for each in [*sidecar.said("revoked"), *sidecar.said("lost ")]
        if "are still executing" not in each
    )


@every_protocol
def test_a_request_that_ends_in_time_is_committed_and_not_repeated(
    kafka: KafkaOperations, topic: TopicFactory, group: str, scene: Scene, protocol: str
) -> None:
    """The revocation waits for it."""
    name = filled(kafka, topic, [b"slow"])
    answers = Answers()
    with ScriptedApp(answers) as app:
        what = config(
            kafka.bootstrap_servers, group, [route(name, app.port)], **PROTOCOLS[protocol]
        )
        first = scene.sidecar(what)
        app.until(lambda seen: len(seen) == 2)
        second = scene.sidecar(what)
        first.until_said("revoked")
        assert kafka.committed(group, name) == {0: 0, 1: 0}
        answers.go[1].set()
        second.until_said("assigned")
        at_the_end(kafka, group, name)
        for partition in range(2):
            kafka.produce(name, [b"after"], partition=partition)
        at_the_end(kafka, group, name)
        assert repeated(app.requests) == {}
        assert (late_results(first), late_results(second)) == (0, 0)
        assert (first.stop(), second.stop()) == (0, 0)


@every_protocol
def test_a_request_that_ends_too_late_moves_nothing_and_is_repeated_by_the_next_owner(
    kafka: KafkaOperations, topic: TopicFactory, group: str, scene: Scene, protocol: str
) -> None:
    """REB-1: the first member commits nothing for what it has lost, and counts the late result."""
    name = filled(kafka, topic, [b"slow"])
    answers = Answers()
    with ScriptedApp(answers) as app:
        what = {
            **config(
                kafka.bootstrap_servers, group, [route(name, app.port)], **PROTOCOLS[protocol]
            ),
            "revoke_seconds": 0.5,
            "commit_interval_seconds": 0.1,
        }
        first = scene.sidecar(what)
        app.until(lambda seen: len(seen) == 2)
        second = scene.sidecar(what)
        second.until_said("assigned")
        app.until(lambda seen: len(repeated(seen)) >= 1)
        eventually(lambda: partitions_of(first) == partitions_of(second) == 1, "each has one")
        assert first.said("still executing")
        # eager: the first member has its other partition again, and repeats that one itself
        moved = 2 if protocol == "range" else 1
        app.until(lambda seen: len(repeated(seen)) == moved)
        answers.go[1].set()
        eventually(lambda: late_results(first) == moved, "the late results are counted")
        again = repeated(app.requests)
        for partition, committed in kafka.committed(group, name).items():
            if (partition, 0) in again:
                assert committed == 0
        answers.go[2].set()
        at_the_end(kafka, group, name)
        assert set(again.values()) == {2}
        assert len(app.requests) == 2 + moved
        assert (first.stop(), second.stop()) == (0, 0)


@pytest.mark.parametrize("protocol", ["cooperative-sticky", "consumer"])
def test_late_results_of_a_partition_that_left_and_came_back_count_for_nothing(
    kafka: KafkaOperations, topic: TopicFactory, group: str, scene: Scene, protocol: str
) -> None:
    """REB-2: the answers to its first requests come while it is being read anew."""
    name = filled(kafka, topic, [b"slow"] * 5)
    old, new = threading.Event(), threading.Event()
    with ScriptedApp(held_by(old)) as app:
        what = {
            **config(
                kafka.bootstrap_servers, group, [route(name, app.port)], **PROTOCOLS[protocol]
            ),
            "revoke_seconds": 0.3,
            "commit_interval_seconds": 0.1,
        }
        first = scene.sidecar(what)
        app.until(lambda seen: len(seen) == 10)
        app.behaviour = lambda _: (503, {"Retry-After": "60"})  # the guest gets nothing done
        guest = scene.sidecar(what)
        app.until(lambda seen: len(seen) >= 15)
        app.behaviour = held_by(new)
        assert guest.stop() == 0
        app.until(lambda seen: sum(each.attempt == 1 for each in seen) == 20)
        old.set()
        eventually(lambda: late_results(first) == 5, "five late results")
        eventually(
            lambda: sorted(kafka.committed(group, name).values()) == [0, 5],
            "the partition that stayed is committed, the one that came back is not",
        )
        new.set()
        at_the_end(kafka, group, name)
        assert first.stop() == 0


@every_protocol
def test_a_record_in_backoff_does_not_hold_up_the_rebalance_and_goes_to_the_next_owner(
    kafka: KafkaOperations, topic: TopicFactory, group: str, scene: Scene, protocol: str
) -> None:
    """REB-7, REB-8."""
    name = filled(kafka, topic, [b"good", b"bad", b"good"])

    def later(request: Request) -> Answer:
        return 204 if request.body == b"good" else (503, {"Retry-After": "60"})

    with ScriptedApp(later) as app:
        what = config(
            kafka.bootstrap_servers, group, [route(name, app.port)], **PROTOCOLS[protocol]
        )
        first = scene.sidecar(what)
        app.until(lambda seen: len(seen) == 6)
        eventually(lambda: first.route()["delayed"] == 2, "both wait")
        eventually(lambda: kafka.committed(group, name) == {0: 1, 1: 1}, "committed up to them")
        second = scene.sidecar(what)
        second.until_said("fetching begins")
        joined = time.monotonic()
        second.until_said("assigned")
        assert time.monotonic() - joined < 20  # the backoff is a minute
        app.until(lambda seen: len(repeated(seen)) >= 1, within=20)
        assert {offset for _, offset in repeated(app.requests)} == {1}, (
            "what is done is not repeated"
        )
        assert kafka.committed(group, name) == {0: 1, 1: 1}
        assert first.route()["counters"]["rebalances"] <= 2
        app.behaviour = lambda _: 204
        assert (first.stop(), second.stop()) == (0, 0)


@every_protocol
def test_a_hand_over_repeats_nothing_that_was_done(
    kafka: KafkaOperations, topic: TopicFactory, group: str, scene: Scene, protocol: str
) -> None:
    """The done-map goes along: of each partition only the record that hung comes again."""
    name = filled(kafka, topic, [b"%d" % number for number in range(150)])
    go_on = threading.Event()
    with ScriptedApp(held_by(go_on, b"1")) as app:
        what = {
            **config(
                kafka.bootstrap_servers,
                group,
                [route(name, app.port, timeout_seconds=1.5)],
                **PROTOCOLS[protocol],
            ),
            "revoke_seconds": 0.3,
            "drain_seconds": 2,
        }
        first = scene.sidecar(what)
        app.until(lambda seen: len(seen) >= 300)
        second = scene.sidecar(what)
        second.until_said("assigned")
        assert first.stop() == 0
        go_on.set()
        at_the_end(kafka, group, name)
        assert {offset for _, offset in repeated(app.requests)} <= {1}
        assert second.stop() == 0


@pytest.mark.parametrize(
    ("protocol", "rounds"), [("range", 2), ("cooperative-sticky", 5), ("consumer", 2)]
)
def test_frequent_commits_do_not_stall_while_members_come_and_go(
    kafka: KafkaOperations,
    topic: TopicFactory,
    group: str,
    scene: Scene,
    protocol: str,
    rounds: int,
) -> None:
    """CTL-3, REB-6: a commit every 15 ms while members come and go, two at a time."""
    name = topic(4)
    going = threading.Event()
    going.set()
    pace = threading.Event()
    produced = 0

    def produce() -> None:
        nonlocal produced
        while going.is_set():
            kafka.producer.produce(name, b"%d" % produced, partition=produced % 4)
            kafka.producer.poll(0)
            produced += 1
            pace.wait(0.005)

    with ScriptedApp() as app:
        properties = PROTOCOLS[protocol]
        what = {
            **config(kafka.bootstrap_servers, group, [route(name, app.port)], **properties),
            "commit_interval_seconds": 0.015,
        }
        first = scene.sidecar(what)
        first.until_said("assigned")
        load = threading.Thread(target=produce)
        load.start()
        try:
            for number in range(rounds):
                guests = [scene.sidecar(what) for _ in range(2)]
                for guest in guests:
                    guest.until_said("assigned")
                if number == 1:
                    guests.pop().kill()
                for guest in guests:
                    assert guest.stop() == 0
        finally:
            going.clear()
            load.join()
        stopped = time.monotonic()  # from here on a member that was killed may hold the last ones
        kafka.producer.flush(10)
        at_the_end(kafka, group, name)
        seen = list(app.requests)
        until = [each for each in seen if each.at < stopped]
        assert {int(each.body) for each in seen} == set(range(produced))
        assert longest_stall(until) < 5
        assert first.stop() == 0


def longest_stall(seen: list[Request]) -> float:
    """The longest time in which no partition got on."""
    times = sorted(each.at for each in seen)
    return max(after - before for before, after in pairwise(times))
