"""Whether a soak run would notice what grows, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from tests.soak.flatness import flatness
from tests.soak.run import Taken

TIMES = [5.0 * number for number in range(720)]
Course = Callable[[float], float]


def in_cycles(at: float) -> float:
    return 40.0 + (16 if at % 60 < 20 else 0)


@pytest.mark.parametrize(
    ("course", "flat"),
    [
        (in_cycles, True),
        (lambda at: 100 - at / 3600, True),
        (lambda at: in_cycles(at) + at // 60, False),
        (lambda at: in_cycles(at) + (1000 if at == 2500 else 0), True),
    ],
    ids=["what comes and goes", "what shrinks", "one more in each cycle", "a single outlier"],
)
def test_what_grows_is_told_from_what_comes_and_goes(course: Course, flat: bool) -> None:
    noise = Random(1)
    values = [course(at) + noise.uniform(-3, 3) for at in TIMES]
    assert flatness(TIMES, values, limit=15).flat is flat


def test_what_the_app_took_is_counted_from_its_journal_as_it_grows(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    journal.write_text("a 0 10 1 /x\nd 0 204 1.0\nd 1 500 1.0\nd 2 20")
    taken = Taken(journal)
    taken.refresh()
    assert [taken[0], taken[1], taken[2], taken[10**9]] == [1, 0, 0, 0]
    with journal.open("a") as file:
        file.write("4 1.1\nd 0 204 1.2\n")
    taken.refresh()
    assert [taken[0], taken[2]] == [2, 1]
