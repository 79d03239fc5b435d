"""The way from the admin surface to the running parts."""

from __future__ import annotations

import pytest

from sidecar.control import Operations
from sidecar.errors import NotFound


def test_a_second_drain_does_not_cut_the_first() -> None:
    stops: list[str] = []
    operations = Operations([], lambda: stops.append("stop"))
    operations.drain()
    operations.drain()
    assert stops == ["stop"]
    with pytest.raises(NotFound, match="no route is named x"):
        operations.pause("x")
