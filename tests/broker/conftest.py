"""A stage for the real sidecar: its processes, the application it talks to, its group."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import cluster
from tests.rig.kafka import KafkaCluster
from tests.rig.processes import Scene
from tests.rig.properties import GUARDED, UNHARMED


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    """Processes that end with the test; their configuration and logs are in tmp_path."""
    with Scene(tmp_path) as scene:
        yield scene


@pytest.fixture(scope="session")
def guarded() -> Iterator[KafkaCluster]:
    """A broker that allows everything to everybody but what an ACL keeps to someone else."""
    yield from cluster(1, {**GUARDED, **UNHARMED})
