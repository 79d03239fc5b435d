"""When clients are made anew: what changed has to stay so for a while, and has to work."""

from __future__ import annotations

from pathlib import Path

import pytest

from sidecar.kafka.access_watch import AccessWatch
from sidecar.settings import Settings, load_settings


class Stage:
    """A watch over two files, and what the brokers think of them."""

    def __init__(self, directory: Path) -> None:
        self.ca, self.password = directory / "ca.pem", directory / "password"
        self.ca.write_text("ca")
        self.password.write_text("old\n")
        kafka = {
            "bootstrap.servers": "kafka:9093",
            "group.id": "g",
            "ssl.ca.location": str(self.ca),
            "sasl.password": {"file": str(self.password)},
        }
        routes = [{"topics": ["a"], "target": "http://127.0.0.1:1/"}]
        self.settings = load_settings(None, {}, {"kafka": kafka, "routes": routes})
        self.refusal: str | None = None
        self.tried: list[str] = []
        self.renewals = 0
        self.watch = AccessWatch(self.settings, self._renew, self._refused)

    def _renew(self) -> None:
        self.renewals += 1

    def _refused(self, settings: Settings) -> str | None:
        self.tried.append(settings.kafka_text("sasl.password"))
        return self.refusal

    def look(self, times: int = 1) -> int:
        """So many times; how often clients were made anew by now."""
        for _ in range(times):
            self.watch.look()
        return self.renewals


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def test_files_that_stay_the_same_are_not_even_tried(stage: Stage) -> None:
    stage.ca.write_text("ca")
    assert stage.look(3) == 0
    assert stage.tried == []


def test_a_change_is_taken_once_and_with_what_is_in_it(stage: Stage) -> None:
    stage.password.write_text("new\n")
    assert stage.look() == 0
    assert stage.look(3) == 1
    assert stage.tried == ["new"]


def test_half_a_rotation_is_waited_for(stage: Stage) -> None:
    stage.password.write_text("new\n")
    stage.look()
    stage.ca.write_text("another")
    assert stage.look() == 0
    assert stage.look() == 1


def test_what_the_brokers_refuse_is_told_and_tried_again(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    stage.refusal = "the login was refused"
    stage.password.write_text("not yet\n")
    assert stage.look(4) == 0
    (said,) = caplog.messages
    assert said.endswith("have changed, and do not work yet: the login was refused")
    stage.refusal = None
    assert stage.look(2) == 1


def test_what_is_taken_back_costs_nothing(stage: Stage) -> None:
    stage.refusal = "no"
    stage.password.write_text("wrong\n")
    stage.look(2)
    stage.password.write_text("old\n")
    stage.refusal = None
    assert stage.look(3) == 0


def test_a_directory_of_authorities_is_looked_into(tmp_path: Path) -> None:
    """And a secret is mounted by a link that is put elsewhere."""
    for generation in ("1", "2"):
        (tmp_path / generation).mkdir()
        (tmp_path / generation / "ca.pem").write_text(generation)
    (tmp_path / "data").symlink_to("1")
    kafka = {
        "bootstrap.servers": "kafka:9093",
        "group.id": "g",
        "ssl.ca.location": str(tmp_path / "data"),
    }
    tree = {"kafka": kafka, "routes": [{"topics": ["a"], "target": "http://127.0.0.1:1/"}]}
    renewed: list[bool] = []
    watch = AccessWatch(load_settings(None, {}, tree), lambda: renewed.append(True), lambda _: None)
    (tmp_path / "data").unlink()
    (tmp_path / "data").symlink_to("2")
    watch.look()
    watch.look()
    assert renewed == [True]
