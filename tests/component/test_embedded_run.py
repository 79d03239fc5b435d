"""sidecar run with bootstrap.servers: embedded, as somebody without Kafka tries it."""

from __future__ import annotations

import http.server
import queue
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Final

import pytest
from confluent_kafka import Producer

WITHIN_SECONDS: Final = 30.0
Received = tuple[str, bytes]


class App(http.server.ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.received: queue.Queue[Received] = queue.Queue()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: App

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.received.put((self.path, body))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def app() -> Iterator[App]:
    with App() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture(params=["classic", "consumer"])
def running(
    request: pytest.FixtureRequest, app: App, monkeypatch: pytest.MonkeyPatch
) -> Iterator[subprocess.Popen[str]]:
    monkeypatch.setenv("SIDECAR_KAFKA__GROUP_PROTOCOL", request.param)
    monkeypatch.setenv("SIDECAR_ADMIN__PORT", "0")
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "sidecar",
            "run",
            "--bootstrap-servers=embedded",
            "--group=mine",
            "--topic=orders",
            f"--target=http://127.0.0.1:{app.server_port}/events/{{topic}}",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    yield process
    process.kill()
    process.communicate(timeout=WITHIN_SECONDS)


def test_what_any_client_produces_is_delivered(running: subprocess.Popen[str], app: App) -> None:
    assert running.stdout is not None
    line = running.stdout.readline()
    found = re.match(r"embedded broker at (127\.0\.0\.1:\d+): produce to it", line)
    assert found, running.communicate(timeout=WITHIN_SECONDS)
    producer = Producer({"bootstrap.servers": found[1], "log_level": 0})
    producer.produce("orders", b"one")
    assert producer.flush(WITHIN_SECONDS) == 0
    assert app.received.get(timeout=WITHIN_SECONDS) == ("/events/orders", b"one")
    running.terminate()
    _, log = running.communicate(timeout=WITHIN_SECONDS)
    assert running.returncode == 0
    assert f"embedded broker at {found[1]}" in log
    assert '"level": "error"' not in log
