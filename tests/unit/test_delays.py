"""Delays: records come due in order, at their time, and can be taken back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sidecar.core.ledger import InFlight
from sidecar.dispatch.delays import Delays
from tests.fakes.clock import SimulatedScheduler, SimulatedTimer
from tests.fakes.records import assignment, in_flight, offsets


class Rig:
    def __init__(self, scheduler: SimulatedScheduler | None = None) -> None:
        self.scheduler = scheduler or SimulatedScheduler(100.0)
        self.came: list[tuple[float, int]] = []
        self.batches: list[list[InFlight]] = []
        self.delays = Delays(self.scheduler, self.due)
        self.owner = assignment()

    def due(self, entries: list[InFlight]) -> None:
        self.batches.append(entries)
        self.came += [(self.scheduler.time(), offset) for offset in offsets(entries)]

    def add(self, offset: int, when: float) -> None:
        self.delays.add(in_flight(self.owner, offset), when)


def test_each_comes_at_its_time_whatever_the_order_it_was_added_in() -> None:
    rig = Rig()
    for offset, when in ((1, 105.0), (2, 101.0), (3, 103.0), (4, 101.5)):
        rig.add(offset, when)
    assert len(rig.delays) == 4
    rig.scheduler.run_until(104.0)
    assert rig.came == [(101.0, 2), (101.5, 4), (103.0, 3)]
    assert len(rig.delays) == 1
    rig.scheduler.run_until(200.0)
    assert rig.came[-1] == (105.0, 1)
    assert (len(rig.delays), rig.scheduler.scheduled) == (0, 0)


def test_those_of_the_same_moment_come_together_in_the_order_of_arrival() -> None:
    rig = Rig()
    for offset in (3, 1, 2):
        rig.add(offset, 101.0)
    rig.add(9, 50.0)
    rig.scheduler.run_pending()
    rig.scheduler.run_until(101.0)
    assert [offsets(batch) for batch in rig.batches] == [[9], [3, 1, 2]]


@given(
    whens=st.lists(st.floats(100.0, 110.0), max_size=30),
    removed=st.sets(st.integers(0, 29), max_size=10),
)
def test_one_timer_serves_them_all(whens: list[float], removed: set[int]) -> None:
    rig = Rig()
    other = assignment(1)
    for index, when in enumerate(whens):
        owner = other if index in removed else rig.owner
        rig.delays.add(in_flight(owner, index), when)
        assert rig.scheduler.scheduled == 1
    taken_back = rig.delays.discard({other})
    kept = sorted((when, index) for index, when in enumerate(whens) if index not in removed)
    assert sorted(offsets(taken_back)) == sorted(removed & set(range(len(whens))))
    assert rig.scheduler.scheduled == bool(kept)
    rig.scheduler.run_until(111.0)
    assert [offset for _, offset in rig.came] == [index for _, index in kept]
    assert all(abs(now - whens[offset]) <= 0.001 for now, offset in rig.came)


def test_what_is_taken_back_does_not_come_due_and_leaves_no_timer() -> None:
    rig = Rig()
    other = assignment(1)
    rig.add(1, 101.0)
    rig.delays.add(in_flight(other, 2), 102.0)
    assert offsets(rig.delays.discard({rig.owner})) == [1]
    assert rig.delays.discard({rig.owner}) == []
    rig.scheduler.run_until(101.5)
    assert rig.came == []
    assert offsets(rig.delays.discard_all()) == [2]
    assert (len(rig.delays), rig.scheduler.scheduled) == (0, 0)


def test_a_record_that_is_delayed_again_while_it_comes_due_waits_again() -> None:
    rig = Rig()
    delays = Delays(rig.scheduler, lambda entries: delays.add(entries[0], rig.scheduler.time() + 1))
    delays.add(in_flight(rig.owner, 1), 101.0)
    rig.scheduler.run_until(105.5)
    assert (len(delays), rig.scheduler.next_at) == (1, 106.0)


class EarlyScheduler(SimulatedScheduler):
    """Timers that count whole milliseconds, as uvloop's do."""

    def call_at(self, when: float, callback: Callable[..., object], *args: Any) -> SimulatedTimer:
        delay = round((when - self.time()) * 1000) / 1000
        return super().call_at(self.time() + delay, callback, *args)


def test_a_timer_that_fires_a_hair_early_is_not_set_again_for_the_rest() -> None:
    """It would fire at once, over and over, until the clock has moved."""
    rig = Rig(EarlyScheduler(100.0))
    for offset in range(100):
        rig.add(offset, 101.0 + offset * 0.0123457)
    for _ in range(200):
        if not rig.scheduler.run_next():
            break
    assert (len(rig.came), len(rig.delays)) == (100, 0)
