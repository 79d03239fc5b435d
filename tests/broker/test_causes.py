"""A stuck consumer tells why: each named cause is provoked and read by `sidecar status`.

Two real processes. The first has a route for every cause that one process can have; the second
joins two of its groups, so that one of its own routes gets no partition and one of the first's has
to give one up, and is then told to stop while a request of it is out.

Every name is provoked here. Of those that are told in several situations, the others are left to
tests/component/test_route_status: brokers out of reach, a dead-letter write that fails, a group
that assigns nothing yet, and where the record is that holds the watermark.
"""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
import tempfile
import threading
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from sidecar.status import CauseName
from tests.rig.operations import KafkaOperations
from tests.rig.ports import free_ports
from tests.rig.processes import Scene, config
from tests.rig.scripted_app import Answer, Behaviour, Request, ScriptedApp
from tests.rig.waiting import eventually

pytestmark = pytest.mark.kafka

HANGING_SECONDS: Final = 100  # no request is given up meanwhile, on a busy machine neither


class Told(NamedTuple):
    """What the two lines of a cause hold; {topic} is that of the route."""

    detail: str
    next_step: str


TOLD: Final[Mapping[CauseName, Told]] = {
    CauseName.WAITING_FOR_APP: Told("Connection refused", "start the app, or see that it listens"),
    CauseName.HELD: Told("Connection refused", "see why the app is away"),
    CauseName.PARKED_IN_A_ROW: Told(
        "2 records were parked or moved to a retry topic since the last delivery; the last failure:"
        " the application answered 422",
        "see why the app takes no record",
    ),
    CauseName.LEFT_GROUP: Told("the app was not there for 0.5 s", "bring the app back"),
    CauseName.PAUSED: Told("an operator paused the dispatch", "resume the route"),
    CauseName.HALTED: Told(
        "{topic}/0/0: the application answered 422", "mend the app or the record, then resume"
    ),
    CauseName.DRAINING: Told("1 records in flight are being finished", "wait"),
    CauseName.NO_EXECUTORS: Told(
        "the number of executors is 0: nothing is dispatched", "set it to what the app can take"
    ),
    CauseName.RATE_LIMITED: Told(
        "no more than 0.01 records start per second, 9 wait", "raise or remove the rate limit"
    ),
    CauseName.UNANSWERED: Told(
        "1 requests are out, the oldest for {topic}/0/0",
        "see what keeps the app from answering; a request is given up after 100 s",
    ),
    CauseName.EXECUTORS_BUSY: Told(
        "all 2 executors have a request out", "raise the number of executors if the app has room"
    ),
    CauseName.APP_OVERLOADED: Told(
        "of the recent answers were 429 or 503", "give the app more room"
    ),
    CauseName.RETRYING: Told(
        "the last failure: the application answered 500", "see why the app fails"
    ),
    CauseName.DEAD_LETTER_WRITES_FAILING: Told(
        "the dead-letter topic {topic}.dead does not exist", "create it, as sidecar check says"
    ),
    CauseName.KAFKA_TROUBLE: Told("{topic}", "mend what the error names"),
    CauseName.REBALANCING: Told(
        "1 records of partitions that are being given up are finished first",
        "wait; see why members come and go",
    ),
    CauseName.NO_PARTITIONS: Told(
        "the group has assigned no partition to this member",
        "nothing to do where there are more members than partitions",
    ),
    CauseName.WATERMARK_HELD: Told(
        "{topic}/0/0 is not settled; 4 offsets behind it are done",
        "`sidecar record drop {topic}/0/0` gives it up for good",
    ),
}

# Records that a route finds from the start, by its name.
RECORDS: Final = {
    "parked_in_a_row": 3,
    "halted": 1,
    "draining": 1,
    "rate_limited": 10,
    "unanswered": 1,
    "executors_busy": 200,
    "app_overloaded": 40,
    "retrying": 3,
    "no_partitions": 1,
    "watermark_held": 5,
}
AFTER_THE_APP_WENT: Final = ("held", "left_group")
NOT_A_TOPIC: Final = ("waiting_for_app", "kafka_trouble")  # the first fetches nothing


def script(over: threading.Event) -> Behaviour:
    """The path tells which route asks."""

    def behaviour(request: Request) -> Answer:
        match request.path.removeprefix("/"):
            case "unanswered" | "rebalancing" | "draining":
                over.wait(HANGING_SECONDS)
            case "watermark_held" if request.body == b"0":
                over.wait(HANGING_SECONDS)
            case "executors_busy":
                over.wait(2)
            case "app_overloaded":
                return 429
            case "retrying":
                return 500
            case "halted" | "parked_in_a_row":
                return 422
        return 204

    return behaviour


def status(which: str) -> dict[CauseName, Told]:
    """What `sidecar status` tells people of each cause that the route named after it has."""
    said = command("status", which)
    found = re.findall(r"^(\w+): (.+)\n    (\w+)(?:, for [^:]+)?: (.+)$", said, re.MULTILINE)
    return {
        CauseName(cause): Told(detail, step)
        for route, step, cause, detail in found
        if route == cause
    }


def command(*arguments: str) -> str:
    line = [sys.executable, "-m", "sidecar", *arguments]
    return subprocess.run(line, capture_output=True, check=True, text=True, timeout=60).stdout


