"""The rig's kubelet keeps the order that the kubelet's source has (ADR 0024)."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from tests.rig.kubelet import LEAST_GRACE_SECONDS, Container, Pod, Spec, What


class Fake:
    """Ends when it is told to, or by itself; its hook lasts until the event is set."""

    def __init__(self) -> None:
        self.hook = threading.Event()
        self.over = threading.Event()
        self.grace: float | None = None

    @property
    def ended(self) -> bool:
        return self.over.is_set()

    def execute(self, command: Sequence[str], within: float) -> bool:
        return self.hook.wait(within) and command != ["false"]

    def stop(self, grace_seconds: float) -> int:
        if self.grace is None:
            self.grace = grace_seconds
        self.over.set()
        return 0

    def wait(self, within: float) -> int:
        assert self.over.wait(within)
        return 0


class FakePod(Pod):
    def __init__(self, spec: Spec) -> None:
        self.fakes: dict[str, Fake] = {}
        super().__init__(spec)

    def _started(self, spec: Spec) -> Container:
        return self.fakes.setdefault(spec["name"], Fake())

    def said(self, name: str) -> str:
        return name

    def close(self) -> None:
        pass


def container(name: str, command: str = "", **more: Any) -> dict[str, Any]:
    if command:
        more["lifecycle"] = {"preStop": {"exec": {"command": [command]}}}
    return {"name": name, **more}


def native(name: str, command: str = "") -> dict[str, Any]:
    return container(name, command, restartPolicy="Always")


def test_native_sidecars_go_last_and_the_first_of_them_at_the_very_end() -> None:
    """Their hooks begin with all others."""
    init = [native("first", "true"), native("second", "true")]
    with FakePod({"initContainers": init, "containers": [container("app", "true")]}) as pod:
        pod.start()
        pod.delete()
        pod.fakes["first"].hook.set()
        pod.fakes["second"].hook.set()
        pod.fakes["app"].hook.set()
        pod.until_ended()
        assert pod.at("app", What.ENDED) < pod.at("second", What.SIGTERM)
        assert pod.at("second", What.ENDED) < pod.at("first", What.SIGTERM)
        assert pod.at("first", What.HOOK) < pod.at("app", What.SIGTERM)


def test_without_native_sidecars_nobody_waits_for_another() -> None:
    with FakePod({"containers": [container("app", "true"), container("beside")]}) as pod:
        pod.start()
        pod.delete()
        assert pod.fakes["beside"].over.wait(10)
        assert not pod.fakes["app"].over.is_set()
        pod.fakes["app"].hook.set()
        pod.until_ended()


def test_a_hook_that_fails_holds_nothing_up_and_one_that_lasts_has_the_grace_period() -> None:
    """And the least there is remains for the container itself."""
    containers = [container("fails", "false"), container("lasts", "true")]
    with FakePod({"containers": containers, "terminationGracePeriodSeconds": 1}) as pod:
        pod.start()
        pod.fakes["fails"].hook.set()
        pod.delete()
        pod.until_ended()
        assert pod.at("fails", What.HOOK_FAILED) < pod.at("fails", What.SIGTERM)
        assert pod.fakes["lasts"].grace == LEAST_GRACE_SECONDS


def test_a_restart_of_one_runs_its_hook_and_leaves_the_others() -> None:
    with FakePod(
        {"initContainers": [native("sidecar")], "containers": [container("app", "x")]}
    ) as pod:
        pod.start()
        first = pod.fakes.pop("app")
        first.hook.set()
        pod.restart("app")
        assert first.ended
        assert not pod.fakes["app"].ended
        assert not pod.fakes["sidecar"].ended
        pod.fakes["app"].hook.set()


def test_a_job_ends_what_still_runs_once_its_containers_have_ended() -> None:
    with FakePod({"initContainers": [native("sidecar")], "containers": [container("app")]}) as pod:
        pod.start()
        pod.fakes["app"].over.set()
        assert pod.complete() == {"app": 0, "sidecar": 0}
        assert pod.at("sidecar", What.SIGTERM) > pod.at("app", What.ENDED)
