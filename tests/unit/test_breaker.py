"""The breaker, told as stories; tests/model/test_breaker_model.py has the whole table."""

from __future__ import annotations

from sidecar.core.breaker import IN_A_ROW, Breaker, State


def up() -> Breaker:
    breaker = Breaker(0.0)
    breaker.reachable(1.0)
    return breaker


def held() -> Breaker:
    breaker = up()
    assert breaker.app_down(2.0, "refused", at_once=True)
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
            assert not breaker.app_down(2.0, "status 401", at_once=False)
        breaker.answered(2.0)
    assert breaker.state is State.UP


def test_several_misrouted_answers_in_a_row_are_one() -> None:
    breaker = up()
    seen = [breaker.app_down(2.0, "status 401", at_once=False) for _ in range(IN_A_ROW)]
    assert seen == [False] * (IN_A_ROW - 1) + [True]
    assert (breaker.state, breaker.last_error) == (State.HELD, "status 401")


def test_one_record_at_a_time_tries_whether_the_application_is_back() -> None:
    breaker = held()
    breaker.reachable(3.0)
    assert (breaker.state, breaker.may_start()) == (State.TRIAL, True)
    breaker.started()
    assert not breaker.may_start()
    breaker.answered(4.0)
    assert (breaker.state, breaker.since, breaker.may_start()) == (State.UP, 4.0, True)


def test_a_trial_that_fails_holds_again_and_the_next_probe_allows_another() -> None:
    breaker = held()
    for round_ in range(3):
        breaker.reachable(3.0 + round_)
        breaker.started()
        assert breaker.app_down(3.5 + round_, "status 403", at_once=False)
        assert (breaker.state, breaker.may_start()) == (State.HELD, False)


def test_a_late_answer_to_an_old_request_ends_no_outage() -> None:
    """It was sent before the application went away."""
    breaker = held()
    breaker.answered(3.0)
    assert breaker.state is State.HELD


def test_an_operator_ends_an_outage_and_nothing_else() -> None:
    breaker = Breaker(0.0)
    assert not breaker.reset(1.0), "nothing was ever there"
    breaker.reachable(1.0)
    assert not breaker.reset(2.0)
    breaker.app_down(3.0, "refused", at_once=True)
    assert breaker.reset(4.0)
    assert (breaker.state, breaker.since, breaker.may_start()) == (State.UP, 4.0, True)


def test_a_trial_that_is_cancelled_makes_room_for_another() -> None:
    breaker = Breaker(0.0)
    breaker.reachable(1.0)
    breaker.app_down(2.0, "refused", at_once=True)
    breaker.reachable(3.0)
    breaker.started()
    assert not breaker.may_start()
    breaker.trial_cancelled()
    assert breaker.may_start()
