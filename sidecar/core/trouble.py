"""What the Kafka client last complained about, and since when it has gone on.

Owner: one route, on the loop.
"""

from __future__ import annotations

from typing import Final

LASTS_SECONDS: Final = 30.0  # the client repeats what goes on within this time


class Trouble:
    """last: in words, "" for none so far; since: when it, or what went before it, began."""

    __slots__ = ("_at", "last", "since")

    def __init__(self) -> None:
        self.last = ""
        self.since = self._at = float("-inf")

    def told(self, description: str, now: float) -> None:
        if now - self._at >= LASTS_SECONDS:
            self.since = now
        self.last = description
        self._at = now

    def goes_on(self, now: float, joining_since: float | None) -> bool:
        """A topic that does not exist is told only once: until something is assigned it counts."""
        if joining_since is not None and self._at >= joining_since:
            return True
        return now - self._at < LASTS_SECONDS
