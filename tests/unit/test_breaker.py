"""The breaker, told as stories; tests/model/test_breaker_model.py has the whole table."""

from __future__ import annotations

from sidecar.core.breaker import IN_A_ROW, Breaker, State


def up() -> Breaker:
    breaker = Breaker(0.0)
    breaker.reachable(1.0)
    return breaker


def held() -> Breaker:
    breaker = up()
    breaker.app_down(object(), 2.0, "refused", at_once=True)
    return breaker


def test_nothing_starts_before_the_application_was_seen() -> None:
    breaker = Breaker(0.0)
    assert (breaker.state, breaker.may_start()) == (State.WAITING, False)
    breaker.unreachable("refused")
    assert (breaker.state, breaker.last_error) == (State.WAITING, "refused")
    breaker.reachable(20.0)
    assert (breaker.state, breaker.since, breaker.last_error) == (State.UP, 20.0, "")
    assert breaker.may_start()


def test_a_refused_connection_holds_intake_at_once() -> None:
    breaker = held()
    assert (breaker.state, breaker.since) == (State.HELD, 2.0)
    assert not breaker.may_start()


def test_one_misrouted_answer_among_others_is_no_outage() -> None:
    breaker = up()
    for _ in range(10):
        for _ in range(IN_A_ROW - 1):
            breaker.app_down(object(), 2.0, "status 401", at_once=False)
        breaker.delivered(object(), 2.0)
    assert breaker.state is State.UP


def test_several_misrouted_answers_in_a_row_are_one() -> None:
    breaker = up()
    for _ in range(IN_A_ROW):
        assert breaker.free
        breaker.app_down(object(), 2.0, "status 401", at_once=False)
    assert not breaker.free
    assert (breaker.state, breaker.last_error) == (State.HELD, "status 401")


def trial(breaker: Breaker, now: float = 3.0) -> object:
    """A probe got through, and a record is out."""
    record = object()
    breaker.reachable(now)
    assert (breaker.state, breaker.may_start(), breaker.free) == (State.TRIAL, True, False)
    breaker.started(record)
    assert not breaker.may_start()
    return record


def test_one_record_at_a_time_tries_whether_the_application_is_back() -> None:
    breaker = held()
    assert breaker.answered(trial(breaker), 4.0)
    assert (breaker.state, breaker.since, breaker.free) == (State.UP, 4.0, True)


def test_a_trial_that_fails_holds_again_and_the_next_probe_allows_another() -> None:
    breaker = held()
    for round_ in range(3):
        record = trial(breaker, 3.0 + round_)
        breaker.app_down(record, 3.5 + round_, "status 403", at_once=False)
        assert (breaker.state, breaker.may_start()) == (State.HELD, False)
        assert breaker.down_since == 2.0


def test_a_trial_without_an_answer_tells_nothing_and_holds_again() -> None:
    """It timed out, or its connection broke."""
    breaker = held()
    breaker.unanswered(trial(breaker), 4.0)
    assert breaker.state is State.HELD
    trial(breaker)


def test_a_late_answer_to_an_old_request_ends_no_outage() -> None:
    """It was sent before the application went away; nor does it end the trial of another."""
    breaker = held()
    assert not breaker.delivered(object(), 3.0)
    assert breaker.state is State.HELD
    record = trial(breaker)
    breaker.delivered(object(), 3.1)
    breaker.answered(object(), 3.1)
    breaker.unanswered(object(), 3.1)
    breaker.app_down(object(), 3.1, "status 401", at_once=False)
    assert (breaker.state, breaker.may_start()) == (State.TRIAL, False)
    assert breaker.delivered(record, 4.0)


def test_a_trial_that_outlives_its_outage_lets_no_second_start_beside_it() -> None:
    breaker = held()
    old = trial(breaker)
    breaker.app_down(object(), 3.5, "refused", at_once=True)
    breaker.reachable(4.0)
    assert (breaker.state, breaker.may_start()) == (State.TRIAL, False)
    breaker.unanswered(old, 5.0)
    trial(breaker, 6.0)


# --- too many parked in a row -----------------------------------------------------------------


def test_held_for_what_was_parked_it_opens_for_a_delivery_only() -> None:
    breaker = up()
    breaker.hold(2.0, "20 in a row")
    assert not breaker.answered(trial(breaker), 4.0)
    assert breaker.state is State.HELD
    assert breaker.delivered(trial(breaker), 5.0)
    assert (breaker.state, breaker.until_delivered) == (State.UP, False)


def test_any_delivery_will_do_because_it_ends_the_row() -> None:
    breaker = up()
    breaker.hold(2.0, "20 in a row")
    assert breaker.delivered(object(), 3.0)
    assert breaker.free


def test_once_excused_any_answer_to_a_trial_will_do() -> None:
    breaker = up()
    breaker.hold(2.0, "20 in a row")
    breaker.excuse()
    assert breaker.answered(trial(breaker), 4.0)


# --- single file ------------------------------------------------------------------------------


def test_in_single_file_nothing_starts_freely_whatever_else_happens() -> None:
    breaker = up()
    breaker.single_file(True)
    assert (breaker.free, breaker.may_start()) == (False, True)
    breaker.app_down(object(), 2.0, "refused", at_once=True)
    breaker.delivered(trial(breaker), 4.0)
    assert (breaker.state, breaker.free) == (State.UP, False)
    breaker.single_file(False)
    assert breaker.free


def test_an_operator_ends_an_outage_and_nothing_else() -> None:
    breaker = Breaker(0.0)
    assert not breaker.reset(1.0), "nothing was ever there"
    breaker.reachable(1.0)
    assert not breaker.reset(2.0)
    breaker.app_down(None, 3.0, "refused", at_once=True)
    assert breaker.reset(4.0)
    assert (breaker.state, breaker.since, breaker.may_start()) == (State.UP, 4.0, True)
