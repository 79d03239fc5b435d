"""Effective concurrency: an application that says it is overloaded gets fewer requests."""

from __future__ import annotations

from sidecar.core.concurrency import LEAST_ANSWERS, RECENT, Concurrency

WANTED = 32


class Rig:
    """What was answered so far, record by record."""

    def __init__(self) -> None:
        self.concurrency = Concurrency()
        self.answers = 0
        self.limits: list[int | None] = []

    def defer(self, record: object = None) -> None:
        self.answers += 1
        who = object() if record is None else record
        if self.concurrency.deferred([who], self.answers, WANTED):
            self.limits.append(self.concurrency.limit)

    def deliver(self, count: int = 1) -> None:
        for _ in range(count):
            self.answers += 1
            if self.concurrency.delivered(1, WANTED):
                self.limits.append(self.concurrency.limit)


def test_below_a_tenth_nothing_is_lowered() -> None:
    rig = Rig()
    for _ in range(200):
        rig.deliver(11)
        rig.defer()
    assert rig.limits == []


def test_at_a_tenth_it_is_halved_once_a_round() -> None:
    rig = Rig()
    while not rig.limits:
        rig.deliver(8)
        rig.defer()
    assert (rig.limits, rig.answers) == ([16], 27)
    before = rig.answers
    while len(rig.limits) < 2:
        rig.defer()
    assert rig.limits == [16, 8]
    assert rig.answers - before == WANTED + LEAST_ANSWERS, "what was sent before does not count"


def test_it_is_never_lowered_by_a_few_answers_nor_below_one() -> None:
    rig = Rig()
    for _ in range(LEAST_ANSWERS - 1):
        rig.defer()
    assert rig.limits == []
    for _ in range(1000):
        rig.defer()
    assert rig.limits == [16, 8, 4, 2, 1]


def test_one_record_that_is_always_deferred_lowers_nothing() -> None:
    """Neither among ten thousand others nor, tried again and again, among few."""
    rig = Rig()
    rig.defer("poison")
    for _ in range(10_000):
        rig.deliver()
    rig.defer("poison")
    for _ in range(300):
        rig.deliver(2)
        rig.defer("poison")
    assert rig.limits == []


def test_what_was_deferred_long_ago_is_forgotten() -> None:
    rig = Rig()
    for _ in range(9):
        rig.defer()
    rig.deliver(RECENT)
    rig.defer()
    assert rig.limits == []


def test_each_round_of_deliveries_raises_it_by_one_until_it_is_as_wanted() -> None:
    rig = Rig()
    for _ in range(LEAST_ANSWERS):
        rig.defer()
    assert rig.limits == [16]
    rig.deliver(15)
    assert rig.limits == [16]
    rig.deliver(1)
    assert rig.limits == [16, 17]
    rig.deliver(16)
    rig.defer()
    rig.deliver(16)
    assert rig.limits == [16, 17], "an answer that says it is enough begins the round anew"
    rig.deliver(2000)
    assert rig.limits == [*range(16, 32), None]


def test_a_batch_counts_by_its_records() -> None:
    concurrency = Concurrency()
    assert concurrency.deferred(range(20), 20, WANTED)
    assert concurrency.limit == 16
