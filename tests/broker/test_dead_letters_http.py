"""Dead letters over HTTP, from a running sidecar on a real broker, while it goes on delivering."""

from __future__ import annotations

import threading
import time
from typing import Any
from urllib.error import HTTPError

import pytest

from tests.conftest import TopicFactory
from tests.rig.operations import KafkaOperations
from tests.rig.processes import ADMIN_TOKEN, Scene, Sidecar, at_the_end, config, route
from tests.rig.scripted_app import Request, ScriptedApp
from tests.rig.waiting import eventually

pytestmark = pytest.mark.kafka


class Desk:
    """The dead letters of a sidecar's only route."""

    def __init__(self, sidecar: Sidecar, route: str) -> None:
        self._sidecar = sidecar
        self._path = f"/v1/routes/{route}/dead-letters"

    def get(self, what: str = "") -> Any:
        return self._sidecar.change("GET", self._path + what)

    def redrive(self, **order: Any) -> Any:
        return self._sidecar.change("POST", f"{self._path}/redrive", order)

    def stop(self) -> Any:
        return self._sidecar.change("DELETE", f"{self._path}/redrive")

    def ended(self) -> Any:
        """What the redrive came to, once it has ended."""
        return eventually(
            lambda: (found := self.get("/redrive"))["ended_at"] and found, "the redrive ends"
        )


def test_letters_are_seen_and_redriven_while_the_sidecar_runs(
    kafka: KafkaOperations, topic: TopicFactory, group: str, scene: Scene
) -> None:
    """Each once, as the record it was; one redrive at a time, and the sidecar's end ends it."""
    name, dead = topic(1), topic(2)
    mended = threading.Event()

    def rejects(request: Request) -> int:
        return 204 if mended.is_set() or request.body.startswith(b"good") else 422

    kafka.produce(name, [b"good"] + [b"bad %d" % number for number in range(12)])
    with ScriptedApp(rejects) as app:
        what = config(
            kafka.bootstrap_servers,
            group,
            [route(name, app.port, name="r", dead_letter={"topic": dead})],
        )
        sidecar = scene.sidecar({**what, "admin": {"token": ADMIN_TOKEN}})
        at_the_end(kafka, group, name)
        desk = Desk(sidecar, "r")

        assert desk.get("/count") == {
            "by": "reason",
            "letters": 12,
            "groups": [{"value": "status_rejected", "letters": 12}],
        }
        letters = desk.get("?limit=3&payload=true")
        assert [each["origin"]["topic"] for each in letters] == [name] * 3
        first = letters[0]
        one = desk.get(f"/{first['partition']}/{first['offset']}")
        assert {**one, "payload": first["payload"]} == first
        assert desk.get("?reason=timeout") == []

        assert desk.redrive(dry_run=True)["state"] in ("running", "finished")
        planned = desk.ended()
        assert (planned["state"], planned["letters"]) == ("finished", 12)
        assert len(desk.get("?limit=1000")) == 12

        mended.set()
        before = len(app.requests)
        desk.redrive(limit=2)
        assert (desk.ended()["state"], desk.get("/redrive")["letters"]) == ("finished", 2)
        app.until(lambda seen: len(seen) == before + 2)
        again = [each.headers["Idempotency-Key"] for each in app.requests[before:]]
        assert set(again) <= {each.headers["Idempotency-Key"] for each in app.requests[:before]}
        assert desk.get("/count")["letters"] == 10
        assert desk.get("/count?redriven=true")["letters"] == 12

        desk.redrive(rate=0.5)  # the second letter is due in two seconds
        with pytest.raises(HTTPError, match="409"):
            desk.redrive()
        assert desk.stop()["state"] == "stopping"
        assert desk.ended()["state"] == "stopped"
        with pytest.raises(HTTPError, match="409"):
            desk.stop()

        desk.redrive(rate=0.01)  # it would last minutes
        eventually(lambda: desk.get("/redrive")["letters"] == 1, "the first letter is sent")
        began = time.monotonic()
        assert sidecar.stop() == 0
        assert time.monotonic() - began < 10
        assert sidecar.said("redrive of r: stopped")
