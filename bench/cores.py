"""Two cores: one for what is measured, one for what feeds it. Children inherit the core."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator


@contextlib.contextmanager
def on_core(number: int) -> Iterator[None]:
    """This process, and what it starts meanwhile, on one core of those it has."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {_MINE[number % len(_MINE)]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


_MINE = sorted(os.sched_getaffinity(0))
SUBJECT = 0
FEED = 1
