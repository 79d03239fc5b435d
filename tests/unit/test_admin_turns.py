"""Who asks the admin surface too often waits, on a clock that only these tests move."""

from __future__ import annotations

from typing import Any

import pytest

from sidecar.admin.app import AdminApp
from sidecar.admin.turns import BURST, EVERY_SECONDS, LONGEST_SECONDS, Turns


class Stage:
    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []
        self.statuses: list[int] = []
        self.passed = 0
        self.turns = Turns(self._app, lambda: self.now, self._sleep)

    async def _sleep(self, seconds: float) -> None:
        self.slept.append(round(seconds, 6))

    async def _app(self, *_: Any) -> None:
        self.passed += 1

    async def _send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.statuses.append(message["status"])

    async def _receive(self) -> Any:
        raise AssertionError("nothing is read")

    def ask(self, times: int, path: str = "/v1/status", port: int | None = 8090) -> None:
        scope = {"type": "http", "path": path, "server": ("here", port), "headers": []}
        for _ in range(times):
            coroutine = self.turns(scope, self._receive, self._send)
            with pytest.raises(StopIteration):
                coroutine.send(None)


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_a_burst_is_served_at_once_and_what_comes_behind_it_in_turn(stage: Stage) -> None:
    stage.ask(BURST + 3)
    assert stage.passed == BURST + 3
    assert stage.slept == [EVERY_SECONDS, 2 * EVERY_SECONDS]
    stage.now += 60.0
    stage.ask(BURST)
    assert len(stage.slept) == 2


def test_a_long_queue_is_told_to_come_again_and_takes_no_turn(stage: Stage) -> None:
    stage.ask(BURST + 1 + round(LONGEST_SECONDS / EVERY_SECONDS))
    before = stage.passed
    stage.ask(1000)
    assert stage.statuses == [429] * 1000
    stage.now += EVERY_SECONDS
    stage.ask(1)
    assert stage.passed == before + 1


def test_probes_and_the_socket_never_wait(stage: Stage) -> None:
    stage.ask(3 * BURST)
    before = len(stage.slept), len(stage.statuses)
    stage.ask(1000, "/livez")
    stage.ask(1000, port=None)
    assert (len(stage.slept), len(stage.statuses)) == before


def test_it_is_asked_first() -> None:
    """What is refused for its name takes a turn as well."""
    first = AdminApp(None, None, None, None).user_middleware[0]
    assert first.cls is Turns  # type: ignore[comparison-overlap]
