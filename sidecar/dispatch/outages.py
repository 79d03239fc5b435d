"""What the results of attempts say about the application: the breaker is told, and the log.

Owner: one route, on the loop. Every result of a record that is not a delivery in calm weather
comes by here once, before it is decided what becomes of the record.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from sidecar.core.breaker import Breaker
from sidecar.core.ledger import InFlight
from sidecar.dispatch.availability import Availability
from sidecar.dispatch.context import Context
from sidecar.dispatch.suspects import Suspects
from sidecar.logs import gist
from sidecar.model import Answer, Result


class Outages:
    """go_on is called when an outage has ended."""

    __slots__ = (
        "_availability",
        "_breaker",
        "_go_on",
        "_log",
        "_repeating",
        "_scheduler",
        "_suspects",
        "_target",
    )

    def __init__(
        self,
        context: Context,
        breaker: Breaker,
        availability: Availability,
        suspects: Suspects,
        go_on: Callable[[], None],
    ) -> None:
        self._target = context.settings.target
        self._scheduler = context.scheduler
        self._log = context.log
        self._repeating = context.repeating
        self._breaker = breaker
        self._availability = availability
        self._suspects = suspects
        self._go_on = go_on

    def delivered(self, entries: Sequence[InFlight]) -> None:
        ended = self._breaker.delivered(entries[0], self._scheduler.time())
        for entry in entries:
            self._suspects.ended(entry, innocent=True)
        if ended:
            self._over()

    def failed(self, entry: InFlight, result: Result) -> None:
        """The record failed, not the application."""
        now = self._scheduler.time()
        if not isinstance(result, Answer):
            self._breaker.unanswered(entry, now)
        elif self._breaker.answered(entry, now):
            self._over()
        self._availability.watch()

    def cancelled(self, entry: InFlight) -> None:
        """Its request was cut, which says nothing of the application."""
        self._suspects.ended(entry, innocent=True)
        self._breaker.unanswered(entry, self._scheduler.time())
        self._availability.watch()

    def app_down(self, entry: InFlight | None, error: str, at_once: bool) -> None:
        """The application cannot take anything; at_once: hold intake now."""
        was = self._breaker.state
        if at_once:
            self._suspects.app_is_gone()
        self._breaker.app_down(entry, self._scheduler.time(), error, at_once)
        self._availability.watch()
        if self._breaker.state is not was:
            # Every trial that fails comes here again.
            self._repeating.limited(
                ("held", gist(error)),
                logging.WARNING,
                "%s: %s; intake is held until the application is there and answers, and it is tried"
                " every half second: see that it runs, and that target is right",
                self._target,
                error,
            )

    def hold(self, error: str) -> None:
        """The application takes nothing: hold intake until a record is delivered."""
        was = self._breaker.state
        self._breaker.hold(self._scheduler.time(), error)
        self._availability.watch()
        if self._breaker.state is not was:
            self._repeating.limited(
                "held back",
                logging.ERROR,
                "%s; intake is held until the application takes a record, and one is tried every"
                " half second: see why it takes none",
                error,
            )

    def connection_broke(self) -> None:
        self._availability.look_soon()

    def _over(self) -> None:
        self._log.info("the application answers again")
        self._scheduler.call_soon(self._go_on)  # when this record is where it belongs
