"""Cases of a kind until the time is over: what is found, what hangs, and whether memory grows."""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from types import FrameType
from typing import Final, NamedTuple

from tests.fuzz.kinds import Kind

HANGS_SECONDS: Final = 20
MOST_BLOCKS: Final = 30_000  # that may stay behind after a quarter of the time
MOST_RESIDENT_MB: Final = 24.0
_LEAST_SECONDS: Final = 60.0  # before which caches are still filled, and growth says nothing


class Found(Exception):
    """A case that does harm. The cause is what it raised."""

    def __init__(self, number: int) -> None:
        super().__init__(f"case {number}")
        self.number = number


class Figures(NamedTuple):
    """Of a run that found nothing. The growth is that after a quarter of the time."""

    cases: int
    seconds: float
    blocks: int
    resident_mb: float

    @property
    def grows(self) -> bool:
        long = self.seconds >= _LEAST_SECONDS
        return long and (self.blocks > MOST_BLOCKS or self.resident_mb > MOST_RESIDENT_MB)


def run(
    kind: Kind, seconds: float, seed: int, tell: Callable[[int, float], object] = lambda *_: None
) -> Figures:
    """Raises Found. tell is told every half minute how many cases there were in what time."""
    numbers = Random(seed)
    cases = 0
    before: tuple[int, float] | None = None
    began = told = armed = time.monotonic()
    previous = signal.signal(signal.SIGALRM, _hangs)
    try:
        while (now := time.monotonic()) - began < seconds:
            if before is None and now - began > seconds / 4:
                before = _memory()
            if now - armed >= 1 or not cases:
                armed = now
                signal.alarm(HANGS_SECONDS)
            number = numbers.getrandbits(48)
            try:
                kind.judge(kind.case(number))
            except Exception as error:
                raise Found(number) from error
            cases += 1
            if now - told >= 30:
                told = now
                tell(cases, now - began)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, previous)
    blocks, resident = _memory()
    first = before or (blocks, resident)
    return Figures(cases, time.monotonic() - began, blocks - first[0], resident - first[1])


def _hangs(_: int, __: FrameType | None) -> None:
    raise TimeoutError(f"no end within {HANGS_SECONDS} s")


def _memory() -> tuple[int, float]:
    """Blocks of the allocator, and resident megabytes."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return sys.getallocatedblocks(), pages * os.sysconf("SC_PAGE_SIZE") / 2**20
