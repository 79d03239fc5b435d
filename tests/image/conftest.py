"""The image, built once; what is missing for it skips, and fails in CI."""

from __future__ import annotations

import os
from typing import Final

import pytest

import sidecar
from tests.rig.images import Engine, NoImages, build, engine

TAG: Final = "localhost/kafka-dispatch-sidecar:test"
SAID: Final = {
    "VERSION": sidecar.__version__,
    "REVISION": "0123456789abcdef",
    "CREATED": "2026-01-02T03:04:05+00:00",
    "SOURCE": "https://git.example/kafka-dispatch-sidecar",
}


@pytest.fixture(scope="session")
def containers() -> Engine:
    """The image is built when the first test asks for it."""
    try:
        found = engine()
    except NoImages as missing:
        if os.environ.get("CI"):
            pytest.fail(str(missing), pytrace=False)
        pytest.skip(str(missing))
    said = [f"--build-arg={name}={value}" for name, value in SAID.items()]
    build(found, TAG, *said)
    return found
