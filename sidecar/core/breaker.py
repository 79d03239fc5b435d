"""Is the application there? A state machine that decides whether a record may be dispatched.

    WAITING ──reachable──> UP <────────────── trial answered
                           │                        │
      app_down, hold ──────┴──> HELD ──reachable──> TRIAL ──anything else──> HELD

Owner: one route, on the loop. While WAITING or HELD nothing is dispatched; in TRIAL one record
is out, and the next is another one.

Invariants:
* Only what the trial itself comes to ends a TRIAL; one trial is out at a time.
* Held for what was parked (until_delivered), only a delivery opens it, whoever's it is.
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
    """free: records start as they come. down_since: when it was up last, None while it is."""

    __slots__ = (
        "_in_a_row",
        "_single_file",
        "_trial",
        "down_since",
        "free",
        "last_error",
        "since",
        "state",
        "until_delivered",
    )

    def __init__(self, now: float) -> None:
        self.state = State.WAITING
        self.since = now
        self.down_since: float | None = None
        self.last_error = ""
        self.free = False
        self.until_delivered = False
        self._single_file = False
        self._in_a_row = 0
        self._trial: object = None

    @property
    def told_since(self) -> float:
        """Since when it is up, or is not: trials that fail begin nothing new."""
        return self.since if self.down_since is None else self.down_since

    def may_start(self) -> bool:
        """Whether one more record may be dispatched now."""
        return self.state is State.UP or (self.state is State.TRIAL and self._trial is None)

    def started(self, record: object) -> None:
        if self.state is State.TRIAL:
            self._trial = record

    def single_file(self, wanted: bool) -> None:
        """Suspects want to run alone, or do no more."""
        self._single_file = wanted
        self.free = self.state is State.UP and not wanted

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

    def unreachable(self, error: str) -> None:
        """A probe failed while waiting or held."""
        self.last_error = error

    def delivered(self, record: object, now: float) -> bool:
        """The application took a record. True if an outage ends with it."""
        self._in_a_row = 0
        trial = self._is_trial(record)
        if self.state is State.UP or not (trial or self.until_delivered):
            return False
        self._enter(State.UP, now)
        return True

    def answered(self, record: object, now: float) -> bool:
        """The application did not take a record, by an answer that is about the record.

        True if an outage ends with it.
        """
        self._in_a_row = 0
        if not self._is_trial(record):
            return False
        self._enter(State.HELD if self.until_delivered else State.UP, now)
        return self.state is State.UP

    def unanswered(self, record: object, now: float) -> None:
        """An attempt ended without an answer, which says nothing of the application."""
        if self._is_trial(record):
            self._enter(State.HELD, now)

    def app_down(self, record: object, now: float, error: str, at_once: bool) -> None:
        """A record was answered as only an absent or misrouted application does."""
        self.last_error = error
        self._in_a_row += 1
        trial = self._is_trial(record)
        if (
            trial
            or (at_once and self.state in (State.UP, State.TRIAL))
            or (self._in_a_row >= IN_A_ROW and self.state is State.UP)
        ):
            self._enter(State.HELD, now)

    def hold(self, now: float, error: str) -> None:
        """Too many records were not taken in a row: hold until one is."""
        self.until_delivered = True
        self.last_error = error
        if self.state in (State.UP, State.TRIAL):
            self._enter(State.HELD, now)

    def excuse(self) -> None:
        """An operator says that they were rightly not taken: any answer to a trial will do."""
        self.until_delivered = False

    def _is_trial(self, record: object) -> bool:
        """Whether it is the trial of now; it is over then, whatever it came to."""
        if record is None or record is not self._trial:
            return False
        self._trial = None
        return self.state is State.TRIAL

    def _enter(self, state: State, now: float) -> None:
        self.state = state
        self.since = now
        self.free = state is State.UP and not self._single_file
        if state is State.UP:
            self._in_a_row = 0
            self._trial = None
            self.down_since = None
            self.last_error = ""
            self.until_delivered = False
        elif self.down_since is None:
            self.down_since = now
