"""Is the application there? A state machine that decides whether a record may be dispatched.

    WAITING ──reachable──> UP <──────────────── trial answered
                           │                          │
             app_down ─────┴──> HELD ──reachable──> TRIAL ──app_down──> HELD

Owner: one route, on the loop. While WAITING or HELD nothing is dispatched; in TRIAL one record
is out, and the next is another one.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

IN_A_ROW: Final = 3


class State(Enum):
    WAITING = "waiting"
    UP = "up"
    HELD = "held"
    TRIAL = "trial"


class Breaker:
    __slots__ = ("_in_a_row", "_trial_out", "calm", "last_error", "since", "state")

    def __init__(self, now: float) -> None:
        self.state = State.WAITING
        self.since = now
        self.last_error = ""
        self.calm = False  # up, and nothing to forget: an answer changes nothing
        self._in_a_row = 0
        self._trial_out = False

    def may_start(self) -> bool:
        """Whether one more record may be dispatched now."""
        return self.state is State.UP or (self.state is State.TRIAL and not self._trial_out)

    def started(self) -> None:
        if self.state is State.TRIAL:
            self._trial_out = True

    def trial_cancelled(self) -> None:
        """A request was cut that may have been the trial: another record may be the next."""
        self._trial_out = False

    def reset(self, now: float) -> bool:
        """An operator says that the application is there; True if intake was held."""
        if self.state not in (State.HELD, State.TRIAL):
            return False
        self._enter(State.UP, now)
        return True

    def reachable(self, now: float) -> None:
        """A probe got through."""
        if self.state is State.WAITING:
            self._enter(State.UP, now)
        elif self.state is State.HELD:
            self._enter(State.TRIAL, now)

    def answered(self, now: float) -> bool:
        """The application answered a record in a way that is about the record.

        True if an outage ends with it.
        """
        self._in_a_row = 0
        self.calm = self.state is State.UP
        if self.state is not State.TRIAL:
            return False
        self._enter(State.UP, now)
        return True

    def app_down(self, now: float, error: str, at_once: bool) -> bool:
        """A record was answered as only an absent or misrouted application does.

        True if intake is held because of it (or was already).
        """
        self.last_error = error
        self._in_a_row += 1
        self.calm = False
        if self.state is State.TRIAL or (
            self.state is State.UP and (at_once or self._in_a_row >= IN_A_ROW)
        ):
            self._enter(State.HELD, now)
        return self.state is not State.UP

    def unreachable(self, error: str) -> None:
        """A probe failed while waiting or held."""
        self.last_error = error

    def _enter(self, state: State, now: float) -> None:
        self.state = state
        self.since = now
        self._trial_out = False
        self.calm = state is State.UP
        if state is State.UP:
            self._in_a_row = 0
            self.last_error = ""
