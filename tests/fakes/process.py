"""One process of a simulated world: its clock, which may stall or die, and its mailbox.

Purpose: ports.Scheduler and ports.Mailbox for one member among others on one simulated clock.

Owner: one Member. Invariant: nothing of a process runs after it died.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from sidecar.core.commands import Command
from tests.fakes.clock import SimulatedScheduler


class Crashed(BaseException):
    """Unwinds the fetch thread of a member that is no more."""


class MemberTimer:
    """A callback of one process. It is run when it is due, or when the loop is free again."""

    __slots__ = ("_args", "_callback", "_clock", "cancelled")

    def __init__(
        self, clock: MemberClock, callback: Callable[..., object], args: tuple[Any, ...]
    ) -> None:
        self._clock = clock
        self._callback = callback
        self._args = args
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True

    def due(self) -> None:
        if self._clock.stalled:
            self._clock.overdue.append(self)
        elif self._clock.alive and not self.cancelled:
            self._callback(*self._args)


class MemberClock:
    """ports.Scheduler for one process: its callbacks die with it, and wait while it is stalled."""

    def __init__(self, scheduler: SimulatedScheduler) -> None:
        self._scheduler = scheduler
        self.alive = True
        self.stalled = False
        self.overdue: list[MemberTimer] = []

    def time(self) -> float:
        return self._scheduler.time()

    def call_at(self, when: float, callback: Callable[..., object], *args: Any) -> MemberTimer:
        timer = MemberTimer(self, callback, args)
        self._scheduler.call_at(when, timer.due)
        return timer

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any) -> MemberTimer:
        return self.call_at(self.time() + delay, callback, *args)

    def call_soon(self, callback: Callable[..., object], *args: Any) -> MemberTimer:
        return self.call_at(self.time(), callback, *args)

    def call_soon_threadsafe(self, callback: Callable[..., object], *args: Any) -> MemberTimer:
        return self.call_at(self.time(), callback, *args)

    def stall(self, seconds: float) -> None:
        """The loop is busy with something else; the fetch thread is not."""
        self.stalled = True
        self._scheduler.call_later(seconds, self.go_on)

    def go_on(self) -> None:
        self.stalled = False
        overdue, self.overdue = self.overdue, []
        for timer in overdue:
            timer.due()

    def wait_for(self, condition: Callable[[], bool], timeout: float) -> None:
        """On the fetch thread: let the world go on."""
        self._scheduler.wait_for(lambda: condition() or not self.alive, timeout)
        if not self.alive:
            raise Crashed


class SimulatedMailbox:
    """ports.Mailbox: whoever waits for a command lets the world go on meanwhile."""

    def __init__(self, clock: MemberClock) -> None:
        self._clock = clock
        self._commands: deque[Command] = deque()

    def post(self, command: Command) -> None:
        self._commands.append(command)

    def receive(self, timeout: float) -> Command | None:
        if timeout > 0 and not self._commands:
            self._clock.wait_for(lambda: bool(self._commands), timeout)
        return self._commands.popleft() if self._commands else None
