"""The image as a kubelet runs it: read-only, without capabilities, as nobody in particular.

Building takes minutes on a bare machine: these run by `make image-test`, and only then.
"""

from __future__ import annotations

import json
import os
import re
import signal
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import metadata
from pathlib import Path
from queue import Queue
from typing import Final

import pytest
from confluent_kafka import Producer

import sidecar
from tests.image.conftest import SAID, TAG
from tests.rig.images import Engine, build
from tests.rig.ports import free_ports

pytestmark = [
    pytest.mark.skipif(not os.environ.get("IMAGE_TEST"), reason="make image-test"),
    pytest.mark.timeout(1800),
]
WITHIN_SECONDS: Final = 30.0
MOST_MEBIBYTES: Final = 120


def test_it_tells_its_version(containers: Engine) -> None:
    done = containers.ended(TAG, "--version")
    assert (done.returncode, done.stdout) == (0, f"sidecar {sidecar.__version__}\n"), done.stderr


def test_a_wrong_configuration_is_one_line_and_exit_code_2(
    containers: Engine, tmp_path: Path
) -> None:
    (tmp_path / "sidecar.yaml").write_text("kafka: {}\nrouts: []\n", encoding="utf-8")
    options = ("-v", f"{tmp_path}:/etc/sidecar:ro")
    tmp_path.chmod(0o755)
    done = containers.ended(TAG, options=options)
    assert done.returncode == 2, done.stderr
    assert "did you mean routes?" in done.stderr
    assert "Traceback" not in done.stderr


def test_it_says_what_it_is_and_who_it_runs_as(containers: Engine) -> None:
    config = json.loads(containers.ask("image", "inspect", TAG))[0]["Config"]
    assert config["User"] == "65532:65532"
    assert config["Entrypoint"] == ["sidecar"]
    prefix = "org.opencontainers.image."
    labels = {
        name.removeprefix(prefix): value
        for name, value in config["Labels"].items()
        if name.startswith(prefix)
    }
    about = metadata("kafka-dispatch-sidecar")
    assert labels["title"] == about["Name"]
    assert labels["description"] == about["Summary"]
    assert labels["licenses"] == about["License-Expression"]
    assert {name: labels[name.lower()] for name in SAID} == SAID
    assert "python" in labels["base.name"]


def test_what_it_adds_to_its_base_is_small(containers: Engine) -> None:
    count = "import os; print(sum(os.lstat(os.path.join(at, each)).st_size"
    count += " for at, _, files in os.walk('/opt/sidecar') for each in files))"
    done = containers.ended(TAG, "-c", count, options=("--entrypoint", "python3"))
    assert 0 < int(done.stdout) < MOST_MEBIBYTES * 2**20, done.stdout


def test_its_bytecode_is_taken_as_it_is(containers: Engine) -> None:
    """By its hash, unchecked: by a time it would be stale, and compiled anew at every start."""
    kinds = "import glob; print({open(file, 'rb').read(8)[4]"
    kinds += " for file in glob.glob('/opt/sidecar/lib/**/*.pyc', recursive=True)})"
    done = containers.ended(TAG, "-c", kinds, options=("--entrypoint", "python3"))
    assert done.stdout.strip() == "{1}", done.stderr


def test_two_builds_are_the_same(containers: Engine) -> None:
    """To the byte, the base included: what is downloaded is pinned, and no time is kept."""
    if containers.run[0] == "docker":
        pytest.skip("its builder keeps times unless it is asked not to")
    again = f"{TAG}-again"
    build(containers, again, "--no-cache")
    try:
        first, second = (
            json.loads(containers.ask("image", "inspect", tag))[0]["RootFS"]["Layers"]
            for tag in (TAG, again)
        )
    finally:
        containers.ask("rmi", again)
    assert first == second


@contextmanager
def application() -> Iterator[tuple[int, Queue[bytes]]]:
    """Its port, and the bodies it was sent."""
    bodies: Queue[bytes] = Queue()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            bodies.put(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server.server_port, bodies
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("stop", ["signal", "hook"])
def test_it_delivers_answers_commands_and_ends_cleanly_as_process_1(
    containers: Engine, stop: str, tmp_path: Path
) -> None:
    """K8S-4. On a read-only root, without capabilities, within 256 MiB; nothing needs a shell."""
    run = tmp_path / "run"  # stands for the pod's empty volume
    run.mkdir()
    run.chmod(0o777)
    name = f"sidecar-{uuid.uuid4().hex[:8]}"
    with application() as (port, bodies):
        process = containers.start(
            TAG,
            *("run", "--bootstrap-servers=embedded", "--group=g", "--topic=orders"),
            f"--target=http://127.0.0.1:{port}/",
            options=(
                *("--name", name, "-v", f"{run}:/run/sidecar"),
                *("-e", f"SIDECAR_ADMIN__PORT={free_ports(1)[0]}"),
            ),
        )
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            found = re.match(r"embedded broker at (127\.0\.0\.1:\d+): produce to it", line)
            assert found, process.communicate(timeout=WITHIN_SECONDS)
            producer = Producer({"bootstrap.servers": found[1], "log_level": 0})
            producer.produce("orders", b"one")
            assert producer.flush(WITHIN_SECONDS) == 0
            assert bodies.get(timeout=WITHIN_SECONDS) == b"one"
            assert '"delivered": 1' in containers.ask("exec", name, "sidecar", "status", "--json")
            if stop == "signal":
                process.send_signal(signal.SIGTERM)
            else:
                containers.ask("exec", name, "sidecar", "drain", "--wait", "25s")
            _, log = process.communicate(timeout=WITHIN_SECONDS)
        finally:
            if process.poll() is None:
                containers.ask("rm", "-f", name)
                process.communicate(timeout=WITHIN_SECONDS)
    assert process.returncode == 0, log
    assert "draining" in log
