"""The processes of a scenario: sidecars, the recording application, the load."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml
from confluent_kafka import KafkaException

from tests.rig.operations import KafkaOperations
from tests.rig.ports import free_ports
from tests.rig.recording_app import RecordingApp
from tests.rig.waiting import PATIENCE_SECONDS, eventually

ADMIN_TOKEN = "open-sesame"
_START = "\nfrom sidecar.cli import main\nraise SystemExit(main())"


class Sidecar:
    """One sidecar process and its log."""

    def __init__(
        self,
        directory: Path,
        name: str,
        config: Mapping[str, Any],
        cpu: int | None = None,
        fault: str = "",
        prefix: Sequence[str] = (),
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.port = free_ports(1)[0]
        self.log = directory / f"{name}.log"
        self.file = file = directory / f"{name}.yaml"
        admin = {"port": self.port, "socket": None, **config.get("admin", {})}
        file.write_text(yaml.safe_dump({**config, "admin": admin}), encoding="utf-8")
        start = ["-c", fault + _START] if fault else ["-m", "sidecar"]
        command = [sys.executable, *start, "run", "-c", str(file)]
        if cpu is not None:
            command = ["taskset", "-c", str(cpu), *command]
        environment = {**os.environ, **(variables or {})}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*prefix, *command], stdout=log, stderr=log, env=environment
            )

    def status(self) -> dict[str, Any]:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/v1/status", timeout=5) as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    def change(self, method: str, path: str, body: object = None) -> Any:
        """What the admin API answers to a change; the configuration holds ADMIN_TOKEN."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}",
            None if body is None else json.dumps(body).encode(),
            {"Authorization": f"Bearer {ADMIN_TOKEN}", "Content-Type": "application/json"},
            method=method,
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def pause(self) -> None:
        """SIGSTOP: connections stay open, nothing is done."""
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def stop(self, within: float = PATIENCE_SECONDS) -> int:
        """SIGTERM; the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.ended(within)

    def ended(self, within: float = PATIENCE_SECONDS) -> int:
        """Wait until it ends; the exit code. One that does not end says what it logged last."""
        try:
            return self.process.wait(within)
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"{self.name} still runs after {within} s:\n{self.log.read_text()[-3000:]}"
            ) from None

    def entries(self) -> list[dict[str, Any]]:
        """What it logged so far; a line that is not JSON fails."""
        whole, _, _ = self.log.read_text(encoding="utf-8").rpartition("\n")
        return [json.loads(line) for line in whole.splitlines()]

    def said(self, text: str) -> list[str]:
        """The messages so far that hold the text."""
        return [each["message"] for each in self.entries() if text in each["message"]]

    def until_said(self, text: str, times: int = 1, within: float = PATIENCE_SECONDS) -> None:
        eventually(
            lambda: len(self.said(text)) >= times, f"{self.name} says {text!r}", within=within
        )

    def route(self) -> dict[str, Any]:
        """The status of its only route."""
        (only,) = self.status()["routes"]
        found: dict[str, Any] = only
        return found

    def resident_bytes(self) -> int:
        fields = Path(f"/proc/{self.process.pid}/statm").read_text(encoding="ascii").split()
        return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")

    def peak_mb(self) -> float:
        """The most memory that was resident so far."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text("ascii").splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) / 1024
        raise ProcessLookupError(self.process.pid)

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text(encoding="ascii").split()
        return (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")


class Scene:
    """Everything one scenario started; leaving it ends what still runs."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self._processes: list[subprocess.Popen[Any]] = []
        self._apps: list[RecordingApp] = []
        self._names = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for app in self._apps:
            app.stop()
        for process in self._processes:
            if process.poll() is None:
                process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()

    def sidecar(
        self,
        config: Mapping[str, Any],
        name: str = "",
        *,
        cpu: int | None = None,
        fault: str = "",
        prefix: Sequence[str] = (),
        variables: Mapping[str, str] | None = None,
    ) -> Sidecar:
        """Start one; cpu: the only core it may use; fault: Python to run in it before.

        prefix: of its command; variables: of its environment, beside ours.
        """
        self._names += 1
        name = name or f"sidecar-{self._names}"
        sidecar = Sidecar(self.directory, name, config, cpu, fault, prefix, variables)
        self._processes.append(sidecar.process)
        return sidecar

    def command(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Start a command of the sidecar."""
        process = subprocess.Popen([sys.executable, "-m", "sidecar", *arguments])
        self._processes.append(process)
        return process

    def app(self, journal: Path, hang_path: str = "") -> int:
        """Start a recording application; its port."""
        return self.recording_app(journal, hang_path=hang_path).port

    def recording_app(self, journal: Path, **more: Any) -> RecordingApp:
        """Start a recording application."""
        app = RecordingApp(journal, **more)
        self._apps.append(app)
        app.start()
        return app

    def load(self, bootstrap_servers: str, topic: str, **options: float) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tests.rig.load", "--topic", topic]
        command += ["--bootstrap-servers", bootstrap_servers]
        for option, value in options.items():
            command += [
                "--" + option.replace("_", "-"),
                f"{value:g}" if value % 1 else f"{value:.0f}",
            ]
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        self._processes.append(process)
        return process


def route(topic: str, port: int, **more: Any) -> dict[str, Any]:
    return {"topics": [topic], "target": f"http://127.0.0.1:{port}/events/{{topic}}", **more}


def config(
    bootstrap_servers: str, group: str, routes: list[dict[str, Any]], **kafka: Any
) -> dict[str, Any]:
    properties = {
        "bootstrap.servers": bootstrap_servers,
        "group.id": group,
        "reconnect.backoff.max.ms": 500,
        **{key.replace("_", "."): value for key, value in kafka.items()},
    }
    return {"kafka": properties, "routes": routes, "log": {"format": "json"}}


def at_the_end(
    kafka: KafkaOperations, group: str, topic: str, within: float = PATIENCE_SECONDS
) -> None:
    """Wait until the group has committed the end of every partition: lag 0."""

    def no_lag() -> bool:
        try:
            return kafka.committed(group, topic) == kafka.end_offsets(topic)
        except KafkaException:  # the coordinator is just coming back
            return False

    eventually(no_lag, f"{group} is at the end of {topic}", within=within)
