"""Which end offsets are known from fetching, and which have to be asked for.

Owner: the fetcher, on its thread; looked at once a second. Fetching tells the end of whatever is
being fetched. What is paused is not; nor is what the client has enough of in its queue: then
there is something to read and the end stands still.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from typing import Final

from sidecar.model import Assignment, Partition
from sidecar.ports import RecordSource

ASK_SECONDS: Final = 5.0


class Ends:
    def __init__(self, source: RecordSource, clock: Callable[[], float]) -> None:
        self._source: Final = source
        self._clock: Final = clock
        self._asked_at = -math.inf
        self._last: Mapping[Partition, int] = {}

    def look(
        self, owned: Mapping[Partition, Assignment], paused: Collection[Assignment]
    ) -> Mapping[Partition, int]:
        """What is known now; what fetching does not tell is asked for, and known another time."""
        before, self._last = self._last, self._source.ends(list(owned))
        now = self._clock()
        if now - self._asked_at >= ASK_SECONDS:
            untold = [
                partition
                for partition, assignment in owned.items()
                if assignment in paused or self._stands_still(assignment, before)
            ]
            if untold:
                self._asked_at = now
                self._source.ask_ends(untold)
        return self._last

    def _stands_still(self, assignment: Assignment, before: Mapping[Partition, int]) -> bool:
        end = self._last.get(assignment.partition)
        return end == before.get(assignment.partition) and (
            end is None or assignment.next_offset < end
        )
