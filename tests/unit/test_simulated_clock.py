"""The simulated clock itself: order, time, nested driving."""

from __future__ import annotations

from collections import deque

import pytest

from sidecar.ports import Scheduler
from tests.fakes import clock
from tests.fakes.clock import SimulatedScheduler, SimulatedTimer


def test_callbacks_run_by_time_and_then_in_the_order_they_were_scheduled() -> None:
    scheduler = SimulatedScheduler(0.0)
    ran: list[tuple[str, float]] = []

    def note(name: str) -> None:
        ran.append((name, scheduler.time()))

    scheduler.call_later(2.0, note, "late")
    scheduler.call_at(1.0, note, "first at 1")
    scheduler.call_at(1.0, note, "second at 1")
    scheduler.call_soon(note, "soon")
    scheduler.call_soon_threadsafe(note, "from a thread")
    scheduler.call_at(-5.0, note, "overdue")
    scheduler.run_until(1.5)
    assert ran == [
        ("soon", 0.0),
        ("from a thread", 0.0),
        ("overdue", 0.0),
        ("first at 1", 1.0),
        ("second at 1", 1.0),
    ]
    assert scheduler.time() == 1.5
    assert scheduler.scheduled == 1
    scheduler.advance(0.5)
    assert ran[-1] == ("late", 2.0)
    assert not scheduler.run_next()


def test_nothing_runs_before_it_is_driven_and_run_pending_moves_no_time() -> None:
    scheduler = SimulatedScheduler(5.0)
    ran: list[int] = []
    scheduler.call_soon(lambda: scheduler.call_soon(ran.append, 1))
    scheduler.call_later(0.001, ran.append, 2)
    assert ran == []
    scheduler.run_pending()
    assert ran == [1]
    assert scheduler.time() == 5.0


def test_a_cancelled_timer_never_runs_even_if_cancelled_at_its_own_moment() -> None:
    scheduler = SimulatedScheduler(0.0)
    ran: list[int] = []
    timers: list[SimulatedTimer] = []

    def cancel_the_second() -> None:
        timers[0].cancel()

    scheduler.call_at(1.0, cancel_the_second)
    timers.append(scheduler.call_at(1.0, ran.append, 2))
    third = scheduler.call_at(1.0, ran.append, 3)
    scheduler.run_until(1.0)
    assert ran == [3]
    assert not third.live
    third.cancel()


def test_waiting_stops_at_the_moment_the_condition_holds() -> None:
    scheduler = SimulatedScheduler(0.0)
    ran: list[int] = []
    scheduler.call_at(1.0, ran.append, 1)
    scheduler.call_at(1.0, ran.append, 2)
    assert scheduler.wait_for(lambda: bool(ran), 5.0)
    assert (ran, scheduler.time()) == ([1], 1.0)
    assert not scheduler.wait_for(lambda: len(ran) > 2, 5.0)
    assert (ran, scheduler.time()) == ([1, 2], 6.0)


def test_a_simulated_thread_may_wait_inside_a_callback() -> None:
    """The callback that waits is suspended; others run, and the outer driver goes on after it."""
    scheduler = SimulatedScheduler(0.0)
    mailbox: deque[str] = deque()
    received: list[tuple[str | None, float]] = []

    def receive(timeout: float) -> None:
        arrived = scheduler.wait_for(lambda: bool(mailbox), timeout)
        received.append((mailbox.popleft() if arrived else None, scheduler.time()))

    scheduler.call_at(1.0, receive, 10.0)
    scheduler.call_at(3.0, mailbox.append, "command")
    scheduler.call_at(4.0, receive, 10.0)
    scheduler.run_until(2.0)
    assert received == [("command", 3.0)]
    assert scheduler.time() == 3.0, "time does not go back to the outer driver's goal"
    scheduler.run_until(20.0)
    assert received[1:] == [(None, 14.0)]


def test_what_a_callback_raises_reaches_the_driver_and_the_rest_stays_scheduled() -> None:
    scheduler = SimulatedScheduler(0.0)
    ran: list[int] = []
    scheduler.call_soon({}.__getitem__, "missing")
    scheduler.call_soon(ran.append, 1)
    with pytest.raises(KeyError):
        scheduler.run_pending()
    scheduler.run_pending()
    assert ran == [1]


def test_a_callback_that_schedules_itself_for_now_for_ever_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(clock, "AT_ONE_MOMENT", 100)
    scheduler = SimulatedScheduler()

    def again() -> None:
        scheduler.call_soon(again)

    again()
    with pytest.raises(RuntimeError, match="no end"):
        scheduler.run_pending()


def test_it_is_a_scheduler_as_the_engine_needs_one() -> None:
    scheduler: Scheduler = SimulatedScheduler()
    assert scheduler.time() == 1000.0
