"""Finds out whether the application is there, and tells the breaker.

Owner: one route, on the loop. While the breaker is waiting or held, a probe runs every
PROBE_SECONDS; what records come to is reported by the route itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from sidecar.core.breaker import Breaker, State
from sidecar.logs import RateLimited
from sidecar.ports import Delivery, Scheduler, Timer

log = logging.getLogger(__name__)

PROBE_SECONDS: Final = 0.5
WAITING_TEXT: Final = (
    "waiting for the application at %s, nothing is fetched: %s; start it, or correct the target"
)


class Availability:
    """changed is called after a probe got through: dispatch may go on."""

    __slots__ = (
        "_breaker",
        "_changed",
        "_delivery",
        "_probing",
        "_repeating",
        "_scheduler",
        "_stopped",
        "_target",
        "_timer",
    )

    def __init__(
        self,
        scheduler: Scheduler,
        delivery: Delivery,
        breaker: Breaker,
        changed: Callable[[], None],
        target: str,
    ) -> None:
        self._scheduler = scheduler
        self._delivery = delivery
        self._breaker = breaker
        self._changed = changed
        self._timer: Timer | None = None
        self._probing = False
        self._repeating = RateLimited(log, clock=scheduler.time)
        self._stopped = False
        self._target = target

    def start(self) -> None:
        """Probe at once."""
        self._probe()

    def watch(self) -> None:
        """The breaker is held: see to it that a probe is on its way."""
        if self._timer is None and not self._probing and not self._stopped:
            self._timer = self._scheduler.call_later(PROBE_SECONDS, self._probe)

    def stop(self) -> None:
        """No probe is started any more, and the answer to one under way is ignored."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _probe(self) -> None:
        self._timer = None
        self._probing = True
        self._delivery.probe(self._probed)

    def _probed(self, error: str | None) -> None:
        self._probing = False
        if self._stopped:
            return
        if error is None:
            self._breaker.reachable(self._scheduler.time())
            self._changed()
        else:
            self._breaker.unreachable(error)
            if self._breaker.state is State.WAITING:
                self._repeating.limited(
                    "waiting", logging.WARNING, WAITING_TEXT, self._target, error
                )
        if self._breaker.state in (State.WAITING, State.HELD):
            self.watch()
