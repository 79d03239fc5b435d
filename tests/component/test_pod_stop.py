"""The end of a pod as the kubelet has it (ADR 0021), on the real process: K8S-3.

Both hooks begin at once; the app gets its SIGTERM when its own hook has ended, the sidecar when the
app is gone and its hook has ended. The broker is the embedded one.
"""

from __future__ import annotations

import http.server
import json
import os
import re
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Producer

from tests.rig.ports import free_ports
from tests.rig.waiting import eventually

WITHIN_SECONDS: Final = 30.0
RECORDS: Final = 20
EXECUTORS: Final = 4


class App(http.server.ThreadingHTTPServer):
    """Answers when it is told to; what it is sent after its SIGTERM is the failure looked for."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.full = threading.Event()  # every executor waits for an answer
        self.go_on = threading.Event()
        self.answered = 0
        self.waiting = 0
        self.gone = False
        self.late = 0
        self._lock = threading.Lock()

    def take(self) -> None:
        with self._lock:
            self.late += self.gone
            self.waiting += 1
            if self.waiting == EXECUTORS:
                self.full.set()
        assert self.go_on.wait(WITHIN_SECONDS)

    def done(self) -> None:
        with self._lock:
            self.answered += 1


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: App

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.take()
        self.send_response(204)
        self.end_headers()
        self.server.done()

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


@pytest.fixture
def port() -> int:
    return free_ports(1)[0]


@pytest.fixture
def sidecar(app: App, port: int, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    environment = {
        **os.environ,
        "SIDECAR_ADMIN__PORT": str(port),
        "SIDECAR_ADMIN__SOCKET": str(tmp_path / "admin.sock"),
    }
    arguments = [
        *("run", "--bootstrap-servers=embedded", "--group=g", "--topic=orders"),
        *(f"--target=http://127.0.0.1:{app.server_port}/", f"--executors={EXECUTORS}"),
    ]
    process = subprocess.Popen(
        [sys.executable, "-m", "sidecar", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    yield process
    process.kill()
    process.communicate(timeout=WITHIN_SECONDS)


def own_hook(socket: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sidecar", "drain", "--wait", "25s", "--socket", str(socket)]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=WITHIN_SECONDS
    )


def apps_hook(port: int, app: App) -> bool:
    address = f"http://127.0.0.1:{port}/v1/drained?wait_seconds=25"
    with urllib.request.urlopen(address, timeout=WITHIN_SECONDS) as answer:
        drained: bool = json.load(answer)["drained"]
    app.gone = True  # its SIGTERM
    return drained


def route_of(port: int) -> dict[str, Any]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/routes", timeout=10) as answer:
        (route,) = json.load(answer)
    found: dict[str, Any] = route
    return found


def test_the_app_lives_until_its_last_request_is_answered_and_gets_none_afterwards(
    app: App, port: int, sidecar: subprocess.Popen[str], tmp_path: Path
) -> None:
    assert sidecar.stdout is not None
    found = re.match(r"embedded broker at (\S+): produce", sidecar.stdout.readline())
    assert found
    producer = Producer({"bootstrap.servers": found[1], "log_level": 0})
    for number in range(RECORDS):
        producer.produce("orders", str(number).encode())
    assert producer.flush(WITHIN_SECONDS) == 0
    assert app.full.wait(WITHIN_SECONDS)
    with ThreadPoolExecutor() as kubelet:
        apps = kubelet.submit(apps_hook, port, app)
        own = kubelet.submit(own_hook, tmp_path / "admin.sock")
        eventually(lambda: route_of(port)["state"] == "draining", "the drain")
        assert not apps.done()
        app.go_on.set()
        assert apps.result(WITHIN_SECONDS)
        assert own.result(WITHIN_SECONDS).returncode == 0, own.result().stderr
    sidecar.send_signal(signal.SIGTERM)  # it has ended by itself, most of the time
    assert sidecar.wait(WITHIN_SECONDS) == 0
    # What had been sent was answered; what was only fetched went back to the broker.
    assert app.answered == app.waiting == EXECUTORS
    assert app.late == 0
