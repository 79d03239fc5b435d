"""Waiting for a condition of another process, which no event in this one announces."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final, TypeVar

T = TypeVar("T")

# Only a test that fails waits so long: a busy machine takes half a minute to start a process.
PATIENCE_SECONDS: Final = 60.0


def eventually(
    condition: Callable[[], T],
    what: str,
    *,
    within: float = PATIENCE_SECONDS,
    every: float = 0.05,
) -> T:
    """The first true value of condition, which is asked again and again until the deadline."""
    deadline = time.monotonic() + within
    pace = threading.Event()
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() >= deadline:
            raise TimeoutError(f"not within {within:g} s: {what} (last seen: {value!r})")
        pace.wait(every)
