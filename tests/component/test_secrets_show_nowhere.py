"""Recognisable secrets in every place that takes one, and everything the process says searched.

One sidecar with a broker inside it: tracing on, librdkafka and the sidecar at debug, an application
that answers what it was sent and fails, and a client that asks for everything, with the token,
without one and with a wrong one.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import pytest
import yaml
from confluent_kafka import Producer

from sidecar.core.kafka_properties import properties
from sidecar.core.kafka_rules import check_kafka_properties, is_secret
from sidecar.errors import ConfigError
from sidecar.settings import load_settings
from tests.rig.ports import free_ports
from tests.rig.waiting import eventually

WITHIN_SECONDS: Final = 30.0
ROOT: Final = Path(__file__).parents[2]
MANIFEST: Final = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: a}
spec:
  selector: {matchLabels: {a: b}}
  template:
    metadata: {labels: {a: b}}
    spec: {containers: [{name: a, image: a}]}
"""


def secret_properties() -> list[str]:
    """Every property of a consumer that holds a secret, by the name that is to be written."""
    return [
        name
        for name, known in properties().items()
        if known.consumer and is_secret(name) and not _refused(name)
    ]


def _refused(name: str) -> bool:
    given = {"bootstrap.servers": "a", "group.id": "g", name: "x"}
    return any(problem.path == name for problem in check_kafka_properties(given))


class Planted:
    """The secrets, by place, and where one is found again."""

    def __init__(self) -> None:
        self.by_place: dict[str, str] = {}

    def plant(self, place: str) -> str:
        text = f"hush-{len(self.by_place)}-{re.sub('[^a-z]', '-', place.lower())}"
        self.by_place[place] = text
        return text

    def key(self, place: str) -> str:
        """A signing secret."""
        raw = self.plant(place).ljust(32, ".").encode()
        self.by_place[f"{place} in base64"] = base64.b64encode(raw).decode()
        return f"whsec_{self.by_place[f'{place} in base64']}"

    def found_in(self, said: str) -> set[str]:
        """The places of the secrets that stand in it, as they are or in a usual disguise."""
        return {
            place
            for place, text in self.by_place.items()
            for each in (
                text,
                quote(text, safe=""),
                base64.b64encode(text.encode()).decode().rstrip("=")[:-1],
                text.encode().hex(),
            )
            if each in said
        }


