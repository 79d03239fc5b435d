"""sidecar check without a broker: choices, memory, the app, the embedded broker."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from sidecar.cli import main
from sidecar.cli.check import check_app, check_choices, check_memory
from sidecar.core.findings import Finding, Grade
from sidecar.settings import Settings, load_settings


def settings(*routes: dict[str, Any], **top: Any) -> Settings:
    target = "http://127.0.0.1:1/"
    tree = {
        "kafka": {"bootstrap.servers": "embedded", "group.id": "g"},
        "routes": [{"topics": ["a"], "target": target, **each} for each in routes or ({},)],
        **top,
    }
    return load_settings(None, {}, tree)


def warnings(tree: Settings) -> list[str]:
    return [each.text for each in check_choices(tree) if each.grade is Grade.WARN]


@pytest.mark.parametrize(
    ("route", "said"),
    [
        ({}, "a record the app never takes is retried for ever"),
        ({"on_exhausted": "drop"}, "records the app does not take are dropped"),
        ({"on_exhausted": "halt", "executors": 0}, "executors is 0: nothing is dispatched"),
        ({"on_exhausted": "halt", "threshold": 4}, "only 4 of 16 executors can ever be busy"),
    ],
)
def test_choices_that_bite_later_are_told(route: dict[str, Any], said: str) -> None:
    (text,) = warnings(settings(route))
    assert text.startswith(said)


def test_a_sound_configuration_has_no_warning() -> None:
    assert warnings(settings({"dead_letter": {"topic": "dlq"}})) == []


def test_an_admin_surface_without_token_and_socket_is_told() -> None:
    (text,) = warnings(settings({"on_exhausted": "halt"}, admin={"socket": None}))
    assert text.startswith("neither token nor socket")


def test_memory_adds_up_over_routes_and_is_held_against_the_limit() -> None:
    tree = settings({}, {"topics": ["b"], "threshold_bytes": 2**20})
    need = 75 + (16 + 8 + 1) + (1 + 8 + 1)
    assert check_memory(tree, None).text.startswith(f"about {need} MiB")
    assert check_memory(tree, need * 2**20).grade is Grade.OK
    assert check_memory(tree, need * 2**20 - 1).grade is Grade.WARN


@contextmanager
def app(status: int) -> Iterator[str]:
    """The URL of an app that answers everything with this status."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def said_of(url: str, health: str | None = None) -> Finding:
    (finding,) = asyncio.run(check_app(settings({"target": url}, app={"health": health})))
    return finding


def test_an_app_that_can_be_reached_is_well() -> None:
    with app(500) as url:
        assert said_of(url).grade is Grade.OK


def test_an_apps_health_is_asked_for() -> None:
    with app(204) as url:
        assert said_of(url, f"{url}/up").grade is Grade.OK
    with app(500) as url:
        sick = said_of(url, f"{url}/up")
    assert sick.grade is Grade.FAIL
    assert "500" in sick.text


def test_two_routes_to_one_target_are_one_finding() -> None:
    assert len(asyncio.run(check_app(settings({}, {"topics": ["b"]})))) == 1


def test_a_missing_app_is_told_with_the_way_out_and_exit_code_1(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    arguments = [
        "--bootstrap-servers=embedded", "--group=g", "--topic=a",
        f"--target=http://127.0.0.1:{port}/",
    ]  # fmt: skip
    assert main(["check", *arguments]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "ok    configuration: valid: 1 route"
    assert "ok    kafka: the embedded broker is started with the sidecar" in lines
    assert lines[-1].startswith(f"fail  app: http://127.0.0.1:{port}/: ")
    assert lines[-1].endswith("; start the app, or correct target and app.health")


def test_a_finding_is_one_line() -> None:
    assert str(Finding(Grade.WARN, "x", "a\n  b")) == "warn  x: a b"


@pytest.mark.parametrize("command", [["check"], ["dead-letters", "count"]])
def test_what_only_the_client_can_refuse_is_one_line_and_exit_code_2(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "sidecar.yaml"
    file.write_text(
        "kafka: {bootstrap.servers: 127.0.0.1:1, group.id: g, security.protocol: SSL,"
        f" ssl.ca.location: {file}}}\n"
        "routes: [{topics: [orders], target: 'http://127.0.0.1:8080/',"
        " dead_letter: {topic: dead}}]\n",
        encoding="utf-8",
    )
    assert main([*command, "-c", str(file)]) == 2
    told = capsys.readouterr().err
    assert told.startswith("sidecar: kafka: ")
    assert "ssl.ca.location" in told
    assert told.count("\n") == 1
