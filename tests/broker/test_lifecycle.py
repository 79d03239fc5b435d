"""Start and stop of the real sidecar, and a broker that goes away: what is kept, and how long."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from sidecar.runtime import WATCHDOG_SECONDS
from tests.conftest import TopicFactory
from tests.rig.kafka import KafkaCluster
from tests.rig.operations import KafkaOperations
from tests.rig.ports import free_ports
from tests.rig.processes import Scene, Sidecar, at_the_end, config, route
from tests.rig.scripted_app import Answer, Request, ScriptedApp, held_by
from tests.rig.waiting import PATIENCE_SECONDS, eventually

pytestmark = pytest.mark.kafka

QUICK = {"session_timeout_ms": 3000, "heartbeat_interval_ms": 300}
KEEPS: dict[str, Any] = {"guarantee": "at_least_once"}
LOSS_BUDGET = 20
SPENDS: dict[str, Any] = {"guarantee": "at_most_once", "loss_budget": LOSS_BUDGET}
both_guarantees = pytest.mark.parametrize(
    "guarantee", [KEEPS, SPENDS], ids=lambda each: str(each["guarantee"])
)


def for_a_while(seconds: float) -> None:
    """The time that a fault lasts."""
    threading.Event().wait(seconds)


def until_it_listens(sidecar: Sidecar) -> None:
    """Before Python runs the first line of it, SIGTERM is the kernel's affair."""
    eventually(lambda: _listens_to_sigterm(sidecar), "it listens", every=0.005)


def _listens_to_sigterm(sidecar: Sidecar) -> bool:
    status = Path(f"/proc/{sidecar.process.pid}/status").read_text(encoding="ascii")
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt"))
    return bool(int(caught.split()[1], 16) & (1 << (signal.SIGTERM - 1)))


def terminate(sidecar: Sidecar) -> None:
    sidecar.process.send_signal(signal.SIGTERM)


def stopped(sidecar: Sidecar) -> tuple[int, float]:
    """Signalled now; the exit code, and how long it took."""
    terminate(sidecar)
    return until_ended(sidecar, time.monotonic())


def until_ended(sidecar: Sidecar, since: float, within: float = 30) -> tuple[int, float]:
    """The exit code, and how long it took."""
    code = sidecar.ended(within)
    return code, time.monotonic() - since


# --- start --------------------------------------------------------------------------------------


@both_guarantees
def test_an_app_that_comes_later_gets_everything_and_no_attempt_is_spent(
    kafka: KafkaOperations,
    topic: TopicFactory,
    group: str,
    scene: Scene,
    guarantee: dict[str, Any],
) -> None:
    """LIFE-1: no port for two seconds, 503 for some more, then 204."""
    name, dead = topic(1), topic(1, name="dead")
    kafka.produce(name, [b"%d" % number for number in range(20)])
    app = ScriptedApp(lambda _: 503)
    what = route(
        name,
        app.port,
        dead_letter={"topic": dead},
        retry={"max_attempts": 1, "max_backoff_seconds": 0.5},
        **guarantee,
    )
    sidecar = scene.sidecar(config(kafka.bootstrap_servers, group, [what]))
    eventually(lambda: sidecar.said("admin API"), "it is up without the app")
    for_a_while(2)
    state = sidecar.route()
    assert state["state"] == "waiting"
    assert "refused" in str(state["availability"]["last_error"])
    with app:
        app.until(lambda seen: len(seen) > 20)
        for_a_while(1)
        refused = len(app.requests)
        delivered: Counter[bytes] = Counter()

        def accept(request: Request) -> Answer:
            delivered[request.body] += 1
            return 204

        app.behaviour = accept
        at_the_end(kafka, group, name)
        eventually(lambda: len(delivered) == 20, "all are delivered")
        assert set(delivered.values()) == {1}
        assert refused >= 20
        counters = sidecar.route()["counters"]
        assert {counters[each] for each in ("parked", "dropped", "lost")} == {0}
        assert sum(kafka.end_offsets(dead).values()) == 0
        assert sidecar.stop() == 0


def test_a_stop_while_it_starts_is_a_clean_one(
    kafka: KafkaOperations, topic: TopicFactory, group: str, scene: Scene
) -> None:
    name = topic(1)
    with ScriptedApp() as app:
        what = config(kafka.bootstrap_servers, group, [route(name, app.port)])
        for delay in (0.0, 0.15, 0.3, 0.45, 0.6):
            sidecar = scene.sidecar(what)
            until_it_listens(sidecar)
            for_a_while(delay)
            terminate(sidecar)
            assert sidecar.ended(5) == 0
            assert "Traceback" not in sidecar.log.read_text()


