"""The breaker against its own table: which event leads from which state to which."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sidecar.core.breaker import IN_A_ROW, Breaker, State

REACHABLE = {State.WAITING: State.UP, State.HELD: State.TRIAL}
ANSWERED = {State.TRIAL: State.UP}
DOWN_AT_ONCE = {State.UP: State.HELD, State.TRIAL: State.HELD}


class BreakerByTable(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 100.0
        self.breaker = Breaker(self.now)
        self.state = State.WAITING
        self.since = self.now
        self.trial_out = False
        self.in_a_row = 0
        self.error = ""

    def enter(self, state: State | None) -> None:
        """Only a change restarts the time in a state, and calls the trial back."""
        if state is None:
            return
        self.state, self.since, self.trial_out = state, self.now, False
        if state is State.UP:
            self.error, self.in_a_row = "", 0

    @rule(seconds=st.floats(0.001, 100.0))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def a_probe_gets_through(self) -> None:
        self.breaker.reachable(self.now)
        self.enter(REACHABLE.get(self.state))

    @rule()
    def a_probe_fails(self) -> None:
        self.breaker.unreachable("refused")
        self.error = "refused"

    @precondition(lambda self: self.breaker.may_start())
    @rule()
    def a_record_starts(self) -> None:
        self.breaker.started()
        self.trial_out = self.state is State.TRIAL

    @rule()
    def a_record_is_answered(self) -> None:
        """Also late ones, whose request began before the application went away."""
        self.breaker.answered(self.now)
        self.in_a_row = 0
        self.enter(ANSWERED.get(self.state))

    @rule(at_once=st.booleans())
    def a_record_finds_no_application(self, at_once: bool) -> None:
        held = self.breaker.app_down(self.now, "status 401", at_once)
        self.error = "status 401"
        self.in_a_row += 1
        if at_once or self.state is State.TRIAL or self.in_a_row >= IN_A_ROW:
            self.enter(DOWN_AT_ONCE.get(self.state))
        assert held == (self.state is not State.UP)

    @invariant()
    def it_is_where_the_table_says(self) -> None:
        assert (self.breaker.state, self.breaker.since) == (self.state, self.since)
        assert self.breaker.last_error == self.error

    @invariant()
    def at_most_one_record_is_out_on_trial(self) -> None:
        may_start = {
            State.WAITING: False,
            State.UP: True,
            State.HELD: False,
            State.TRIAL: not self.trial_out,
        }
        assert self.breaker.may_start() == may_start[self.state]


TestBreakerByTable = BreakerByTable.TestCase
TestBreakerByTable.settings = settings(max_examples=100, stateful_step_count=30)
