"""The judge of tests/chaos sees each fault in what the application and the dead letters tell."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.chaos.turmoil import ATTEMPTS, BUDGET, verdict
from tests.rig.journal import Journal

ONCE = range(1, 4)  # good ones; 0 is answered 500
SERIOUS = (
    "lost",
    "repeated",
    "out_of_budget",
    "too_many_attempts",
    "parked_wrongly",
    "strange_keys",
)


def sent(number: int, attempt: int = 1, key: str = "") -> str:
    return f"a {number} 10 {attempt} /events {key or f'key-{number}'}"


def answered(number: int, status: int = 204) -> str:
    return f"d {number} {status} 1.000"


TAKEN = [line for number in ONCE for line in (sent(number), answered(number))]
REFUSED = [sent(0), answered(0, 500)]


def seen(directory: Path, lines: list[str]) -> Journal:
    file = directory / "journal"
    file.write_text("".join(f"{line}\n" for line in lines))
    journal = Journal(file)
    journal.refresh()
    return journal


def found(
    directory: Path, lines: list[str], parked: dict[int, int], *, precise: bool, told: int = 0
) -> dict[str, float]:
    figures = verdict(seen(directory, lines), Counter(parked), range(4), precise=precise, told=told)
    return {name: figures[name] for name in SERIOUS if figures[name]}


@pytest.mark.parametrize("precise", [False, True])
def test_what_is_taken_once_or_parked_is_well(tmp_path: Path, precise: bool) -> None:
    assert found(tmp_path, [*REFUSED, *TAKEN], {0: 1}, precise=precise) == {}


def test_what_is_neither_taken_nor_parked_is_lost(tmp_path: Path) -> None:
    lines = [*REFUSED, *TAKEN[:-1]]  # the last one is sent and not answered
    assert found(tmp_path, lines, {0: 1}, precise=False) == {"lost": 1, "out_of_budget": 1}
    assert found(tmp_path, lines, {0: 1}, precise=True) == {}


def test_what_is_lost_has_to_be_told_or_in_the_budget_of_a_crash(tmp_path: Path) -> None:
    lines = [*REFUSED, *TAKEN[:-2]]
    assert found(tmp_path, lines, {0: 1}, precise=True) == {"lost": 1, "out_of_budget": 1}
    assert found(tmp_path, lines, {0: 1}, precise=True, told=1) == {"lost": 1}
    journal = seen(tmp_path, lines)
    many = range(BUDGET + 5)
    crashed = verdict(journal, Counter(), many, precise=True, crashes=1)
    assert (crashed["lost"], crashed["out_of_budget"]) == (BUDGET + 2, 2)


def test_what_is_sent_again_is_repeated_if_it_was_taken_or_may_not_be(tmp_path: Path) -> None:
    again = [*REFUSED, *TAKEN, sent(1)]
    assert found(tmp_path, again, {0: 1}, precise=False) == {}
    assert found(tmp_path, again, {0: 1}, precise=True) == {"repeated": 1}
    assert found(tmp_path, [*again, answered(1)], {0: 1}, precise=False) == {"repeated": 1}


def test_more_refusals_than_attempts_are_too_many(tmp_path: Path) -> None:
    lines = [*TAKEN]
    for attempt in range(1, ATTEMPTS + 3):
        lines += [sent(0, attempt), answered(0, 500)]
    assert found(tmp_path, lines, {0: 1}, precise=False) == {"too_many_attempts": 1}


@pytest.mark.parametrize("parked", [{}, {0: 1, 1: 1}], ids=["a bad one not", "a good one"])
def test_what_is_parked_has_failed_and_what_failed_is_parked(
    tmp_path: Path, parked: dict[int, int]
) -> None:
    lines = [*REFUSED, *TAKEN]
    assert found(tmp_path, lines, parked, precise=True) == {"parked_wrongly": 1}


def test_a_record_has_one_idempotency_key_of_its_own(tmp_path: Path) -> None:
    two = [*REFUSED, *TAKEN, sent(1, 2, "another")]
    assert found(tmp_path, two, {0: 1}, precise=False) == {"strange_keys": 1}
    shared = [*REFUSED, *TAKEN[2:], sent(1, 1, "key-2"), answered(1)]
    assert found(tmp_path, shared, {0: 1}, precise=False) == {"strange_keys": 1}