# --- stop ---------------------------------------------------------------------------------------


def test_an_idle_sidecar_stops_at_once(
    kafka: KafkaOperations, topic: TopicFactory, group: str, scene: Scene
) -> None:
    """LIFE-2, run 2."""
    name = topic(3)
    kafka.produce(name, [b"x"])
    with ScriptedApp() as app:
        sidecar = scene.sidecar(config(kafka.bootstrap_servers, group, [route(name, app.port)]))
        at_the_end(kafka, group, name)
        code, seconds = stopped(sidecar)
        assert code == 0
        assert seconds < 2


@both_guarantees
def test_a_stop_lets_the_running_request_end_and_starts_no_other(
    kafka: KafkaOperations,
    topic: TopicFactory,
    group: str,
    scene: Scene,
    guarantee: dict[str, Any],
) -> None:
    """LIFE-2, run 1."""
    name = topic(1)
    kafka.produce(name, [b"slow", b"waits"])
    go_on = threading.Event()
    with ScriptedApp(held_by(go_on)) as app:
        what = config(
            kafka.bootstrap_servers, group, [route(name, app.port, executors=1, **guarantee)]
        )
        sidecar = scene.sidecar({**what, "drain_seconds": 22})
        app.until(lambda seen: len(seen) == 1)
        eventually(lambda: sidecar.route()["in_flight"] == 2, "the second waits")
        terminate(sidecar)
        sidecar.until_said("draining")
        kafka.produce(name, [b"after"])
        for_a_while(1)
        assert sidecar.process.poll() is None
        released = time.monotonic()
        go_on.set()
        code, seconds = until_ended(sidecar, released)
        assert (code, len(sidecar.said("stopped"))) == (0, 1)
        assert seconds < 2
        kept = guarantee is KEEPS
        started = [each.body for each in app.requests]
        # at_most_once finishes what it has committed, which the second record may have been
        assert started == [b"slow"] if kept else started in ([b"slow"], [b"slow", b"waits"])
        assert kafka.committed(group, name) == {0: len(started)}
        again = scene.sidecar(what)
        at_the_end(kafka, group, name)
        app.until(lambda seen: len(seen) == 3)
        assert [each.body for each in app.requests] == [b"slow", b"waits", b"after"]
        assert again.stop() == 0


def test_what_the_drain_cuts_off_counts_as_nothing_and_comes_first_after_a_restart(
    kafka: KafkaOperations, topic: TopicFactory, group: str, scene: Scene
) -> None:
    """LIFE-2 run 3, LIFE-3, REB-7: one attempt would be enough to park it, and it is not parked."""
    name, dead = topic(1), topic(1, name="dead")
    kafka.produce(name, [b"%d" % number for number in range(10)])
    hang = threading.Event()
    with ScriptedApp(held_by(hang)) as app:
        what = route(
            name, app.port, executors=1, timeout_seconds=2.9,
            dead_letter={"topic": dead}, retry={"max_attempts": 1},
        )  # fmt: skip
        settings = {**config(kafka.bootstrap_servers, group, [what]), "drain_seconds": 3}
        first = scene.sidecar(settings)
        app.until(lambda seen: len(seen) == 1)
        code, seconds = stopped(first)
        assert code == 0
        assert 2 < seconds < 5
        assert kafka.committed(group, name) == {0: 0}
        assert kafka.end_offsets(dead) == {0: 0}
        hang.set()
        second = scene.sidecar(settings)
        at_the_end(kafka, group, name)
        assert app.requests[1].body == b"0"
        assert app.requests[1].attempt == 1
        assert second.stop() == 0


def test_a_second_signal_cuts_at_once_and_leaves_the_rest_uncommitted(
    kafka: KafkaOperations, topic: TopicFactory, group: str, scene: Scene
) -> None:
    name = topic(1)
    kafka.produce(name, [b"x"] * 5)
    with ScriptedApp(held_by(threading.Event())) as app:
        sidecar = scene.sidecar(config(kafka.bootstrap_servers, group, [route(name, app.port)]))
        app.until(lambda seen: len(seen) == 5)
        terminate(sidecar)
        sidecar.until_said("draining")
        code, seconds = stopped(sidecar)
        assert code == 0
        assert seconds < 2.5
        assert kafka.committed(group, name) == {0: 0}
        assert sidecar.said("cutting what is not finished")


