"""Waiting for a condition of another process, which no event in this one announces."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(
    condition: Callable[[], T], what: str, *, within: float = 30.0, every: float = 0.05
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
