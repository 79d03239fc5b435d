"""Many schedules, what happened in them, and where to go on.

Purpose: a number of seeds is no proof of anything if they all do the same; so the campaign counts
steps, what was done to the groups, and what came of it.

Owner: python -m tests.simulate. The state is one file, written after each batch of seeds; a run
that is ended loses the batch under way and nothing else.
"""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from sidecar.model import Guarantee
from tests.simulate.shrink import FOUND, Failure, attempt
from tests.simulate.storm import Storm

MOST_FAILURES: Final = 20


@dataclass(slots=True)
class Progress:
    """All seeds below next_seed were played, each with both guarantees."""

    next_seed: int = 0
    schedules: int = 0
    steps: int = 0
    records: int = 0
    done: Counter[str] = field(default_factory=Counter)  # to the groups, by scene
    came_to: Counter[str] = field(default_factory=Counter)  # what the engines counted
    seen_in: Counter[str] = field(default_factory=Counter)  # in how many schedules
    failures: list[tuple[int, str]] = field(default_factory=list)  # seed, guarantee

    def add(self, other: Progress) -> None:
        self.next_seed = max(self.next_seed, other.next_seed)
        self.schedules += other.schedules
        self.steps += other.steps
        self.records += other.records
        for mine, its in (
            (self.done, other.done),
            (self.came_to, other.came_to),
            (self.seen_in, other.seen_in),
        ):
            mine.update(its)
        self.failures += other.failures

    @classmethod
    def of(cls, text: str) -> Progress:
        told = json.loads(text)
        counters = {name: Counter(told[name]) for name in ("done", "came_to", "seen_in")}
        failures = [(seed, guarantee) for seed, guarantee in told["failures"]]
        return cls(**(told | counters | {"failures": failures}))

    def text(self) -> str:
        return json.dumps(
            {each.name: getattr(self, each.name) for each in dataclasses.fields(self)}
        )

    def lines(self) -> Iterator[str]:
        yield f"{self.schedules} schedules of {self.next_seed} seeds, {self.steps} steps"
        yield f"{self.records} records delivered"
        yield "what was done: " + _told(self.done.most_common())
        came = ((name, count) for name, count in self.came_to.most_common() if count)
        yield "what came of it: " + _told(came)
        yield "in so many schedules: " + _told(self.seen_in.most_common())
        yield f"{len(self.failures)} failed"


def play(first: int, end: int) -> Progress:
    """The seeds from first to before end, both guarantees."""
    progress = Progress(next_seed=end)
    for seed in range(first, end):
        for guarantee in Guarantee:
            _play(seed, guarantee, progress)
    return progress


class Campaign:
    """progress: of all that was played so far, in this run and those before."""

    def __init__(self, state: Path) -> None:
        self._state: Final = state
        self.progress: Final = Progress.of(state.read_text()) if state.exists() else Progress()

    def play(self, first: int, end: int) -> None:
        self.progress.add(play(first, end))

    def save(self) -> None:
        self._state.parent.mkdir(parents=True, exist_ok=True)
        new = self._state.with_suffix(".new")
        new.write_text(self.progress.text())
        new.replace(self._state)

    def failures(self) -> Iterator[Failure]:
        """Those found so far, played again."""
        for seed, guarantee in self.progress.failures:
            failure = attempt(seed, Guarantee(guarantee))
            if failure is not None:
                yield failure


def _play(seed: int, guarantee: Guarantee, progress: Progress) -> None:
    storm = Storm(seed, guarantee)
    try:
        storm.play()
        storm.finish()
    except FOUND:
        progress.failures.append((seed, guarantee.value))
    progress.schedules += 1
    progress.steps += storm.world.turns
    progress.done.update(each.scene.__name__ for each in storm.played)
    came_to = Counter[str]()
    for member in storm.world.members:
        counters = member.route.counters
        progress.records += counters.delivered
        came_to.update(
            {
                each.name: getattr(counters, each.name)
                for each in dataclasses.fields(counters)
                if each.name != "failures"
            }
        )
        came_to.update(counters.failures)
        came_to["perhaps lost"] += member.route.offsets.maybe_lost
        came_to["left the group"] += member.source.times_left
    progress.came_to.update(came_to)
    progress.seen_in.update(name for name, count in came_to.items() if count)


def _told(counts: Iterable[tuple[str, int]]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts) or "nothing"
