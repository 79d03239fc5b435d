"""The breaker against its own table: which event leads from which state to which."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sidecar.core.breaker import IN_A_ROW, Breaker, State

REACHABLE = {State.WAITING: State.UP, State.HELD: State.TRIAL}
DOWN_AT_ONCE = {State.UP: State.HELD, State.TRIAL: State.HELD}


class BreakerByTable(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 100.0
        self.breaker = Breaker(self.now)
        self.state = State.WAITING
        self.since = self.now
        self.trial: object = None
        self.until_delivered = False
        self.single_file = False
        self.in_a_row = 0
        self.error = ""

    def enter(self, state: State | None) -> None:
        """Only a change restarts the time in a state."""
        if state is None:
            return
        self.state, self.since = state, self.now
        if state is State.UP:
            self.error, self.in_a_row, self.trial, self.until_delivered = "", 0, None, False

    def some_result(self, of_trial: bool) -> tuple[object, bool]:
        """A record whose result comes, and whether it decides the trial."""
        if not of_trial or self.trial is None:
            return object(), False
        record, self.trial = self.trial, None
        return record, self.state is State.TRIAL

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

    @rule(wanted=st.booleans())
    def suspects_come_and_go(self, wanted: bool) -> None:
        self.breaker.single_file(wanted)
        self.single_file = wanted

    @precondition(lambda self: self.breaker.may_start())
    @rule()
    def a_record_starts(self) -> None:
        record = object()
        self.breaker.started(record)
        if self.state is State.TRIAL:
            self.trial = record

    @rule(of_trial=st.booleans())
    def a_record_is_delivered(self, of_trial: bool) -> None:
        """Also late ones, whose request began before the application went away."""
        record, decides = self.some_result(of_trial)
        ended = self.breaker.delivered(record, self.now)
        self.in_a_row = 0
        ends = self.state is not State.UP and (decides or self.until_delivered)
        assert ended == ends
        self.enter(State.UP if ends else None)

    @rule(of_trial=st.booleans())
    def a_record_is_answered(self, of_trial: bool) -> None:
        record, decides = self.some_result(of_trial)
        ended = self.breaker.answered(record, self.now)
        self.in_a_row = 0
        assert ended == (decides and not self.until_delivered)
        if decides:
            self.enter(State.HELD if self.until_delivered else State.UP)

    @rule(of_trial=st.booleans())
    def a_record_gets_no_answer(self, of_trial: bool) -> None:
        record, decides = self.some_result(of_trial)
        self.breaker.unanswered(record, self.now)
        self.enter(State.HELD if decides else None)

    @rule(of_trial=st.booleans(), at_once=st.booleans())
    def a_record_finds_no_application(self, of_trial: bool, at_once: bool) -> None:
        record, decides = self.some_result(of_trial)
        self.breaker.app_down(record, self.now, "status 401", at_once)
        self.error = "status 401"
        self.in_a_row += 1
        if at_once or decides or (self.in_a_row >= IN_A_ROW and self.state is State.UP):
            self.enter(DOWN_AT_ONCE.get(self.state))

    @precondition(lambda self: self.state is not State.WAITING)
    @rule()
    def too_many_were_parked(self) -> None:
        self.breaker.hold(self.now, "20 in a row")
        self.error, self.until_delivered = "20 in a row", True
        self.enter(DOWN_AT_ONCE.get(self.state))

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
            State.TRIAL: self.trial is None,
        }
        assert self.breaker.may_start() == may_start[self.state]
        assert self.breaker.free == (self.state is State.UP and not self.single_file)


TestBreakerByTable = BreakerByTable.TestCase
TestBreakerByTable.settings = settings(max_examples=100, stateful_step_count=30)