class Routes:
    """Their settings; each has a topic and a group of its own."""

    def __init__(self, port: int) -> None:
        self._unique = uuid.uuid4().hex[:8]
        self._port = port

    def topic(self, name: str) -> str:
        return f"{name}.{self._unique}"

    def __call__(self, name: str, **more: Any) -> dict[str, Any]:
        return {
            "name": name,
            "topics": [self.topic(name)],
            "group_id": self.topic(name),
            "target": f"http://127.0.0.1:{self._port}/{name}",
            **more,
        }


def first(route: Routes, gone: int) -> list[dict[str, Any]]:
    """The routes of the first process; gone: the port of the application that goes away."""
    nowhere, away = (f"http://127.0.0.1:{port}/" for port in (*free_ports(1), gone))
    return [
        route("waiting_for_app", target=nowhere),
        route("held", target=away),
        route("left_group", target=away, leave_after_held_seconds=0.5),
        route(
            "parked_in_a_row",
            max_parked_in_a_row=2,
            dead_letter={"topic": f"{route.topic('parked_in_a_row')}.dead"},
        ),
        route("paused"),
        route("halted", on_exhausted="halt"),
        route("no_executors", executors=0),
        route("rate_limited", max_records_per_second=0.01),
        route("unanswered", timeout_seconds=HANGING_SECONDS),
        route("executors_busy", executors=2),
        route("app_overloaded"),
        route("retrying", retry={"max_backoff_seconds": 0.5}),
        route(
            "dead_letter_writes_failing",
            dead_letter={"topic": f"{route.topic('dead_letter_writes_failing')}.dead"},
        ),
        route("kafka_trouble"),
        route("rebalancing", timeout_seconds=HANGING_SECONDS),
        route("no_partitions"),  # it has the only one
        route("watermark_held", timeout_seconds=HANGING_SECONDS),
    ]


def second(route: Routes) -> list[dict[str, Any]]:
    return [
        route("no_partitions"),
        route("rebalancing"),
        route("draining", timeout_seconds=HANGING_SECONDS),
    ]


class Stage(NamedTuple):
    """told: of each cause by the route that is named after it."""

    route: Routes
    told: Mapping[CauseName, Told]


@pytest.fixture(scope="module")
def stage(kafka: KafkaOperations, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    over = threading.Event()
    with (
        tempfile.TemporaryDirectory(prefix="sidecar-") as directory,  # short, for the socket
        ScriptedApp(script(over)) as app,
        ScriptedApp() as gone,
        Scene(tmp_path_factory.mktemp("causes")) as scene,
    ):
        yield provoked(kafka, scene, app, gone, Path(directory) / "admin.sock")
        over.set()


def provoked(
    kafka: KafkaOperations, scene: Scene, app: ScriptedApp, gone: ScriptedApp, path: Path
) -> Stage:
    """All of it, and what was told."""
    route = Routes(app.port)
    for cause in CauseName:
        if cause.value not in NOT_A_TOPIC:
            kafka.create_topic(route.topic(cause.value), 2 if cause.value == "rebalancing" else 1)
    kafka.create_topic(f"{route.topic('parked_in_a_row')}.dead")
    for name, count in RECORDS.items():
        kafka.produce(route.topic(name), [b"%d" % number for number in range(count)])
    for partition in range(2):
        kafka.produce(route.topic("rebalancing"), [b"x"], partition=partition)
    what = {
        **config(
            kafka.bootstrap_servers,
            "none",
            first(route, gone.port),
            session_timeout_ms=10_000,
            heartbeat_interval_ms=300,
        ),
        "drain_seconds": HANGING_SECONDS + 1,
        "revoke_seconds": HANGING_SECONDS,
    }
    by_socket = f"--socket={path}"
    sidecar = scene.sidecar({**what, "admin": {"socket": str(path)}})
    app.until(lambda seen: [each.path for each in seen].count("/rebalancing") == 2)
    app.until(lambda seen: "/no_partitions" in {each.path for each in seen})

    def seen() -> set[str]:
        found = sidecar.status()["routes"]
        return {each["state"] for each in found if each["name"] in AFTER_THE_APP_WENT}

    eventually(lambda: seen() == {"running"}, "it has seen the app that goes away")
    gone.stop()
    for name in AFTER_THE_APP_WENT:
        kafka.produce(route.topic(name), [b"x"])
    command("pause", "paused", by_socket)

    other = scene.sidecar({**what, "routes": second(route)})
    by_url = f"--url=http://127.0.0.1:{other.port}"
    app.until(lambda seen: "/draining" in {each.path for each in seen})
    told = until_told({CauseName.NO_PARTITIONS}, by_url)
    other.process.terminate()
    told |= until_told({CauseName.DRAINING}, by_url)
    return Stage(route, told | until_told(set(CauseName) - told.keys(), by_socket))


def until_told(causes: set[CauseName], which: str) -> dict[CauseName, Told]:
    """The first reading with all of these; what is missing in the last one fails its own test."""
    told: dict[CauseName, Told] = {}

    def all_told() -> bool:
        told.clear()
        told.update(status(which))
        return causes <= told.keys()

    with contextlib.suppress(TimeoutError):
        eventually(all_told, "all are told", every=0.5)
    return {cause: each for cause, each in told.items() if cause in causes}


@pytest.mark.parametrize("cause", CauseName, ids=lambda cause: str(cause.value))
def test_status_tells_the_cause_what_it_is_about_and_what_to_do(
    stage: Stage, cause: CauseName
) -> None:
    assert cause in stage.told
    told, topic = stage.told[cause], stage.route.topic(cause.value)
    assert TOLD[cause].detail.format(topic=topic) in told.detail
    assert TOLD[cause].next_step.format(topic=topic) in told.next_step
