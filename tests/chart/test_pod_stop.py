"""The start and the end of a pod as the chart and `sidecar inject` render it: K8S-1 to K8S-4.

The kubelet is the rig's (ADR 0024), the sidecar the real process, the broker the embedded one, and
the app a container of this test's own, which knows what it was sent and when.
"""

from __future__ import annotations

import http.server
import json
import re
import threading
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final

import pytest
import yaml
from confluent_kafka import Producer

from sidecar.cli.inject import injected
from tests.chart.values import Values, changed
from tests.rig.helm import Manifest, render
from tests.rig.kubelet import What
from tests.rig.pods import ProcessPod, pod_and_config_maps
from tests.rig.ports import free_ports
from tests.rig.waiting import eventually
from tests.unit.test_inject_manifests import parts

WITHIN_SECONDS: Final = 30.0
RECORDS: Final = 20
EXECUTORS: Final = 4


class App(http.server.ThreadingHTTPServer):
    """A container that answers when it is told to.

    What comes after its SIGTERM, or is not answered by then, is the failure that is looked for.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", free_ports(1)[0]), Handler)
        self.full = threading.Event()  # every executor waits for an answer
        self.go_on = threading.Event()
        self.answered = self.taken = 0
        self.unanswered_at_sigterm: int | None = None
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._serving = threading.Thread(target=self.serve_forever, args=(0.02,))
        self._serving.start()

    def take(self) -> None:
        with self._lock:
            self.taken += 1
            if self.taken == EXECUTORS:
                self.full.set()
        self.go_on.wait(WITHIN_SECONDS)

    def done(self) -> None:
        with self._lock:
            self.answered += 1

    def end(self) -> None:
        """By itself, as a Job's does."""
        self.shutdown()
        self._serving.join()
        self.server_close()
        self._over.set()

    # --- as a container -----------------------------------------------------------------------

    @property
    def ended(self) -> bool:
        return self._over.is_set()

    def execute(self, command: Sequence[str], within: float) -> bool:
        raise AssertionError(f"the app has no {command}, within {within} or ever")

    def stop(self, grace_seconds: float) -> int:
        if not self.ended:
            if self.unanswered_at_sigterm is None and grace_seconds:
                self.unanswered_at_sigterm = self.taken - self.answered
            self.go_on.set()
            self.end()
        return 0

    def wait(self, within: float) -> int:
        assert self._over.wait(within)
        return 0


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: App

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.take()
        self.server.done()
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


class Stage:
    """A pod of the app and the sidecar, and its broker."""

    def __init__(self, pod: ProcessPod, app: App, port: int) -> None:
        self.pod = pod
        self.app = app
        self._port = port

    def fill(self) -> None:
        """More records than executors; returns when every executor waits for the app."""
        told = re.compile(r"embedded broker at (\S+): produce")
        (broker, *_) = eventually(lambda: told.findall(self.pod.said("sidecar")), "it has a broker")
        producer = Producer({"bootstrap.servers": broker, "log_level": 0})
        for number in range(RECORDS):
            producer.produce("orders", str(number).encode())
        assert producer.flush(WITHIN_SECONDS) == 0
        assert self.app.full.wait(WITHIN_SECONDS)

    def drains(self) -> bool:
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/v1/routes", timeout=10) as told:
            (route,) = json.load(told)
        return bool(route["state"] == "draining")

    def delete(self) -> None:
        """Returns once the drain has begun."""
        self.pod.delete()
        eventually(self.drains, "it drains")


def chart(app_port: int, port: int, changes: Values) -> Sequence[Manifest]:
    values = {
        "app/ports": [{"name": "http", "containerPort": app_port}],
        "sidecar/config/kafka/bootstrap.servers": "embedded",
        "sidecar/config/routes/0/target": f"http://127.0.0.1:{app_port}/",
        "sidecar/config/routes/0/executors": EXECUTORS,
        "sidecar/config/admin/port": port,
    }
    return render(changed({**values, **changes})).objects


SetUp = Callable[[Values], AbstractContextManager[Stage]]


@pytest.fixture
def stage(tmp_path: Path, with_helm: None) -> SetUp:
    @contextmanager
    def set_up(changes: Values) -> Iterator[Stage]:
        app, port = App(), free_ports(1)[0]
        objects = chart(app.server_port, port, changes)
        with ProcessPod(*pod_and_config_maps(objects), tmp_path, {"app": app}) as pod:
            yield Stage(pod, app, port)

    return set_up


