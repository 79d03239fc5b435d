"""Every way to an application, as fixtures: a test says which of them must do it."""

from __future__ import annotations

from pathlib import Path

import pytest
import trustme

from tests.contract.delivery.ways import Way, ways


@pytest.fixture(scope="session")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(params=["wire-asyncio", "wire-uvloop", "wire-unix", "wire-tls", "client"])
def way(request: pytest.FixtureRequest, tmp_path: Path, authority: trustme.CA) -> Way:
    return ways(request.param, tmp_path, authority)


@pytest.fixture(params=["wire-asyncio", "wire-uvloop", "wire-unix", "wire-tls"])
def wire(request: pytest.FixtureRequest, tmp_path: Path, authority: trustme.CA) -> Way:
    return ways(request.param, tmp_path, authority)
