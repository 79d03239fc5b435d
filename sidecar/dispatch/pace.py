"""Lets no more records start per second than an operator allows.

Owner: one route, on the loop. It stands between the executors and what gives them work only while
there is a limit, so that a route without one pays nothing for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic

from sidecar.core.token_bucket import TokenBucket
from sidecar.dispatch.executors import ExecutorPool, Work
from sidecar.ports import Scheduler, Timer


class Pace(Generic[Work]):
    """size tells how many records a piece of work holds."""

    __slots__ = ("_bucket", "_pool", "_scheduler", "_size", "_take", "_timer")

    def __init__(
        self, scheduler: Scheduler, pool: ExecutorPool[Work], size: Callable[[Work], int]
    ) -> None:
        self._scheduler = scheduler
        self._pool = pool
        self._size = size
        self._take = pool.take
        self._bucket: TokenBucket | None = None
        self._timer: Timer | None = None

    @property
    def rate(self) -> float | None:
        """Records per second at most; None: as many as can be."""
        return None if self._bucket is None else self._bucket.rate

    @property
    def holds(self) -> bool:
        """Whether an executor would have started one by now."""
        return self._timer is not None

    def limit(self, rate: float | None) -> None:
        self.stop()
        if rate is None:
            self._bucket = None
            self._pool.take = self._take
        else:
            self._bucket = TokenBucket(rate, self._scheduler.time())
            self._pool.take = self._take_in_time
        self._pool.kick()

    def _take_in_time(self) -> Work | None:
        assert self._bucket is not None
        wait = self._bucket.wait(self._scheduler.time())
        if wait > 0:
            if self._timer is None:
                self._timer = self._scheduler.call_later(wait, self._on_time)
            return None
        work = self._take()
        if work is not None:
            self._bucket.spend(self._size(work))
        return work

    def _on_time(self) -> None:
        self._timer = None
        self._pool.kick()

    def stop(self) -> None:
        """Nothing is dispatched any more, or the limit is another."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
