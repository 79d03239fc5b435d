"""How many records at_most_once commits ahead of its executors.

What is committed and not started is lost in a crash, so it is kept as low as the executors allow:
what they take while the next run is being committed. How much that is shows by itself: it was too
little if they ran dry while more was there to be committed, and too much if plenty was left.

A commit costs as much as some twenty records. So it is also too little if, while more waited, the
commits were more than about a hundred a second: that bounds the commits, not the records.
"""

from __future__ import annotations

from typing import Final

_WINDOW_SECONDS: Final = 0.1
_MOST: Final = 10  # commits in a window


class RunAhead:
    """ahead: committed records that are kept in front of the executors; read only.

    low: the next run is due when no more of them are left; read only.
    """

    __slots__ = ("_before", "_began", "_commits", "ahead", "low")

    def __init__(self) -> None:
        self.ahead = 0
        self.low = 0
        self._began = 0.0
        self._commits = 0  # of this window, and of the one before
        self._before = 0

    def allowance(self, ready: int, slots: int, threshold: int) -> int:
        """The size of the next run; 0 while enough is committed.

        ready: committed and not started; slots: what the executors hold at once.
        """
        if not slots:
            return 0
        most = max(1, threshold * 3 // 4)  # the rest is for what waits to be committed
        self.ahead = min(max(self.ahead, slots), most)
        self.low = self.ahead // 4
        return self.ahead - ready if ready <= self.low else 0

    def committed(self, left: int, waiting: int, now: float) -> None:
        """A run was committed; of those before it so many are left, and so many more wait."""
        passed = now - self._began
        if passed >= _WINDOW_SECONDS:
            self._before = self._commits if passed < 2 * _WINDOW_SECONDS else 0
            self._began, self._commits = now, 0
        self._commits += 1
        if waiting > 0 and (left == 0 or self._commits == _MOST + 1):
            self.ahead *= 2
        elif left > self.ahead // 8 and self._before <= _MOST // 2:
            self.ahead -= self.ahead // 8
