"""A stage for the real sidecar: its processes, the application it talks to, its group."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rig.processes import Scene


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    """Processes that end with the test; their configuration and logs are in tmp_path."""
    with Scene(tmp_path) as scene:
        yield scene
