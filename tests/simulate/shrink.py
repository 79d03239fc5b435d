"""The shortest history that still fails, in lines that an engineer can read.

Purpose: a schedule that fails has some thirty scenes, of which two or three matter. Scenes are left
out, and the group is made plainer, as long as the same thing goes wrong.

Owner: who found a seed that fails. Everything here replays exactly.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from sidecar.model import Answer, Guarantee, Record
from tests.simulate.storm import Storm
from tests.simulate.weather import PLAIN

MOST_RUNS: Final = 400
SPOKEN: Final = 60  # lines of what the engines said before it went wrong
FOUND: Final = (AssertionError, RuntimeError)  # a Broken invariant, or the engine's own complaint


class Failure(NamedTuple):
    """A run that went wrong. keep and plain: as Storm takes them."""

    seed: int
    guarantee: Guarantee
    keep: tuple[int, ...]
    plain: tuple[str, ...]
    error: Exception
    happened: tuple[str, ...]

    @property
    def gist(self) -> frozenset[str]:
        """What went wrong, whoever it happened to."""
        return frozenset(re.findall(r"[a-z]{3,}", str(self.error).lower()))

    def again(self) -> str:
        """The command that repeats exactly this."""
        keep = ",".join(map(str, self.keep)) or "none"
        plain = f" --plain {','.join(self.plain)}" if self.plain else ""
        return (
            f"python -m tests.simulate --seed {self.seed} --guarantee {self.guarantee.value}"
            f" --keep {keep}{plain}"
        )


def attempt(
    seed: int,
    guarantee: Guarantee,
    keep: Collection[int] | None = None,
    plain: Collection[str] = (),
    *,
    spoken: bool = False,
) -> Failure | None:
    """One run, and what went wrong. spoken: what the engines say and send is told as well."""
    storm = Storm(seed, guarantee, keep=keep, plain=plain)
    try:
        with _listening(storm) if spoken else _quiet():
            storm.play()
            storm.finish()
    except FOUND as error:
        played = tuple(each.number for each in storm.played)
        told = str(storm.weather) or "all plain"
        happened = (f"{guarantee.value}: {told}", *storm.happened)
        return Failure(seed, guarantee, played, tuple(plain), error, happened)
    return None


def shrink(failure: Failure) -> Failure:
    """The same fault with as few scenes as can be found, in as plain a group."""
    left = MOST_RUNS

    def same(keep: Collection[int], plain: Collection[str]) -> Failure | None:
        nonlocal left
        left -= 1
        if left < 0:
            return None
        again = attempt(failure.seed, failure.guarantee, keep, plain)
        return again if again is not None and again.gist == failure.gist else None

    best = same(failure.keep, failure.plain) or failure
    before = None
    while before is not best and left > 0:
        before = best
        best = _with_fewer_scenes(best, same)
        for name in PLAIN:
            if name not in best.plain:
                best = same(best.keep, (*best.plain, name)) or best
    return best


def report(failure: Failure) -> list[str]:
    """The history, what the engines said last, what went wrong, and how to see it again."""
    spoken = attempt(failure.seed, failure.guarantee, failure.keep, failure.plain, spoken=True)
    lines = failure.happened if spoken is None else spoken.happened
    described, *happened = lines
    cut = len(happened) - SPOKEN
    # What was done is told whole; of what the engines said, the end.
    kept = [line for index, line in enumerate(happened) if index >= cut or "| " not in line]
    left_out = [f"           ({len(happened) - len(kept)} lines are left out)"]
    wrong = f"{type(failure.error).__name__}: {failure.error}"
    return [
        f"seed {failure.seed}, {described}",
        *(left_out if len(kept) < len(happened) else []),
        *kept,
        wrong,
        f"again: {failure.again()}",
    ]


def _with_fewer_scenes(
    best: Failure, same: Callable[[Collection[int], Collection[str]], Failure | None]
) -> Failure:
    """Leave out halves, then quarters, then single scenes."""
    size = max(1, len(best.keep) // 2)
    while True:
        start = 0
        while start < len(best.keep):
            keep = (*best.keep[:start], *best.keep[start + size :])
            shorter = same(keep, best.plain)
            if shorter is not None and len(shorter.keep) < len(best.keep):
                best = shorter
            else:
                start += size
        if size == 1:
            return best
        size //= 2


# --- what the engines say -------------------------------------------------------------------------


@contextmanager
def _quiet() -> Iterator[None]:
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


class _Heard(logging.Handler):
    def __init__(self, tell: Callable[[str], None]) -> None:
        super().__init__()
        self._tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        self._tell(record.getMessage())


@contextmanager
def _listening(storm: Storm) -> Iterator[None]:
    """What is logged, sent, answered and committed goes among what happened."""
    happened, world = storm.happened, storm.world

    def tell(text: str) -> None:
        happened.append(f"{world.now - 1000:9.3f}  | {text}")

    _overhear(world.judge, ("sent", "answered", "aborted", "was_parked", "was_moved"), tell)
    _overhear(world.broker, ("apply_commit",), tell)
    sidecar, before = logging.getLogger("sidecar"), logging.root.manager.disable
    level, propagates = sidecar.level, sidecar.propagate
    handler = _Heard(tell)
    logging.disable(logging.NOTSET)
    sidecar.setLevel(logging.INFO)
    sidecar.propagate = False
    sidecar.addHandler(handler)
    try:
        yield
    finally:
        sidecar.removeHandler(handler)
        sidecar.setLevel(level)
        sidecar.propagate = propagates
        logging.disable(before)


def _overhear(whom: object, methods: Iterable[str], tell: Callable[[str], None]) -> None:
    for name in methods:
        setattr(whom, name, _told(name, getattr(whom, name), tell))


def _told(name: str, method: Callable[..., Any], tell: Callable[[str], None]) -> Any:
    def told(*args: Any, **named: Any) -> Any:
        words = (_word(each) for each in args)
        tell(f"{name}: {' '.join(word for word in words if word)}")
        return method(*args, **named)

    return told


def _word(value: object) -> str:
    match value:
        case str() | int() | Record():
            return str(value)
        case float():
            return f"after {value:.3f} s"
        case Answer():
            return str(value.status)
        case dict():
            return ", ".join(f"{each} at {offset}" for each, (offset, _) in value.items())
        case tuple():
            return str(value)
        case _:
            return str(getattr(value, "name", ""))
