"""How many records at_most_once commits ahead of its executors.

What is committed and not started is lost in a crash, so it is kept as low as the executors allow:
what they take while the next run is being committed. How much that is shows by itself: it was too
little if they ran dry while more was there to be committed, and too much if plenty was left.
"""

from __future__ import annotations


class RunAhead:
    """ahead: committed records that are kept in front of the executors."""

    __slots__ = ("ahead",)

    def __init__(self) -> None:
        self.ahead = 0

    def allowance(self, ready: int, slots: int, threshold: int) -> int:
        """The size of the next run; 0 while enough is committed.

        ready: committed and not started; slots: what the executors hold at once.
        """
        if not slots:
            return 0
        most = max(1, threshold // 2)  # the other half is for what waits to be committed
        self.ahead = min(max(self.ahead, slots), most)
        return self.ahead - ready if ready <= self.ahead // 2 else 0

    def committed(self, left: int, waiting: int) -> None:
        """A run was committed; of those before it so many are left, and so many more wait."""
        if left == 0 and waiting > 0:
            self.ahead *= 2
        elif left > self.ahead // 4:
            self.ahead -= self.ahead // 8
