"""The commands that ask and change a running sidecar, against a real admin server."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from sidecar.cli import main as command
from sidecar.cli.client import DEFAULT_SOCKET
from sidecar.cli.seeing import show
from sidecar.settings import AdminSettings
from sidecar.status import RecordAction
from tests.fakes.admin import TOKEN, Served, run, serving


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("SIDECAR_"):
            monkeypatch.delenv(name)


Called = tuple[int, str, str]


def call(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> Called:
    try:
        code = command(arguments)
    except SystemExit as stop:
        assert isinstance(stop.code, int)
        code = stop.code
    return (code, *capsys.readouterr())


@pytest.fixture
def ask(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Called]:
    """Run a command against a server that has one route; by its Unix socket."""
    path = tmp_path / "admin.sock"

    def asked(
        *arguments: str, look: Callable[[Served], object] = lambda _: None, by: str = "socket"
    ) -> Called:
        async def main_() -> Called:
            async with serving(path) as served:
                way = [f"--socket={path}"] if by == "socket" else [f"--url={served.address.url}"]
                called = await asyncio.to_thread(call, [*arguments, *way], capsys)
                look(served)
                return called

        return run(main_())

    return asked


Ask = Callable[..., Called]


def test_status_shows_what_to_do_first(ask: Ask) -> None:
    code, out, err = ask("status")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "sidecar 1.2.3, up 1 min 00 s: alive, started, ready"
    assert lines[2].split()[:3] == ["ROUTE", "STATE", "APP"]
    assert lines[3].split()[:4] == ["orders", "running", "up", "10/1000"]
    assert lines[5] == "orders: raise the number"
    assert lines[6].startswith("    executors_busy, for ")
    assert lines[6].endswith(": all are busy")


@pytest.mark.parametrize("name", ["status", "routes", "in-flight", "partitions"])
def test_json_is_that_of_the_api(name: str, ask: Ask) -> None:
    code, out, _ = ask(name, "--json")
    assert code == 0
    assert json.loads(out)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("routes", "orders  running"),
        ("in-flight", "orders  orders/0/2"),
        ("partitions", "orders  orders/0"),
    ],
)
def test_tables(name: str, shown: str, ask: Ask) -> None:
    code, out, _ = ask(name)
    assert code == 0
    assert shown in out


def test_what_is_shown_moves_no_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    """Causes and refusals quote brokers, applications and records."""
    show("", lambda _: ["a\x1b[2J", "b\u202e"], as_json=False)
    assert capsys.readouterr().out == "a\\x1b[2J\nb\\u202e\n"


def test_in_flight_shows_payloads_on_request(ask: Ask) -> None:
    code, out, _ = ask("in-flight", "--payload", "--limit=1")
    assert code == 0
    (record,) = json.loads(out)
    assert record["payload"]["key"] == "azE="


@pytest.mark.parametrize("command", ["status", "routes", "top --times=2 --interval=0.01"])
def test_whether_it_flows_and_how_long_it_takes_is_seen_at_once(ask: Ask, command: str) -> None:
    code, out, _ = ask(*command.split())
    assert code == 0
    head, row = (re.findall(rf"^{each} .*", out, re.MULTILINE)[0] for each in ("ROUTE", "orders"))
    shown = dict(zip(re.split("  +", head), re.split("  +", row), strict=True))
    assert (shown["PER SECOND"], shown["P95"]) == ("9.5", "200 ms")


def test_top_goes_on(ask: Ask) -> None:
    code, out, _ = ask("top", "--times=2", "--interval=0.01")
    assert code == 0
    assert out.count("PER SECOND") == out.count("up 1 min 00 s: alive") == 2
    code, out, _ = ask("top", "--times=2", "--interval=0.01", "--json")
    assert [json.loads(line)["version"] for line in out.splitlines()] == ["1.2.3"] * 2


@pytest.mark.parametrize(
    ("arguments", "asked", "shown"),
    [
        ("executors 20", ("executors", "orders", 20), "configured 16, wanted 20"),
        ("executors orders 0", ("executors", "orders", 0), "wanted 0"),
        ("threshold 5", ("threshold", "orders", 5), "wanted 5, effective 10"),
        ("rate-limit 2.5", ("rate", "orders", 2.5), "wanted 2.5"),
        ("rate-limit orders none", ("rate", "orders", None), "wanted -"),
        ("pause", ("pause", "orders"), "state paused"),
        ("resume orders", ("resume", "orders"), "state running"),
        ("breaker-reset", ("reset", "orders"), "state up"),
        ("drain", ("drain",), "drained no"),
        ("record park orders/0/17", (RecordAction.PARK, "orders", 0, 17), "was executing"),
        ("record drop orders/0/17 --route orders", (RecordAction.DROP, "orders", 0, 17), "drop"),
    ],
)
def test_changes(arguments: str, asked: tuple[object, ...], shown: str, ask: Ask) -> None:
    def look(served: Served) -> None:
        assert served.control.asked == [asked]

    code, out, err = ask(*arguments.split(), look=look)
    assert (code, err) == (0, "")
    assert shown in out


@pytest.mark.parametrize("name", ["executors", "threshold", "rate-limit", "log-level"])
def test_without_a_value_nothing_is_changed(name: str, ask: Ask) -> None:
    def look(served: Served) -> None:
        assert served.control.asked == []

    code, out, _ = ask(name, look=look)
    assert code == 0
    assert out


def test_drain_waits_and_tells_if_it_was_not_done(ask: Ask) -> None:
    assert ask("drain", "--wait=50ms")[0] == 1


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        ("executors -1", 1, "refused (422)"),
        ("executors 1e9", 2, "'1e9' is no whole number"),
        ("executors orders x", 2, "no whole number"),
        ("rate-limit orders x", 2, "no number, nor none"),
        ("executors many", 2, "'many' is neither a value nor a route; the routes are orders"),
        ("executors a b c", 2, "takes a route and a value"),
        ("executors order 5", 1, "did you mean orders?"),
        ("rate-limit 0", 1, "refused (422)"),
        ("record park orders/0", 2, "TOPIC/PARTITION/OFFSET"),
        ("record park others/0/1", 1, "not assigned"),
        ("record park orders/0/404", 1, "refused (404): not in flight"),
        ("record park orders/0/409", 1, "refused (409): its partition is leaving"),
        ("record eat orders/0/17", 2, "eat"),
        ("drain --wait=soon", 2, "such as 20s"),
        ("top --interval=0", 2, "above 0"),
        ("status --url=http://127.0.0.1:1", 2, "not both"),
    ],
)
def test_mistakes_are_one_line(arguments: str, code: int, told: str, ask: Ask) -> None:
    got, out, err = ask(*arguments.split())
    assert (got, out) == (code, "")
    assert told in err
    assert err.count("\n") == 1


def test_by_tcp_a_change_needs_the_token(
    ask: Ask, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert ask("status", by="url")[0] == 0
    code, _, err = ask("pause", by="url")
    assert code == 1
    assert "401" in err
    monkeypatch.setenv("SIDECAR_ADMIN__TOKEN", TOKEN)
    assert ask("pause", by="url")[0] == 0
    file = tmp_path / "token"
    file.write_text("wrong\n", encoding="utf-8")
    assert ask("pause", f"--token-file={file}", by="url")[0] == 1
    code, _, err = ask("pause", f"--token-file={tmp_path}/none", by="url")
    assert code == 2
    assert f"--token-file: {tmp_path}/none: No such file" in err


def test_who_cannot_be_reached(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for way in (f"--socket={tmp_path}/none", "--url=http://127.0.0.1:1", "--url=127.0.0.1:1"):
        code, out, err = call(["status", way], capsys)
        assert (code, out) == (1, "")
        assert "see that a sidecar runs there" in err
    for wrong in ("ftp://x", "http://[::1", "http://a..b:80", "http://h:x"):
        code, out, err = call(["status", f"--url={wrong}"], capsys)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert "is no http://host:port" in err


@pytest.mark.parametrize(("token", "code"), [(f"{TOKEN}\n", 0), ("€", 2), ("a\nb", 2), (" ", 2)])
def test_a_token_of_the_environment_is_one_or_is_refused(
    token: str, code: int, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SIDECAR_ADMIN__TOKEN", token)
    got, _, err = ask("pause", by="url")
    assert got == code
    assert not code or "SIDECAR_ADMIN__TOKEN: holds no token" in err


def test_the_socket_of_the_environment_is_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "s"
    monkeypatch.setenv("SIDECAR_ADMIN__SOCKET", str(path))

    async def main_() -> Called:
        async with serving(path):
            return await asyncio.to_thread(call, ["routes"], capsys)

    assert run(main_())[0] == 0


@pytest.mark.parametrize("by", ["socket", "port"])
def test_the_configuration_tells_where_it_is_and_the_token(
    by: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, file = tmp_path / "s", tmp_path / "c.yaml"

    async def main_() -> tuple[Called, Called]:
        async with serving(path) as served:
            where = f"socket: {path}" if by == "socket" else f"port: {served.address.port}"
            file.write_text(
                "kafka: {bootstrap.servers: k:9092, group.id: g}\n"
                "routes: [{topics: [orders], target: 'http://127.0.0.1:8080/'}]\n"
                f"admin: {{token: {TOKEN}, {where}}}\n",
                encoding="utf-8",
            )
            shown = await asyncio.to_thread(call, ["status", "-c", str(file)], capsys)
            return shown, await asyncio.to_thread(call, ["pause", "-c", str(file)], capsys)

    shown, paused = run(main_())
    assert (shown[0], shown[1].split()[0], shown[2]) == (0, "sidecar", "")
    assert paused == (0, "state paused\n", "")


def test_a_free_port_is_not_told_by_the_configuration(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(
        "kafka: {bootstrap.servers: k:9092, group.id: g}\n"
        "routes: [{topics: [orders], target: 'http://127.0.0.1:8080/'}]\n"
        "admin: {port: 0, socket: null}\n",
        encoding="utf-8",
    )
    code, out, err = call(["status", "-c", str(file)], capsys)
    assert (code, out) == (2, "")
    assert "admin.port: takes a free one: name it by --url" in err


def test_the_default_socket_is_that_of_the_settings() -> None:
    assert Path(DEFAULT_SOCKET) == AdminSettings().socket


@pytest.mark.parametrize("asked", ["status", "routes", "executors 3"])
def test_what_is_no_sidecar_is_told_in_one_line(
    asked: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another service of the pod listens there, and answers with JSON of its own."""

    class Other(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = b'{"ok": true}'
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Other) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            url = f"http://127.0.0.1:{server.server_port}"
            code, _, err = call([*asked.split(), f"--url={url}"], capsys)
        finally:
            server.shutdown()
            thread.join()
    assert (code, err.count("\n")) == (1, 1)
    assert "is not a sidecar" in err


def test_a_socket_that_cannot_be_looked_for_is_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its directory may be closed to the user; what is refused here is the name."""
    monkeypatch.setenv("SIDECAR_ADMIN__SOCKET", "/tmp/" + "x" * 300)
    monkeypatch.setenv("SIDECAR_ADMIN__PORT", "1")
    code, out, told = call(["status"], capsys)
    assert (code, out) == (1, "")
    assert told.startswith("sidecar: http://127.0.0.1:1: Connection refused")
