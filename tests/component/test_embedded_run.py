"""sidecar run with bootstrap.servers: embedded, as somebody without Kafka tries it, and traced."""

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
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

WITHIN_SECONDS: Final = 30.0
TRACE_ID: Final = "4bf92f3577b34da6a3ce929d0e0e4736"
Received = tuple[str, bytes, str | None]


class App(http.server.ThreadingHTTPServer):
    """The application; or the collector of spans, which is asked in the same way."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.received: queue.Queue[Received] = queue.Queue()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: App

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.received.put((self.path, body, self.headers["traceparent"]))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def serving() -> Iterator[App]:
    with App() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


app = pytest.fixture(serving, name="app")
collector = pytest.fixture(serving, name="collector")


@pytest.fixture(params=["classic", "consumer"])
def running(
    request: pytest.FixtureRequest, app: App, collector: App, monkeypatch: pytest.MonkeyPatch
) -> Iterator[subprocess.Popen[str]]:
    monkeypatch.setenv("SIDECAR_KAFKA__GROUP_PROTOCOL", request.param)
    monkeypatch.setenv("SIDECAR_ADMIN__PORT", "0")
    monkeypatch.setenv("SIDECAR_TRACING__ENABLED", "true")
    address = f"http://127.0.0.1:{collector.server_port}"
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
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


def test_what_any_client_produces_is_delivered_and_traced(
    running: subprocess.Popen[str], app: App, collector: App
) -> None:
    """The spans that wait when the stop begins are sent as well."""
    assert running.stdout is not None
    line = running.stdout.readline()
    found = re.match(r"embedded broker at (127\.0\.0\.1:\d+): produce to it", line)
    assert found, running.communicate(timeout=WITHIN_SECONDS)
    producer = Producer({"bootstrap.servers": found[1], "log_level": 0})
    producer.produce(
        "orders", b"one", headers=[("traceparent", f"00-{TRACE_ID}-00f067aa0ba902b7-01")]
    )
    assert producer.flush(WITHIN_SECONDS) == 0
    path, body, traceparent = app.received.get(timeout=WITHIN_SECONDS)
    assert (path, body) == ("/events/orders", b"one")
    running.terminate()
    _, log = running.communicate(timeout=WITHIN_SECONDS)
    assert running.returncode == 0
    assert f"embedded broker at {found[1]}" in log
    assert '"level": "error"' not in log
    path, body, _ = collector.received.get(timeout=WITHIN_SECONDS)
    assert path == "/v1/traces"
    (told,) = ExportTraceServiceRequest.FromString(body).resource_spans
    (span,) = told.scope_spans[0].spans
    assert (span.name, span.trace_id.hex()) == ("process orders", TRACE_ID)
    assert traceparent == f"00-{TRACE_ID}-{span.span_id.hex()}-01"
