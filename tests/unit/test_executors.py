"""Executors: how many run, which is used, and how an attempt ends."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.core.buffer import Buffer
from sidecar.core.ledger import InFlight
from sidecar.dispatch.executors import ExecutorPool, RecordExecutor
from sidecar.model import Answer, Failed, FailureKind, Result
from tests.fakes.clock import SimulatedScheduler
from tests.fakes.delivery import ManualDelivery
from tests.fakes.records import assignment, in_flight, offsets

TIMEOUT = 20.0
TICK = 0.1


class Rig:
    def __init__(self, executors: int = 0, timeout: float = TIMEOUT) -> None:
        self.scheduler = SimulatedScheduler(100.0)
        self.delivery = ManualDelivery()
        self.buffer = Buffer()
        self.owner = assignment()
        self.following = 0
        self.finished: list[tuple[InFlight, Result]] = []
        self.took: list[float] = []
        self.holding = False
        self.pool = ExecutorPool(
            self.scheduler, self.delivery, timeout, RecordExecutor, self.take, self.note
        )
        self.pool.resize(executors)

    def take(self) -> InFlight | None:
        return None if self.holding else self.buffer.take()

    def note(self, entry: InFlight, result: Result, started_at: float, now: float) -> None:
        self.finished.append((entry, result))
        self.took.append(now - started_at)

    def give(self, count: int = 1) -> None:
        for _ in range(count):
            self.buffer.add(in_flight(self.owner, self.following))
            self.following += 1
        self.pool.kick()

    @property
    def executing(self) -> list[int]:
        """Offsets, in the order in which their requests started."""
        return [slot.record.offset for slot in self.delivery.running if slot.record]

    @property
    def counts(self) -> tuple[int, int, int]:
        return self.pool.wanted, self.pool.running, self.pool.busy

    def check(self) -> None:
        pool, running = self.pool, self.delivery.running
        assert pool.busy == len(running) == len(list(pool.executing()))
        assert pool.running == len(self.delivery.open) == max(pool.wanted, pool.busy)
        if not self.holding and len(self.buffer):
            assert pool.busy >= pool.wanted, "an executor is idle and a record waits"


# --- how many ---------------------------------------------------------------------------------


def test_no_more_records_execute_than_there_are_executors() -> None:
    rig = Rig(3)
    rig.give(10)
    assert (rig.executing, len(rig.buffer), rig.counts) == ([0, 1, 2], 7, (3, 3, 3))
    rig.delivery.running[1].answer()
    assert (rig.executing, len(rig.buffer)) == ([0, 2, 3], 6)


def test_growing_starts_what_waits_at_once() -> None:
    rig = Rig(0)
    rig.give(10)
    assert rig.counts == (0, 0, 0)
    rig.pool.resize(4)
    assert (rig.executing, rig.counts) == ([0, 1, 2, 3], (4, 4, 4))
    rig.pool.resize(50)
    assert (len(rig.executing), rig.counts) == (10, (50, 50, 10))


def test_shrinking_closes_the_idle_at_once_and_the_busy_after_their_request() -> None:
    rig = Rig(10)
    rig.give(4)
    rig.pool.resize(2)
    assert (rig.counts, rig.delivery.aborted, len(rig.delivery.open)) == ((2, 4, 4), 0, 4)
    rig.give(5)
    rig.delivery.running[0].answer()
    rig.delivery.running[0].answer()
    assert (rig.executing, rig.counts) == ([2, 3], (2, 2, 2))
    rig.delivery.running[0].answer()
    assert (rig.executing, rig.counts, rig.delivery.aborted) == ([3, 4], (2, 2, 2), 0)


def test_no_executor_at_all_pauses_dispatch_and_finishes_what_runs() -> None:
    rig = Rig(2)
    rig.give(5)
    rig.pool.resize(0)
    for slot in list(rig.delivery.running):
        slot.answer()
    assert (rig.counts, len(rig.finished), len(rig.buffer)) == ((0, 0, 0), 2, 3)
    rig.pool.resize(1)
    assert rig.executing == [2]


def test_shrinking_and_growing_again_while_all_are_busy_opens_no_connection() -> None:
    rig = Rig(8)
    rig.give(8)
    rig.pool.resize(1)
    rig.pool.resize(8)
    assert (len(rig.delivery.slots), rig.counts) == (8, (8, 8, 8))


def test_the_connection_used_last_is_used_next() -> None:
    rig = Rig(3)
    rig.give(3)
    first, second, third = list(rig.delivery.running)
    for slot in (third, first, second):
        slot.answer()
    rig.give()
    assert rig.delivery.running == [second]
    second.answer()
    rig.give(2)
    assert rig.delivery.running == [second, first]


def test_shrinking_closes_the_connections_that_idle_longest() -> None:
    rig = Rig(3)
    rig.give(3)
    first, second, third = list(rig.delivery.running)
    for slot in (third, first, second):
        slot.answer()
    rig.pool.resize(1)
    assert (first.closed, second.closed, third.closed) == (True, False, True)


def test_a_route_that_gives_nothing_lets_its_executors_idle() -> None:
    rig = Rig(2)
    rig.holding = True
    rig.give(3)
    assert rig.executing == []
    rig.holding = False
    rig.pool.kick()
    assert rig.executing == [0, 1]


def test_a_limit_below_what_is_wanted_holds_until_it_is_raised() -> None:
    rig = Rig(8)
    rig.give(20)
    rig.pool.limit(3)
    assert (rig.pool.effective, rig.counts, rig.delivery.aborted) == (3, (8, 8, 8), 0)
    for _ in range(6):
        rig.delivery.running[0].answer()
    assert (len(rig.executing), rig.counts) == (3, (8, 3, 3))
    rig.pool.resize(5)
    assert (rig.pool.effective, len(rig.executing)) == (3, 3)
    rig.pool.resize(2)
    assert rig.pool.effective == 2
    rig.pool.resize(8)
    rig.pool.limit(4)
    assert (rig.pool.effective, len(rig.executing)) == (4, 4)
    rig.pool.limit(None)
    assert (rig.pool.effective, len(rig.executing)) == (8, 8)


def test_two_hundred_random_resizes_under_load_keep_the_counts_true() -> None:
    """No request is cut by one, each record is sent once, and in the end all counts agree."""
    chance = Random(7)
    rig = Rig(1)
    for _ in range(200):
        for _ in range(chance.randrange(6)):
            match chance.randrange(4):
                case 0:
                    rig.give(chance.randrange(1, 8))
                case 1:
                    rig.holding = not rig.holding
                    rig.pool.kick()
                case _ if rig.delivery.running:
                    chance.choice(rig.delivery.running).answer()
                case _:
                    rig.scheduler.advance(0.01)
            rig.check()
        rig.pool.resize(chance.choice([0, 1, 2, 10, 50]))
        rig.check()
    rig.holding = False
    rig.pool.resize(5)
    while rig.delivery.running:
        rig.delivery.running[0].answer()
        rig.check()
    assert rig.counts == (5, 5, 0)
    assert rig.delivery.aborted == 0
    assert sorted(offsets([entry for entry, _ in rig.finished])) == list(range(rig.following))
    assert [attempt for _, attempt in rig.delivery.requests] == [1] * rig.following


@pytest.mark.parametrize("count", [0, 1, 5])
def test_the_count_may_change_while_a_result_is_taken_in(count: int) -> None:
    """The executor whose result it is counts as neither busy nor idle then."""

    class Resizing(Rig):
        def note(self, entry: InFlight, result: Result, started_at: float, now: float) -> None:
            super().note(entry, result, started_at, now)
            assert self.pool.busy == len(self.executing) == 2
            self.pool.resize(count)
            self.pool.kick()

    rig = Resizing(3)
    rig.give(4)
    rig.delivery.running[0].answer()
    assert rig.executing == ([1, 2, 3] if count == 5 else [1, 2])
    rig.check()


# --- an attempt -------------------------------------------------------------------------------


def test_a_record_knows_its_tries_and_when_the_first_was() -> None:
    rig = Rig(1)
    rig.give()
    entry = next(rig.pool.entries())
    assert entry is not None
    rig.scheduler.advance(3.0)
    rig.delivery.running[0].answer(Answer(500))
    rig.buffer.add(entry)
    rig.pool.kick()
    assert (entry.tries, entry.first_try_at) == (2, 100.0)
    assert [attempt for _, attempt in rig.delivery.requests] == [1, 2]
    assert next(rig.pool.executing()).started_at == 103.0


@pytest.mark.parametrize("sent", [True, False])
def test_at_its_deadline_an_attempt_is_cut_and_the_executor_goes_on(sent: bool) -> None:
    rig = Rig(1)
    rig.give(2)
    [slot] = rig.delivery.running
    slot.sent = sent
    rig.scheduler.run_until(119.999)
    assert rig.finished == []
    rig.scheduler.run_until(120.0)
    [(entry, result)] = rig.finished
    assert entry.record.offset == 0
    assert result == Failed(FailureKind.TIMEOUT, "no answer within 20 s", sent)
    assert (rig.executing, rig.delivery.aborted, rig.counts) == ([1], 1, (1, 1, 1))
    rig.scheduler.run_until(140.0)
    assert len(rig.finished) == 2


def test_an_answer_in_time_leaves_nothing_for_the_deadline() -> None:
    rig = Rig(1)
    rig.give()
    rig.scheduler.run_until(119.9)
    rig.delivery.running[0].answer()
    rig.scheduler.run_until(500.0)
    assert [result for _, result in rig.finished if isinstance(result, Failed)] == []
    assert rig.scheduler.scheduled == 0, "no timer without a request"


@given(
    gaps=st.lists(st.floats(0.0, 5.0), min_size=1, max_size=30),
    timeout=st.floats(0.05, 30.0),
    answers=st.lists(st.one_of(st.none(), st.floats(0.0, 40.0)), min_size=30, max_size=30),
)
def test_every_attempt_ends_at_its_deadline_at_the_latest(
    gaps: list[float], timeout: float, answers: list[float | None]
) -> None:
    """At most one tick later, never before, with one timer for all."""
    lasted: dict[int, tuple[float, bool]] = {}
    began: dict[int, float] = {}

    class Timed(Rig):
        def note(self, entry: InFlight, result: Result, started_at: float, now: float) -> None:
            offset = entry.record.offset
            lasted[offset] = (self.scheduler.time() - began[offset], isinstance(result, Failed))

    rig = Timed(50, timeout)

    def answer(offset: int) -> None:
        for slot in rig.delivery.running:
            if slot.record and slot.record.offset == offset:
                slot.answer()
                return

    for gap, after in zip(gaps, answers, strict=False):
        rig.scheduler.advance(gap)
        offset = rig.following
        began[offset] = rig.scheduler.time()
        rig.give()
        if after is not None:
            rig.scheduler.call_later(after, answer, offset)
    rig.scheduler.advance(100.0)
    assert len(lasted) == len(gaps)
    for offset, (seconds, timed_out) in lasted.items():
        after = answers[offset]
        if timed_out:
            assert timeout - 1e-6 <= seconds <= timeout + min(TICK, timeout / 10) + 1e-6
        else:
            assert after is not None
            assert abs(seconds - after) < 1e-6
    rig.check()


def test_deadlines_cost_one_timer_however_many_execute() -> None:
    rig = Rig(500)
    rig.give(500)
    assert rig.scheduler.scheduled == 1


# --- the end ----------------------------------------------------------------------------------


def test_cutting_all_gives_the_records_back_without_a_result() -> None:
    """Cancelling is not a failure of the application: nobody is told of one."""
    rig = Rig(4)
    rig.give(3)
    assert sorted(offsets(rig.pool.abort_all())) == [0, 1, 2]
    assert (rig.finished, rig.counts, rig.delivery.aborted) == ([], (4, 4, 0), 3)
    rig.scheduler.advance(100.0)
    assert (rig.finished, rig.scheduler.scheduled) == ([], 0)
    rig.pool.close()
    assert (rig.counts, rig.delivery.open) == ((0, 0, 0), [])


def test_cutting_all_leaves_no_more_executors_than_wanted() -> None:
    rig = Rig(4)
    rig.give(4)
    rig.pool.resize(1)
    rig.pool.abort_all()
    assert rig.counts == (1, 1, 0)
    rig.give(3)
    rig.check()


# --- one request that is cut ------------------------------------------------------------------


@pytest.mark.parametrize("wanted", [3, 2])
def test_a_request_that_is_cut_frees_its_executor_and_no_other(wanted: int) -> None:
    """One too many ends with it; the next record is taken when asked."""
    rig = Rig(3)
    rig.give(5)
    rig.pool.resize(wanted)
    chosen = next(entry for entry in rig.pool.entries() if entry.record.offset == 1)
    assert rig.pool.cancel(chosen) == (chosen,)
    assert (rig.counts, rig.finished) == ((wanted, wanted, 2), [])
    rig.pool.kick()
    assert rig.executing == ([0, 2, 3] if wanted == 3 else [0, 2])
    rig.check()
