"""The image, built once; what is missing for it skips, and fails in CI."""

from __future__ import annotations

import os
from typing import Final

import pytest

from tests.rig.images import Engine, NoImages, build, engine

TAG: Final = "localhost/kafka-dispatch-sidecar:test"


@pytest.fixture(scope="session")
def containers() -> Engine:
    """The image is built when the first test asks for it."""
    try:
        found = engine()
    except NoImages as missing:
        if os.environ.get("CI"):
            pytest.fail(str(missing), pytrace=False)
        pytest.skip(str(missing))
    build(found, TAG)
    return found
