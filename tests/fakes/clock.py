"""The simulated clock: an event loop's time and timers, run by the test instead of by waiting.

Time stands still until somebody drives it. Callbacks run in the order of their due time, then
in the order in which they were scheduled, so the same calls always give the same run. What a
callback raises reaches whoever drives.

It may be driven from inside a callback: a simulated thread that waits (a mailbox's receive) calls
wait_for, which runs what is due meanwhile and returns when there is something to receive. Time
never goes backwards, so an outer driver that comes back later than its goal just returns.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any, Final

AT_ONE_MOMENT: Final = 1_000_000  # callbacks without the time moving: something calls itself


class SimulatedTimer:
    __slots__ = ("_args", "_callback", "when")

    def __init__(
        self, when: float, callback: Callable[..., object], args: tuple[Any, ...] = ()
    ) -> None:
        self.when: Final = when
        self._callback: Callable[..., object] | None = callback
        self._args: Final = args

    @property
    def live(self) -> bool:
        """Neither cancelled nor run."""
        return self._callback is not None

    def cancel(self) -> None:
        self._callback = None

    def run(self) -> None:
        callback, self._callback = self._callback, None
        assert callback is not None, "a timer runs once"
        callback(*self._args)


class SimulatedScheduler:
    """See the module, and ports.Scheduler. One thread."""

    __slots__ = ("_at_this_moment", "_heap", "_now", "_number")

    def __init__(self, now: float = 1000.0) -> None:
        self._now = now
        self._heap: list[tuple[float, int, SimulatedTimer]] = []
        self._number = 0
        self._at_this_moment = 0

    # --- ports.Scheduler ----------------------------------------------------------------------

    def time(self) -> float:
        return self._now

    def call_at(self, when: float, callback: Callable[..., object], *args: Any) -> SimulatedTimer:
        """A time that has passed counts as now."""
        if when < self._now:  # noqa: PLR1730 - runs some hundred times in a schedule
            when = self._now
        timer = SimulatedTimer(when, callback, args)
        self._number += 1
        heapq.heappush(self._heap, (when, self._number, timer))
        return timer

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: Any
    ) -> SimulatedTimer:
        return self.call_at(self._now + delay, callback, *args)

    def call_soon(self, callback: Callable[..., object], *args: Any) -> SimulatedTimer:
        return self.call_at(self._now, callback, *args)

    def call_soon_threadsafe(self, callback: Callable[..., object], *args: Any) -> SimulatedTimer:
        return self.call_at(self._now, callback, *args)

    # --- driving ------------------------------------------------------------------------------

    @property
    def scheduled(self) -> int:
        """How many callbacks wait for their time."""
        return sum(timer.live for _, _, timer in self._heap)

    @property
    def next_at(self) -> float | None:
        """When the next callback is due."""
        heap = self._heap
        while heap and not heap[0][2].live:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def run_next(self) -> bool:
        """Move time to the next callback and run it; False if there is none."""
        when = self.next_at
        if when is None:
            return False
        self._move_to(when)
        self._at_this_moment += 1
        if self._at_this_moment > AT_ONE_MOMENT:
            raise RuntimeError(f"{AT_ONE_MOMENT} callbacks at {self._now} and no end")
        heapq.heappop(self._heap)[2].run()
        return True

    def run_pending(self) -> None:
        """Run what is due now, and what that schedules for now."""
        self.run_until(self._now)

    def run_until(self, when: float) -> None:
        """Run everything that is due up to this time, at its own time; then it is that time."""
        heap = self._heap
        while heap and heap[0][0] <= when:
            if heap[0][2].live:
                self.run_next()
            else:
                heapq.heappop(heap)
        self._move_to(when)

    def advance(self, seconds: float) -> None:
        self.run_until(self._now + seconds)

    def wait_for(self, condition: Callable[[], bool], timeout: float) -> bool:
        """Run callbacks until the condition holds, at most until the timeout has passed.

        Time stops at the callback that made it true. Returns whether it holds.
        """
        deadline = self._now + timeout
        while not condition():
            following = self.next_at
            if following is None or following > deadline:
                self._move_to(deadline)
                return condition()
            self.run_next()
        return True

    def _move_to(self, when: float) -> None:
        if when > self._now:
            self._now = when
            self._at_this_moment = 0