def test_a_second_signal_names_what_at_most_once_has_lost(
    kafka: KafkaOperations, topic: TopicFactory, group: str, scene: Scene
) -> None:
    name = topic(1)
    kafka.produce(name, [b"x"] * 5)
    with ScriptedApp(held_by(threading.Event())) as app:
        sidecar = scene.sidecar(
            config(kafka.bootstrap_servers, group, [route(name, app.port, **SPENDS)])
        )
        app.until(lambda seen: len(seen) == 5)
        terminate(sidecar)
        sidecar.until_said("draining")
        code, seconds = stopped(sidecar)
        assert code == 1
        assert seconds < 2.5
        (line,) = sidecar.said("records lost")
        assert all(f"{name}/0/{offset}" in line for offset in range(5))
        assert kafka.committed(group, name) == {0: 5}


def test_any_moment_is_fit_for_a_stop(
    kafka: KafkaOperations, topic: TopicFactory, group: str, scene: Scene
) -> None:
    """LIFE-5: two members start and stop again and again; LIFECYCLE_CYCLES for a longer run."""
    cycles = int(os.environ.get("LIFECYCLE_CYCLES", "20"))
    moments = random.Random(7)
    name = topic(4)
    kafka.produce(name, [b"x"] * 4000)

    def slowly(_: Request) -> Answer:
        for_a_while(0.01)
        return 204

    with ScriptedApp(slowly) as app:
        patient = route(name, app.port, timeout_seconds=5)
        what = config(kafka.bootstrap_servers, group, [patient], **QUICK)
        what["drain_seconds"] = 10
        within = 10 + WATCHDOG_SECONDS + 2  # what is promised; one that is still importing is slow
        running: list[Sidecar] = []
        for number in range(cycles):
            running.append(scene.sidecar(what))
            if len(running) < 2:
                continue
            oldest = running.pop(0)
            until_it_listens(oldest)
            for_a_while(moments.uniform(0, 1.5))
            terminate(oldest)
            if number % 3 == 0:
                for_a_while(moments.uniform(0, 0.2))
                terminate(oldest)
            clean(oldest, within)
        for each in running:
            until_it_listens(each)
            terminate(each)
            clean(each, within)


def clean(sidecar: Sidecar, within: float) -> None:
    assert sidecar.ended(within) == 0, sidecar.log.read_text()[-3000:]
    assert "Traceback" not in sidecar.log.read_text()


# --- faults of the client, injected -------------------------------------------------------------

FAULT = "from sidecar.kafka.source import KafkaSource\n"


def test_the_death_of_the_fetch_thread_ends_the_process(scene: Scene) -> None:
    fault = FAULT + "KafkaSource.poll = lambda *_: 1 / 0"
    with ScriptedApp() as app:
        sidecar = scene.sidecar(config("127.0.0.1:1", "g", [route("t", app.port)]), fault=fault)
        assert sidecar.ended(10) == 1
        assert sidecar.said("the fetch thread ended: division by zero")
        assert sidecar.said("ended by: division by zero")


@pytest.mark.parametrize(
    ("library", "code", "extra", "says"),
    [("CDLL", 0, 1, "did not leave the group in time"), ("PyDLL", 1, 4, "most recent call first")],
    ids=["lets others run", "holds the interpreter's lock"],
)
def test_a_client_that_hangs_in_its_close_does_not_hold_the_exit(
    scene: Scene, library: str, code: int, extra: float, says: str
) -> None:
    fault = FAULT + f"import ctypes\nKafkaSource.close = lambda _: ctypes.{library}(None).sleep(60)"
    with ScriptedApp() as app:
        what = config("127.0.0.1:1", "g", [route("t", app.port, timeout_seconds=1)])
        sidecar = scene.sidecar({**what, "drain_seconds": 2}, fault=fault)
        sidecar.until_said("fetching begins")
        found, seconds = stopped(sidecar)
        assert found == code
        assert seconds < 2 + extra
        assert says in sidecar.log.read_text()


SLOW_REDRIVE = """
import asyncio, logging
from sidecar.kafka.letter_desk import LetterDesk

async def close(_):
    await asyncio.sleep(1.5)
    logging.getLogger("sidecar").info("its transaction is over")

LetterDesk.close = close
"""


def test_the_transaction_of_a_redrive_has_the_time_of_the_drain_though_no_app_was_there(
    scene: Scene,
) -> None:
    """One that is left open holds up whoever reads its topic, until the brokers give it up."""
    what = config("127.0.0.1:1", "g", [route("t", free_ports(1)[0])])
    sidecar = scene.sidecar(what, fault=SLOW_REDRIVE)
    sidecar.until_said("admin API")
    code, seconds = stopped(sidecar)
    assert code == 0
    assert 1.5 < seconds < 20
    assert sidecar.said("its transaction is over")


