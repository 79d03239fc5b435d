"""Whole groups of engines in random schedules, every invariant judged after every step.

Five thousand schedules; `make simulate` plays any number. A schedule that fails is shrunk, and its
history is part of the failure's message, with the command that replays it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from sidecar.model import Guarantee
from tests.simulate.campaign import Campaign, Progress
from tests.simulate.faults import FAULTS, Fault
from tests.simulate.shrink import attempt, report, shrink
from tests.simulate.storm import replay

SEEDS = 2500
BLOCKS = 10
SEEDS_TO_FIND_A_FAULT = 600


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("block", range(BLOCKS))
@pytest.mark.parametrize("guarantee", Guarantee)
def test_invariants_hold_in_a_storm(guarantee: Guarantee, block: int) -> None:
    for seed in range(block, SEEDS, BLOCKS):
        failure = attempt(seed, guarantee)
        if failure is not None:
            pytest.fail("\n".join(report(shrink(failure))))


def test_the_same_seed_gives_the_same_run() -> None:
    first, second = (replay(9, Guarantee.AT_LEAST_ONCE).requests for _ in range(2))
    assert first == second
    assert first


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_planted_fault_is_found(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    fault.plant(monkeypatch)

    def try_seeds() -> None:
        for seed in range(SEEDS_TO_FIND_A_FAULT):
            replay(seed, fault.guarantee)

    with pytest.raises((AssertionError, RuntimeError)):
        try_seeds()


@pytest.mark.parametrize(
    ("name", "most_scenes"),
    [
        ("settles before the park is confirmed", 3),
        ("forgets delayed records at a revocation", 3),
        ("dispatches whatever the commit came to", 4),
    ],
)
def test_what_fails_is_told_as_a_short_history(
    name: str, most_scenes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was done, what came of it, what is wrong, and how to see exactly that again."""
    (fault,) = [each for each in FAULTS if each.name == name]
    fault.plant(monkeypatch)
    failure = next(
        found
        for seed in range(SEEDS_TO_FIND_A_FAULT)
        if (found := attempt(seed, fault.guarantee)) is not None and len(found.keep) > most_scenes
    )
    shortest = shrink(failure)
    assert 1 <= len(shortest.keep) <= most_scenes
    assert shortest.gist == failure.gist
    *_, wrong, again = report(shortest)
    assert str(shortest.error) in wrong
    assert again.startswith(f"again: python -m tests.simulate --seed {failure.seed} ")
    repeated = attempt(shortest.seed, shortest.guarantee, shortest.keep, shortest.plain)
    assert repeated is not None
    assert (str(repeated.error), repeated.happened) == (str(shortest.error), shortest.happened)


def test_a_campaign_goes_on_where_it_was_ended(tmp_path: Path) -> None:
    """Seeds are played once, whatever ended the run before."""
    state = tmp_path / "state.json"
    first = Campaign(state)
    first.play(0, 3)
    first.save()
    again = Campaign(state)
    assert again.progress == first.progress
    assert again.progress.next_seed == 3
    again.play(again.progress.next_seed, 5)
    straight = Campaign(tmp_path / "another.json")
    straight.play(0, 5)
    assert again.progress == straight.progress
    assert straight.progress.schedules == 10
    assert isinstance(straight.progress, Progress)
