"""How many records are parked, or moved to a retry topic, in a row; and who waits for that.

Owner: one route, on the loop. Where one record after another is given up and none is delivered, the
fault is hardly the records'.

Invariants:
* Since the last delivery at most max_parked_in_a_row records were given to be parked or moved; the
  end of the route alone, and LET_THROUGH_SECONDS, let more of them go.
* What waits here (at_most_once, which may not send it again) is in flight, and is parked in the
  order in which it failed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final, NamedTuple

from sidecar.core.ledger import InFlight
from sidecar.dispatch.context import Context
from sidecar.dispatch.parker import Parker
from sidecar.model import Result
from sidecar.ports import Timer

# at_most_once: how often one record of those that wait to be parked is parked all the same, while
# no other is in flight that could be tried.
LET_THROUGH_SECONDS: Final = 60.0


class HeldBack(NamedTuple):
    """A record that waits to be parked."""

    entry: InFlight
    result: Result
    reason: str


class InARow:
    """count: how many were given to be parked, or moved, since the last delivery."""

    __slots__ = (
        "_held_back",
        "_leaving",
        "_most",
        "_parker",
        "_places",
        "_scheduler",
        "_through",
        "count",
    )

    def __init__(self, context: Context, parker: Parker) -> None:
        self._most = context.settings.max_parked_in_a_row
        self._places = context.places
        self._scheduler = context.scheduler
        self._parker = parker
        self.count = 0
        self._held_back: deque[HeldBack] = deque()
        self._through: Timer | None = None  # when one of them is let through
        self._leaving = False  # at_most_once: what fails from now on cannot wait

    def __len__(self) -> int:
        """How many wait to be parked."""
        return len(self._held_back)

    def entries(self) -> Iterable[InFlight]:
        """Those that wait to be parked, until another is delivered."""
        return (each.entry for each in self._held_back)

    def may_park(self) -> bool:
        """Whether one more may be given to be parked, or moved to a retry topic."""
        return self._leaving or self.count < self._most

    def park(self, entry: InFlight, result: Result, reason: str) -> None:
        self.count += 1
        self._parker.park(entry, result, reason)

    def hold_back(self, entry: InFlight, result: Result, reason: str) -> None:
        """It is parked once it may be."""
        self._held_back.append(HeldBack(entry, result, reason))
        if self._through is None:
            self._wait_to_let_through()

    def release(self, entry: InFlight) -> None:
        """Hold one record back no more."""
        self._held_back = deque(each for each in self._held_back if each.entry is not entry)

    def delivered(self) -> None:
        """The row has ended."""
        self._places.starved = False
        self.excuse()

    def excuse(self) -> None:
        """As many may be parked again."""
        self.count = 0
        while self._held_back and self.may_park():
            self.park(*self._held_back.popleft())
        if self._through is not None:
            self._wait_to_let_through()

    def let_all_go(self) -> None:
        """The end has begun (at_most_once): what waits to be parked is parked, and what fails."""
        self._leaving = True
        while self._held_back:
            self.park(*self._held_back.popleft())
        self.stop()

    def stop(self) -> None:
        if self._through is not None:
            self._through.cancel()
            self._through = None

    def _wait_to_let_through(self) -> None:
        self.stop()
        if self._held_back:
            self._through = self._scheduler.call_later(LET_THROUGH_SECONDS, self._let_one_through)

    def _let_one_through(self) -> None:
        """Make room for a record that can be tried, where there is none."""
        self._through = None
        starved = bool(self._held_back) and self._nothing_to_try
        if starved:
            self.park(*self._held_back.popleft())
        self._places.starved = starved
        self._wait_to_let_through()

    @property
    def _nothing_to_try(self) -> bool:
        """All that is in flight is being parked, or waits to be."""
        return self._places.in_flight <= len(self._parker) + len(self._held_back)
