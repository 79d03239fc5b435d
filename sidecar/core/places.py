"""The places under the threshold: who may fetch how much.

Two counters with one writer each stand in for a lock: the fetch thread counts what it took,
the loop counts what became free. Each side may see the other's counter late, never wrong, so
the fetch thread can only ask for too little.
"""

from __future__ import annotations


class Places:
    """taken* is written by the fetch thread, freed* and the thresholds by the loop.

    wake_at alone has two writers: it is a hint, and one that is missed costs a short wait.
    """

    __slots__ = (
        "freed",
        "freed_bytes",
        "starved",
        "taken",
        "taken_bytes",
        "threshold",
        "threshold_bytes",
        "wake_at",
    )

    def __init__(self, threshold: int, threshold_bytes: int) -> None:
        self.threshold = threshold
        self.threshold_bytes = threshold_bytes
        self.taken = 0
        self.taken_bytes = 0
        self.freed = 0
        self.freed_bytes = 0
        # The value of freed at which a waiting fetch thread wants to be woken; 0: it does not
        # wait. Set by the fetch thread, cleared by the loop when it wakes it.
        self.wake_at = 0
        # All that is in flight waits for another record to be tried: a single free place will do
        # to end a full pause. Set by the loop.
        self.starved = False

    @property
    def in_flight(self) -> int:
        return self.taken - self.freed

    @property
    def in_flight_bytes(self) -> int:
        return self.taken_bytes - self.freed_bytes