both_kinds = pytest.mark.parametrize("native", [True, False], ids=["native", "classic"])


def test_a_pod_starts_and_is_ready_without_a_broker(stage: SetUp) -> None:
    """K8S-1, K8S-2: the app is started when the sidecar's startup probe says so."""
    with stage({"sidecar/config/kafka/bootstrap.servers": "127.0.0.1:1"}) as it:
        it.pod.start()
        assert it.pod.at("sidecar", What.STARTED) < it.pod.at("app", What.STARTED)
        assert it.pod.ready


@both_kinds
def test_the_app_lives_until_its_last_request_is_answered_and_gets_none_afterwards(
    stage: SetUp, native: bool
) -> None:
    """K8S-3, K8S-4. Both hooks begin at once; what had only been fetched goes back."""
    with stage({"sidecar/native": native}) as it:
        it.pod.start()
        it.fill()
        it.delete()
        eventually(lambda: it.pod.at("app", What.HOOK) < float("inf"), "the app's hook runs")
        assert it.pod.at("app", What.SIGTERM) == float("inf")
        it.app.go_on.set()
        assert it.pod.until_ended() == {"app": 0, "sidecar": 0}
        at = it.pod.at
        hooks_end = (at("app", What.HOOK_ENDED), at("sidecar", What.HOOK_ENDED))
        assert max(at("app", What.HOOK), at("sidecar", What.HOOK)) < min(hooks_end)
        assert at("app", What.HOOK_ENDED) < at("app", What.SIGTERM)
        if native:
            assert at("sidecar", What.SIGTERM) > at("app", What.ENDED)  # or never
        assert it.app.answered == it.app.taken == EXECUTORS
        assert it.app.unanswered_at_sigterm == 0
        assert it.pod.stop_seconds < 20 < it.pod.grace_seconds


@both_kinds
def test_a_request_that_outlasts_the_drain_is_cut_and_the_pod_ends_in_its_grace_period(
    stage: SetUp, native: bool
) -> None:
    """K8S-4: nothing is killed, and the exit code is 0."""
    changes = {
        "sidecar/native": native,
        "sidecar/config/drain_seconds": 2,
        "sidecar/config/routes/0/timeout_seconds": 1.9,
    }
    with stage(changes) as it:
        it.pod.start()
        it.fill()
        it.delete()
        assert it.pod.until_ended() == {"app": 0, "sidecar": 0}
        assert it.pod.stop_seconds < it.pod.grace_seconds == 12


JOB: Final = """\
apiVersion: batch/v1
kind: Job
metadata: {{name: import}}
spec:
  template:
    spec:
      restartPolicy: Never
      containers:
      - name: app
        image: shop/import:1.2
        ports: [{{containerPort: {port}}}]
"""


def test_a_job_completes_when_its_app_does_and_the_sidecar_ends_cleanly(tmp_path: Path) -> None:
    """K8S-4: the hook finds no app and ends the drain at once."""
    app, port = App(), free_ports(1)[0]
    config = {
        "kafka": {"bootstrap.servers": "embedded", "group.id": "import"},
        "routes": [
            {
                "topics": ["orders"],
                "target": f"http://127.0.0.1:{app.server_port}/",
                "executors": EXECUTORS,
            }
        ],
        "admin": {"port": port},
    }
    what = parts(config_map="import", port=port)
    manifests = injected(JOB.format(port=app.server_port), yaml.safe_dump(config), what)
    objects = list(yaml.safe_load_all(manifests))
    with ProcessPod(*pod_and_config_maps(objects, "Job"), tmp_path, {"app": app}) as pod:
        pod.start()
        it = Stage(pod, app, port)
        it.fill()
        app.go_on.set()
        eventually(lambda: app.answered > EXECUTORS, "it works")
        app.end()
        assert pod.complete() == {"app": 0, "sidecar": 0}
        assert pod.at("sidecar", What.HOOK) > pod.at("app", What.ENDED)
        assert pod.at("sidecar", What.HOOK_FAILED) == float("inf")
        assert pod.stop_seconds < 20 < pod.grace_seconds
