"""How many records the fetcher may ask for now, and which partitions to pause.

Owner: the fetch thread. Time is an argument.

A full buffer is no reason to pause: what was prefetched would be thrown away and fetched
again. The fetcher asks for what fits, or for a moment for nothing. It pauses

* everything, when not one place became free for STUCK_SECONDS, because the client can only be
  polled on (for rebalances) if nothing can come out of it;
* the partitions that hold more than their share, when the application is so slow that what the
  client has queued of them would keep the others waiting; each until it holds less than half of
  its share, so that none waits for good.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from sidecar.core.places import Places
from sidecar.model import Assignment

MAX_BATCH: Final = 500
MAX_BATCH_BYTES: Final = 2_097_152  # while a batch is taken over it is there twice
STUCK_SECONDS: Final = 1.0
REVIEW_SECONDS: Final = 1.0


class Intake:
    __slots__ = (
        "_all_paused",
        "_full_since",
        "_largest",
        "_largest_before",
        "_limited",
        "_places",
        "_reviewed_at",
        "_reviewed_freed",
        "_share",
    )

    def __init__(self, places: Places) -> None:
        self._places = places
        self._full_since: float | None = None
        self._all_paused = False
        self._limited = False  # the buffer was full at some time since the last review
        self._reviewed_at = 0.0
        self._reviewed_freed = 0
        self._share = 0  # of one assignment in what was in flight at the last review
        self._largest = 1  # largest record since the last review, and in the period before
        self._largest_before = 1

    @property
    def all_paused(self) -> bool:
        return self._all_paused

    def room(self) -> int:
        """How many records may be asked for: never more than there are free places."""
        places = self._places
        free = min(places.threshold - places.in_flight, MAX_BATCH)
        if free <= 0:
            return 0
        free_bytes = places.threshold_bytes - places.in_flight_bytes
        if free_bytes <= 0:
            return 0
        self._full_since = None
        free_bytes = min(free_bytes, MAX_BATCH_BYTES)
        return max(1, min(free, free_bytes // max(self._largest, self._largest_before)))

    def worthwhile(self) -> int:
        """For how many free places it pays to ask while the buffer is nearly full."""
        places = self._places
        by_bytes = places.threshold_bytes // max(self._largest, self._largest_before) // 8
        return max(1, min(places.threshold // 8, by_bytes, 256))

    def note_size(self, size: int) -> None:
        self._largest = max(self._largest, size)

    def should_pause_all(self, room: int, now: float) -> bool:
        """True when everything is to be paused now; call it once per step with the room."""
        if room < self.worthwhile():
            self._limited = True
        if room > 0:
            return False
        if self._full_since is None:
            self._full_since = now
        if self._all_paused or now - self._full_since < STUCK_SECONDS:
            return False
        self._all_paused = True
        return True

    def should_resume_all(self) -> bool:
        """True when a full pause ends: half of the places are free, or one does for a trial."""
        places = self._places
        if not self._all_paused:
            return False
        if not (places.starved and places.in_flight < places.threshold) and (
            places.in_flight > places.threshold // 2
            or places.in_flight_bytes > places.threshold_bytes // 2
        ):
            return False
        self._all_paused = False
        self._full_since = None
        return True

    def review(
        self, now: float, assignments: Iterable[Assignment], paused: set[Assignment]
    ) -> tuple[list[Assignment], list[Assignment]]:
        """Once a second: the assignments to pause and to resume so that all get their turn."""
        if now - self._reviewed_at < REVIEW_SECONDS:
            return [], self._to_resume(paused)
        places = self._places
        turnover = places.freed - self._reviewed_freed
        slow = self._limited and turnover < places.threshold
        self._reviewed_at = now
        self._reviewed_freed = places.freed
        self._limited = False
        self._largest_before, self._largest = self._largest, 1
        owned = list(assignments)
        self._share = places.in_flight // max(1, len(owned))
        resumed = self._to_resume(paused)
        if not slow or self._plenty:
            return [], resumed
        greedy = [a for a in owned if a.in_flight > self._share and a not in paused]
        if len(greedy) + len(paused) - len(resumed) == len(owned):
            return [], resumed  # all alike: nobody waits for anybody
        return greedy, resumed

    @property
    def _plenty(self) -> bool:
        """A quarter of the places is free: nobody needs to wait for others."""
        places = self._places
        return (
            places.in_flight <= places.threshold * 3 // 4
            and places.in_flight_bytes <= places.threshold_bytes * 3 // 4
        )

    def _to_resume(self, paused: set[Assignment]) -> list[Assignment]:
        """Those paused for their greed that may go on."""
        if not paused:
            return []
        if self._plenty:
            return list(paused)
        return [assignment for assignment in paused if assignment.in_flight * 2 <= self._share]
