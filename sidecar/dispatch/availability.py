"""Finds out whether the application is there, and tells the breaker.

Owner: one route, on the loop. While the breaker is waiting or held, a probe runs every
PROBE_SECONDS; after a connection broke, one runs soon. What records come to is reported by the
route itself. Whether to leave the group meanwhile is decided here, by core/membership.
"""

from __future__ import annotations

import logging
from typing import Final, Protocol

from sidecar.core.breaker import Breaker, State
from sidecar.core.membership import Membership
from sidecar.logs import RateLimited
from sidecar.ports import Delivery, Scheduler, Timer

log = logging.getLogger(__name__)

PROBE_SECONDS: Final = 0.5
AFTER_A_BREAK_SECONDS: Final = 0.1  # a process that ends closes its sockets one by one
WAITING_TEXT: Final = (
    "waiting for the application at %s, nothing is fetched: %s; start it, or correct the target"
)


class Owner(Protocol):
    """The route, as far as its application's being there is concerned."""

    def app_is_reachable(self) -> None:
        """A probe got through: dispatch may go on."""

    def app_is_gone(self, error: str) -> None:
        """It was there once, and a probe failed."""

    def leave_group(self) -> None: ...

    def return_to_group(self) -> None: ...


class Availability:
    """See the module."""

    __slots__ = (
        "_breaker",
        "_delivery",
        "_look_again",
        "_owner",
        "_probing",
        "_repeating",
        "_scheduler",
        "_stopped",
        "_target",
        "_timer",
        "membership",
    )

    def __init__(
        self,
        owner: Owner,
        scheduler: Scheduler,
        delivery: Delivery,
        breaker: Breaker,
        membership: Membership,
        target: str,
        repeating: RateLimited,
    ) -> None:
        self._owner = owner
        self._scheduler = scheduler
        self._delivery = delivery
        self._breaker = breaker
        self.membership: Final = membership
        self._timer: Timer | None = None
        self._probing = False
        self._look_again = False  # a connection broke while a probe was under way
        self._repeating = repeating
        self._stopped = False
        self._target = target

    def start(self) -> None:
        """Probe at once."""
        self._probe()

    def watch(self) -> None:
        """See to it that a probe is on its way while intake is held, or the group is left."""
        held = self._breaker.state in (State.WAITING, State.HELD)
        if held or self.membership.left_at is not None:
            self._probe_in(PROBE_SECONDS)

    def look_soon(self) -> None:
        """A connection broke: has the application gone with it?"""
        self._look_again = self._probing
        self._probe_in(AFTER_A_BREAK_SECONDS)

    def stop(self) -> None:
        """No probe is started any more, and the answer to one under way is ignored."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _probe_in(self, seconds: float) -> None:
        if self._timer is None and not self._probing and not self._stopped:
            self._timer = self._scheduler.call_later(seconds, self._probe)

    def _probe(self) -> None:
        self._timer = None
        self._probing = True
        self._delivery.probe(self._probed)

    def _probed(self, error: str | None) -> None:
        self._probing = False
        if self._stopped:
            return
        now, breaker, membership = self._scheduler.time(), self._breaker, self.membership
        reached = error is None
        if breaker.state is State.HELD and membership.should_leave(
            now, breaker.down_since, reached
        ):
            self._owner.leave_group()
        elif membership.left_at is not None and membership.should_return(
            now, reached, breaker.state is State.UP
        ):
            self._owner.return_to_group()
        if error is not None:
            self._failed(error)
        elif membership.left_at is None:
            breaker.reachable(now)
            self._owner.app_is_reachable()
        self.watch()
        if self._look_again:
            self.look_soon()

    def _failed(self, error: str) -> None:
        if self._breaker.state is State.WAITING:
            self._breaker.unreachable(error)
            self._repeating.limited("waiting", logging.WARNING, WAITING_TEXT, self._target, error)
        else:
            # Told while held, too: what it had on the wire may have broken only now.
            self._owner.app_is_gone(error)
