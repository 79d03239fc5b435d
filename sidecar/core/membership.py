"""Whether a member whose application is away stays in its group.

Pure: the results of probes go in, and whether to leave or to return comes out.

Invariants:
* A member that left stays away until a probe gets through; if answers held it, and not a refused
  connection, at least as long as it had waited before leaving, or until it takes a record.
* A member that returned waits as long again before it leaves.
"""

from __future__ import annotations


class Membership:
    """leave_after_seconds: how long the application may be away; 0: for ever.

    joining_since: since when the group has told of no assignment, None: it has. For whoever shows
    it; kept by the route.
    """

    __slots__ = ("_leave_after", "_refused", "_returned_at", "joining_since", "left_at")

    def __init__(self, leave_after_seconds: float) -> None:
        self._leave_after = leave_after_seconds
        self._refused = False  # the last probe failed
        self._returned_at = float("-inf")
        self.left_at: float | None = None
        self.joining_since: float | None = None

    def should_leave(self, now: float, down_since: float | None, reached: bool) -> bool:
        """Asked with the result of every probe while intake is held. True: it has left.

        An application that was refused and is reached again gets its trial first.
        """
        if self.left_at is not None:
            return False
        came_back = reached and self._refused
        self._refused = not reached
        if down_since is None or came_back or not self._leave_after:
            return False
        if now - max(down_since, self._returned_at) < self._leave_after:
            return False
        self.left_at = now
        return True

    def should_return(self, now: float, reached: bool, up: bool = False) -> bool:
        """Asked with the result of every probe while away. True: it is back.

        up: it took a record meanwhile, or an operator says that it does.
        """
        if self.left_at is None:
            return False
        if not reached:
            self._refused = True
            return False
        if not (up or self._refused) and now - self.left_at < self._leave_after:
            return False
        self._refused = False
        self._returned_at = now
        self.left_at = None
        return True

    def stay(self) -> None:
        """Leave no more: the end has begun."""
        self._leave_after = 0.0
