"""How many requests the application bears at a time: fewer than configured while it says so.

Additive increase, multiplicative decrease: once a tenth of the recent records were answered 429
or 503, half as many requests run; each round of deliveries without such an answer adds one.

Owner: one route, on the loop. Nothing is done here for a delivery while there is no limit: what
was answered is told as a running total.

Invariants:
* A record counts once, however often it is answered so: one alone lowers nothing.
* After a decrease, what was sent before it is not judged.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

RECENT: Final = 100
LEAST_ANSWERS: Final = 20
TOO_MANY: Final = 0.1
LEAST_RECORDS: Final = 3  # so that in twenty answers two by chance are no rule


class Concurrency:
    """limit: requests at a time, None: as many as are wanted. rate: that of the last decrease."""

    __slots__ = ("_from", "_in_a_row", "_recent", "limit", "rate")

    def __init__(self) -> None:
        self.limit: int | None = None
        self.rate = 0.0
        self._from = 0  # answers before this one are not judged
        self._recent: dict[object, int] = {}  # deferred records: at which answer, the last first
        self._in_a_row = 0  # deliveries since the last increase or deferral

    def deferred(self, records: Iterable[object], answers: int, wanted: int) -> bool:
        """These were answered 429 or 503. True if the limit is lower now.

        answers: how many records were answered up to now, these included.
        """
        self._in_a_row = 0
        if answers < self._from:
            return False
        recent = self._recent
        for record in records:
            recent.pop(record, None)
            recent[record] = answers
        oldest = max(answers - RECENT, self._from)
        for record in [record for record, at in recent.items() if at <= oldest]:
            del recent[record]
        judged = min(RECENT, answers - self._from)
        if judged < LEAST_ANSWERS or len(recent) < max(LEAST_RECORDS, TOO_MANY * judged):
            return False
        current = wanted if self.limit is None else min(self.limit, wanted)
        if current <= 1:
            return False
        self.rate = min(1.0, len(recent) / judged)
        self.limit = current // 2
        self._from = answers + current
        recent.clear()
        return True

    def delivered(self, count: int, wanted: int) -> bool:
        """So many were delivered. True if the limit is higher now, or gone."""
        if self.limit is None:
            return False
        self._in_a_row += count
        if self._in_a_row < self.limit:
            return False
        self._in_a_row = 0
        self.limit += 1
        if self.limit >= wanted:
            self.limit = None
            self._recent.clear()
        return True