class App(ThreadingHTTPServer):
    """Answers what it was sent, in its reason phrase and its body: it has gone wrong. Or collects.

    The collector of spans is asked in the same way.
    """

    daemon_threads = True

    def __init__(self, status: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status = status
        self.received: list[str] = []


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: App

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        told = f"{dict(self.headers)}".replace("\n", " ")
        self.server.received.append(told + body.decode("latin-1"))
        self.send_response_only(self.server.status, told)
        self.send_header("Content-Length", str(len(told)))
        self.end_headers()
        self.wfile.write(told.encode("latin-1"))

    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def serving(status: int) -> Iterator[App]:
    with App(status) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


class Stage:
    """The process, its configuration, and the secrets."""

    def __init__(self, directory: Path, app: App, collector: App) -> None:
        self.directory = directory
        self.planted = Planted()
        self.port = free_ports(1)[0]
        self.app = app
        self.token = self.planted.plant("admin.token")
        self.file = directory / "sidecar.yaml"
        self.file.write_text(yaml.safe_dump(self._config()), encoding="utf-8")
        plant = self.planted.plant
        self.environment = {
            **os.environ,
            "SIDECAR_ADMIN__TOKEN": self.token,
            "SIDECAR_ROUTES__0__AUTH__SIGNATURE": self.planted.key("auth.signature"),
            "BY_VARIABLE": self.by_variable,
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{collector.server_port}",
            "OTEL_EXPORTER_OTLP_HEADERS": f"authorization={plant('OTEL headers')}",
            "OTEL_BSP_SCHEDULE_DELAY": "100",
            # Nobody is there: whoever asks by it gets nowhere.
            "ALL_PROXY": f"http://user:{plant('a proxy')}@127.0.0.1:9",
        }
        self.log = (directory / "log").open("w+", encoding="utf-8", errors="surrogateescape")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "sidecar", "run", "-c", str(self.file)],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
        )

    def _config(self) -> dict[str, Any]:
        plant = self.planted.plant
        kafka: dict[str, Any] = {"bootstrap.servers": "embedded", "group.id": "g", "debug": "all"}
        self.by_variable = plant("sasl.username by a variable")
        kafka["sasl.username"] = {"env": "BY_VARIABLE"}
        for name in secret_properties():
            kafka[name] = plant(name)
        by_file = self.directory / "by-file"
        by_file.write_text(plant("sasl.password by a file"), encoding="utf-8")
        kafka["sasl.password"] = {"file": str(by_file)}
        bearer = self.directory / "bearer"
        bearer.write_text(plant("auth.bearer"), encoding="utf-8")
        route = {
            "topics": ["orders"],
            "target": f"http://127.0.0.1:{self.app.server_port}/events/{{topic}}",
            "auth": {"bearer": {"file": str(bearer)}},
            "headers": {"X-Api-Key": plant("headers")},
            "on_exhausted": "drop",
            "executors": 2,
            "retry": {"max_attempts": 2, "initial_backoff_seconds": 0.01},
        }
        return {
            "kafka": kafka,
            "routes": [route],
            "admin": {"port": self.port, "socket": str(self.directory / "admin.sock")},
            "log": {"level": "debug", "format": "json"},
            "tracing": {"enabled": True},
        }

    def said(self) -> str:
        self.log.flush()
        return (self.directory / "log").read_text(encoding="utf-8", errors="surrogateescape")

    def ask(self, method: str, path: str, body: object, headers: Mapping[str, str]) -> str:
        """The whole answer as text; of a stream, its beginning."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WITHIN_SECONDS)
        with contextlib.closing(connection):
            sent = None if body is None else json.dumps(body)
            connection.request(method, path, sent, headers)
            answer = connection.getresponse()
            streams = "event-stream" in answer.headers.get("content-type", "")
            said = answer.readline() + answer.readline() if streams else answer.read()
            return f"{answer.status} {answer.reason} {answer.headers} {said.decode('utf-8')}"

    def command(self, *arguments: str, config: Path | None = None) -> str:
        """All that a command says; no traceback."""
        ran = subprocess.run(
            [sys.executable, "-m", "sidecar", *arguments, "-c", str(config or self.file)],
            env=self.environment,
            capture_output=True,
            check=False,
            text=True,
            timeout=WITHIN_SECONDS,
        )
        assert "Traceback" not in ran.stderr
        return ran.stdout + ran.stderr


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with serving(500) as app, serving(401) as collector:
        stage = Stage(tmp_path_factory.mktemp("secrets"), app, collector)
        try:
            yield stage
        finally:
            stage.process.kill()
            stage.process.communicate()
            stage.log.close()


def test_what_the_process_logs_and_answers_holds_no_secret(stage: Stage) -> None:
    planted, process = stage.planted, stage.process
    assert process.stdout is not None
    line = process.stdout.readline()
    (broker,) = re.findall(r"127\.0\.0\.1:\d+", line) or [stage.said()]
    producer = Producer({"bootstrap.servers": broker, "log_level": 0})
    payload = {name: planted.plant(f"a record's {name}") for name in ("key", "value", "header")}
    for _ in range(3):
        headers: list[tuple[str, str | bytes | None]] = [("Authorization", payload["header"])]
        producer.produce("orders", payload["value"], payload["key"], headers=headers)
    assert producer.flush(WITHIN_SECONDS) == 0
    eventually(lambda: len(stage.app.received) >= 6, "each is tried twice")
    sent = "".join(stage.app.received)
    # That the application was told them, as it must be, is the proof that they are in use.
    assert {"auth.bearer", "headers", "a record's value"} <= planted.found_in(sent)
    answers = "".join(everything(stage))
    assert re.findall(r"^500 ", answers, re.MULTILINE) == []
    assert planted.found_in(answers) == set()
    arguments = Path(f"/proc/{process.pid}/cmdline").read_text(encoding="utf-8")
    assert planted.found_in(arguments) == set()
    process.terminate()
    assert process.wait(WITHIN_SECONDS) == 0
    said = stage.said()
    assert '"level": "debug"' in said
    assert "sasl.password" in said, "librdkafka tells its configuration at debug"
    assert "Traceback" not in said
    assert planted.found_in(said) == set()
    assert planted.found_in(process.stdout.read()) == set()


def everything(stage: Stage) -> Iterator[str]:
    """Every address that the API describes, the page and its parts; by everybody; and nonsense."""
    document = json.loads((ROOT / "openapi" / "admin.json").read_text(encoding="utf-8"))
    own = {"Authorization": f"Bearer {stage.token}"}
    wrong = {"Authorization": f"Basic {base64.b64encode(stage.token.encode()).decode()}"}
    for path, operations in document["paths"].items():
        where = path.replace("{name}", "orders").replace("{topic}", "orders")
        where = re.sub(r"\{[a-z]+\}", "0", where).replace("/0/0/0", "/0/0/park")
        for method in operations:
            if path in ("/v1/drain", "/v1/drained"):
                continue
            json_type = {"Content-Type": "application/json"}
            for headers in ({}, wrong, own):
                if "dead-letters" in path and headers is own:
                    continue  # there is no dead-letter topic
                body = {"count": stage.token} if method in ("put", "post") else None
                yield stage.ask(method.upper(), where, body, {**headers, **json_type})
    for path in ("/", "/docs", "/openapi.json", "/nowhere", "/v1/in-flight?count=x"):
        yield stage.ask("GET", path, None, own)
    with socket.create_connection(("127.0.0.1", stage.port), timeout=WITHIN_SECONDS) as raw:
        raw.sendall(
            f"GET / HTTP/1.1\r\nAuthorization: Bearer {stage.token}\n\r\x00\r\n\r\n".encode()
        )
        yield raw.recv(65_536).decode("latin-1")


@pytest.mark.parametrize(
    "arguments",
    [
        ["check"],
        ["status", "--json"],
        ["inject", "--diff", "-f", "MANIFEST"],
        ["inject", "-f", "MANIFEST"],
    ],
    ids=" ".join,
)
def test_what_commands_print_holds_no_secret(stage: Stage, arguments: list[str]) -> None:
    """inject refuses a configuration with secrets in it: it would copy them into a ConfigMap."""
    manifest = stage.directory / "manifest.yaml"
    manifest.write_text(MANIFEST, encoding="utf-8")
    said = stage.command(*(str(manifest) if each == "MANIFEST" else each for each in arguments))
    assert said
    assert stage.planted.found_in(said) == set()
    if arguments[0] == "inject":
        assert "kafka.ssl.key.password: stands there in plain text" in said


# What somebody writes in the wrong place, or in a wrong way.
MISTAKES: Final = {
    "auth is the token itself": "routes: [{topics: [a], target: 'http://a/', auth: SECRET}]",
    "headers is the value itself": "routes: [{topics: [a], target: 'http://a/', headers: SECRET}]",
    "a header's value is a list": "routes: [{topics: [a], headers: {X-Key: [SECRET]}}]",
    "admin is the token itself": "admin: SECRET",
    "kafka is the password itself": "kafka: SECRET",
    "a secret file in place of its name": "admin: {token_file: SECRET}",
    "a token with blanks": "admin: {token: 'a SECRET'}",
    "a password that begins with a star": "kafka: {sasl.password: *SECRET }",
    "a password that begins with !": "kafka: {sasl.password: !SECRET }",
    "a password that begins with @": "kafka: {sasl.password: @SECRET }",
    "a password that begins with %": "kafka: {sasl.password: %SECRET }",
    "a password in curly braces": "kafka: {sasl.password: {SECRET: }}",
    "a password as a key": "kafka: {? [SECRET] : 1}",
    "quotes that do not end": "kafka: {sasl.password: 'SECRET",
    "a reference that is none": "kafka: {sasl.password: {env: [SECRET]}}",
    "a user in the target": "routes: [{topics: [a], target: 'http://user:SECRET@a/'}]",
    "a user in the health URL": "app: {health: 'http://user:SECRET@a/'}",
    "a signature that is none": "routes: [{topics: [a], auth: {signature: SECRET}}]",
    "a bearer with blanks": "routes: [{topics: [a], auth: {bearer: 'a SECRET'}}]",
    "tls is the key itself": "routes: [{topics: [a], tls: SECRET}]",
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_no_mistake_in_a_configuration_is_told_with_a_secret(mistake: str, tmp_path: Path) -> None:
    file = tmp_path / "sidecar.yaml"
    file.write_text(MISTAKES[mistake].replace("SECRET", "hush-secret"), encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_settings(file, {})
    assert "hush-secret" not in str(caught.value)
