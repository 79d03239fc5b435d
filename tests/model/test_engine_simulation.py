"""Whole groups of engines in random schedules, every invariant judged after every step.

A schedule that fails is run again by: python -c "from tests.simulate.storm import *; replay(SEED,
Guarantee.AT_LEAST_ONCE)"
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from sidecar.model import Guarantee
from tests.simulate.faults import FAULTS, Fault
from tests.simulate.storm import replay

SEEDS = 150
BLOCKS = 5
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
        try:
            replay(seed, guarantee)
        except Exception as error:
            error.add_note(f"replay({seed}, {guarantee})")
            raise


def test_the_same_seed_gives_the_same_run() -> None:
    first, second = (replay(7, Guarantee.AT_LEAST_ONCE).requests for _ in range(2))
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
