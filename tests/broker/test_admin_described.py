"""The running sidecar does what openapi/admin.json says, whatever it is sent.

SCHEMATHESIS_EXAMPLES (make fuzz-api) tries more, and not the same each time.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.conftest import TopicFactory
from tests.rig.operations import KafkaOperations
from tests.rig.processes import ADMIN_TOKEN, Scene, at_the_end, config, route
from tests.rig.scripted_app import ScriptedApp

pytestmark = pytest.mark.kafka

MANY_EXAMPLES: Final = os.environ.get("SCHEMATHESIS_EXAMPLES")
TOOL: Final = Path(sys.executable).with_name("schemathesis")
SETTINGS: Final = Path(__file__).parents[1] / "rig" / "schemathesis.toml"
QUICKLY: Final = ("--generation-deterministic", "--phases", "coverage")
MANY: Final = ("--generation-database", "none")


@pytest.mark.timeout(3600 if MANY_EXAMPLES else 230)
def test_schemathesis_finds_nothing(
    kafka: KafkaOperations, topic: TopicFactory, group: str, scene: Scene, tmp_path: Path
) -> None:
    """Dead letters, redrives and changes included."""
    name, dead = topic(1), topic(1)
    with ScriptedApp(lambda request: 422 if request.body == b"bad" else 204) as app:
        what = config(
            kafka.bootstrap_servers,
            group,
            [route(name, app.port, name="r", dead_letter={"topic": dead})],
        )
        sidecar = scene.sidecar({**what, "admin": {"token": ADMIN_TOKEN}})
        kafka.produce(name, [b"bad"] * 5)
        at_the_end(kafka, group, name)
        ran = subprocess.run(
            [
                *(TOOL, "--config-file", SETTINGS, "run"),
                f"http://127.0.0.1:{sidecar.port}/openapi.json",
                *("--header", f"Authorization: Bearer {ADMIN_TOKEN}"),
                *(("--max-examples", MANY_EXAMPLES, *MANY) if MANY_EXAMPLES else QUICKLY),
                *("--warnings", "off", "--no-color"),
                *("--request-timeout", "30"),
            ],
            capture_output=True,
            check=False,
            text=True,
            cwd=tmp_path,
            timeout=200 if MANY_EXAMPLES is None else None,
        )
        assert ran.returncode == 0, ran.stdout[-20_000:] + ran.stderr
        assert sidecar.stop() == 0