# --- the broker goes away -----------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["kill", "pause"])
@both_guarantees
def test_a_stop_without_a_broker_ends_in_time_and_says_what_is_left(
    breakable_kafka: KafkaCluster,
    topic: TopicFactory,
    group: str,
    scene: Scene,
    fault: str,
    guarantee: dict[str, Any],
) -> None:
    name = topic(2, on=breakable_kafka)
    breakable_kafka.produce(name, [b"x"] * 5)
    go_on = threading.Event()
    with ScriptedApp(held_by(go_on)) as app:
        what = config(
            breakable_kafka.bootstrap_servers,
            group,
            [route(name, app.port, timeout_seconds=3, **guarantee)],
        )
        sidecar = scene.sidecar({**what, "drain_seconds": 4})
        app.until(lambda seen: len(seen) == 5)
        getattr(breakable_kafka.node(1), fault)()
        go_on.set()  # now there is something to commit
        eventually(lambda: sidecar.route()["executing"] == 0, "all are answered")
        code, seconds = stopped(sidecar)
        assert code == 0
        assert seconds < 5
        assert "Traceback" not in sidecar.log.read_text()
        if guarantee is KEEPS:
            assert sidecar.said("did not leave the group in time") or sidecar.said("last commit")


@pytest.mark.parametrize("fault", ["kill", "pause"])
def test_it_goes_on_by_itself_after_an_outage_of_the_broker(
    breakable_kafka: KafkaCluster, topic: TopicFactory, group: str, scene: Scene, fault: str
) -> None:
    """Twice the session; at_least_once loses nothing, at_most_once repeats nothing either."""
    kept, spent = topic(2, on=breakable_kafka), topic(2, on=breakable_kafka)
    delivered: Counter[tuple[str, bytes]] = Counter()

    def slowly(request: Request) -> Answer:
        for_a_while(0.02)
        delivered[request.path, request.body] += 1
        return 204

    with ScriptedApp(slowly) as app:
        routes = [
            route(kept, app.port, group_id=f"{group}-kept", executors=2, **KEEPS),
            route(spent, app.port, group_id=f"{group}-spent", executors=2, **SPENDS),
        ]
        sidecar = scene.sidecar(config(breakable_kafka.bootstrap_servers, group, routes, **QUICK))
        for name in (kept, spent):
            for number in range(300):
                breakable_kafka.produce(name, [b"%d" % number], partition=number % 2)
        app.until(lambda seen: len(seen) > 100)
        node = breakable_kafka.node(1)
        getattr(node, fault)()
        for_a_while(6)
        breakable_kafka.heal()
        for name in (kept, spent):
            breakable_kafka.produce(name, [b"after"])
        at_the_end(breakable_kafka, f"{group}-kept", kept)
        at_the_end(breakable_kafka, f"{group}-spent", spent)
        eventually(lambda: sidecar.status()["in_flight"] == 0, "nothing is executing any more")
        by_topic = {
            name: [count for (path, _), count in delivered.items() if path.endswith(name)]
            for name in (kept, spent)
        }
        assert len(by_topic[kept]) == 301
        assert set(by_topic[spent]) == {1}
        # Whose commit was not answered while the partitions left is counted, and not sent if it
        # was committed after all.
        states = {each["name"]: each["counters"] for each in sidecar.status()["routes"]}
        assert states[spent]["lost"] <= LOSS_BUDGET
        assert 301 - states[spent]["lost"] <= len(by_topic[spent]) <= 301
        assert len(sidecar.entries()) < 80
        assert sidecar.process.poll() is None
        assert sidecar.stop() == 0


def test_a_member_that_is_fenced_by_its_namesake_ends_non_zero(
    kafka: KafkaOperations, topic: TopicFactory, group: str, scene: Scene
) -> None:
    """BRK-6: two sidecars with one group.instance.id."""
    name = topic(1)
    with ScriptedApp() as app:
        what = config(
            kafka.bootstrap_servers,
            group,
            [route(name, app.port)],
            group_instance_id="twin",
            **QUICK,
        )
        first = scene.sidecar(what)
        first.until_said("assigned")
        second = scene.sidecar(what)
        assert first.ended(PATIENCE_SECONDS) == 1
        errors = [each for each in first.entries() if each["level"] == "error"]
        assert errors[-1]["message"].startswith("ended by: ")
        assert "group.instance.id" in errors[-1]["message"]
        assert not any("traceback" in each for each in errors)
        kafka.produce(name, [b"x"])
        at_the_end(kafka, group, name)
        assert second.stop() == 0
