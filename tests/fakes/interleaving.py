"""Two threads of control, every interleaving of their steps, no thread.

Purpose: what goes wrong between the fetch thread and the loop goes wrong in one order of steps in a
million, so all orders are tried. Both run as greenlets. Wherever one touches what the other sees
(the mailbox, what is told to the loop, the places) it calls point, and there the other may go on
instead. A run is the list of these choices; the next one differs in the last that had another way.

Owner: one test. Invariants:
* Runs are exhaustive up to a number of preemptions: switches away from a side that could have gone
  on. Where a side waits, the other goes on, and that costs nothing.
* Time stands still as long as one side can take a step. So whatever ends by its timeout was waited
  for in vain, and shows in the time the run took.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from greenlet import getcurrent, greenlet

from sidecar.core.commands import Command
from sidecar.core.places import Places
from sidecar.kafka.mailbox import ThreadMailbox
from sidecar.ports import Mailbox
from tests.fakes.clock import SimulatedScheduler


class Stuck(AssertionError):
    """Neither side can go on, or only a deadline got them on."""


class Choices:
    """Which way to go where there is more than one; all of them, one run after the other."""

    def __init__(self) -> None:
        self._ahead: list[int] = []
        self._taken: list[tuple[int, int]] = []

    def runs(self) -> Iterator[int]:
        """The number of each run; ends when every way was gone."""
        number = 0
        while True:
            yield number
            number += 1
            while self._taken and self._taken[-1][0] + 1 == self._taken[-1][1]:
                self._taken.pop()
            if not self._taken:
                return
            self._ahead = [way for way, _ in self._taken]
            self._ahead[-1] += 1
            self._taken = []

    def choose(self, ways: int) -> int:
        at = len(self._taken)
        way = self._ahead[at] if at < len(self._ahead) else 0
        self._taken.append((way, ways))
        return way


class Side:
    """One of the two. waits: whether it may go on; until: when it goes on in any case."""

    def __init__(self, run: Callable[[], None]) -> None:
        self.greenlet: Final = greenlet(run)
        self.waits: Callable[[], bool] | None = None
        self.until = float("inf")


class Interleaving:
    """A run of both sides by the given choices."""

    def __init__(self, choices: Choices, preemptions: int, limit_seconds: float) -> None:
        self.scheduler: Final = SimulatedScheduler()
        self._choices = choices
        self._preemptions = preemptions
        self._end = self.scheduler.time() + limit_seconds
        self._sides: list[Side] = []
        self._hub = getcurrent()
        self._next: Side | None = None
        self.timeouts = 0  # waits that came to nothing

    def run(self, fetch: Callable[[], None]) -> None:
        """Until the fetch thread is over and nothing is left to be done at this moment."""
        self._hub = getcurrent()
        fetching = Side(fetch)
        self._sides = [fetching, Side(self._loop)]
        while not fetching.greenlet.dead or self._due():
            able = [side for side in self._sides if self._can_go_on(side)]
            if not able:
                self._pass_time()
                continue
            side = self._next if self._next in able else None
            self._next = None
            side = side or able[self._choices.choose(len(able)) if len(able) > 1 else 0]
            side.greenlet.switch()

    def point(self) -> None:
        """Here the other side may come between."""
        current = getcurrent()
        if current is self._hub or not self._preemptions:
            return
        other = self._sides[self._sides[0].greenlet is current]
        if self._can_go_on(other) and self._choices.choose(2):
            self._preemptions -= 1
            self._next = other
            self._hub.switch()

    def wait(self, condition: Callable[[], bool], seconds: float) -> bool:
        """The side that calls does nothing until this holds; whether it does."""
        side = self._sides[self._sides[0].greenlet is not getcurrent()]
        side.waits, side.until = condition, self.scheduler.time() + seconds
        while not condition() and self.scheduler.time() < side.until:
            self._hub.switch()
        side.waits = None
        self.timeouts += not condition()
        return condition()

    def _loop(self) -> None:
        while True:
            if self._due():
                self.scheduler.run_next()
                self.point()
            else:
                self.wait(self._due, float("inf"))

    def _due(self) -> bool:
        following = self.scheduler.next_at
        return following is not None and following <= self.scheduler.time()

    def _can_go_on(self, side: Side) -> bool:
        if side.greenlet.dead:
            return False
        return side.waits is None or side.waits() or self.scheduler.time() >= side.until

    def _pass_time(self) -> None:
        moments = [side.until for side in self._sides if not side.greenlet.dead]
        if (following := self.scheduler.next_at) is not None:
            moments.append(following)
        soonest = min(moments, default=float("inf"))
        if soonest > self._end:
            raise Stuck(f"nothing goes on before {soonest:g}")
        self.scheduler._move_to(soonest)


class WatchedMailbox:
    """A mailbox, the real one unless another is given; waiting for a command is a wait here."""

    def __init__(self, between: Interleaving, mailbox: Mailbox | None = None) -> None:
        self._between = between
        self._real: Final[Mailbox] = mailbox or ThreadMailbox()
        self._posted = self._taken = 0

    def post(self, command: Command) -> None:
        self._between.point()
        self._real.post(command)
        self._posted += 1
        self._between.point()

    def receive(self, timeout: float) -> Command | None:
        self._between.point()
        if timeout > 0:
            self._between.wait(lambda: self._posted > self._taken, timeout)
        command = self._real.receive(0)
        self._taken += command is not None
        return command


class WatchedPlaces(Places):
    """Both sides' counters, with the other side coming between any two steps on them."""

    __slots__ = ("_between",)

    def __init__(self, threshold: int, threshold_bytes: int, between: Interleaving) -> None:
        self._between = between
        super().__init__(threshold, threshold_bytes)

    def __getattribute__(self, name: str) -> object:
        if name in ("freed", "wake_at"):
            super().__getattribute__("_between").point()
        return super().__getattribute__(name)

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(name, value)
        if name in ("freed", "wake_at"):
            self._between.point()
