"""The drain: what becomes of the records in flight when a route ends.

Owner: one route, on the loop; it happens once.

Invariants:
* What was not started and is not committed is given back at once; what executes, is being parked or
  is committed is finished.
* Nothing is waited for that cannot come: an application that is away, or the answer to a commit
  where the fetch thread is dead.
* What is cut stays uncommitted, or is lost and told (at_most_once). When it is over nothing is in
  flight any more.
"""

from __future__ import annotations

from collections.abc import Callable

from sidecar.core.buffer import Buffer
from sidecar.core.ledger import InFlight
from sidecar.dispatch.context import Context
from sidecar.dispatch.delays import Delays
from sidecar.dispatch.exits import Exits
from sidecar.dispatch.failures import Failures
from sidecar.dispatch.feed import Feed
from sidecar.dispatch.offsets import Offsets
from sidecar.dispatch.parker import Parker
from sidecar.dispatch.suspects import Suspects
from sidecar.model import Record


class Drain:
    """over is called when nothing is left to wait for.

    unanswered: the fetch thread is dead, and answers no commit. lost: what was cut (at_most_once).
    """

    __slots__ = (
        "_context",
        "_delays",
        "_exits",
        "_failures",
        "_feed",
        "_offsets",
        "_over",
        "_parker",
        "_ready",
        "_suspects",
        "_under_way",
        "lost",
        "unanswered",
    )

    def __init__(
        self,
        context: Context,
        *,
        ready: Buffer,
        delays: Delays,
        suspects: Suspects,
        offsets: Offsets,
        parker: Parker,
        failures: Failures,
        exits: Exits,
        feed: Feed,
        over: Callable[[], None],
    ) -> None:
        self._context = context
        self._ready = ready
        self._delays = delays
        self._suspects = suspects
        self._offsets = offsets
        self._parker = parker
        self._failures = failures
        self._exits = exits
        self._feed = feed
        self._over = over
        self._under_way = False
        self.unanswered = False
        self.lost: list[Record] = []

    def begin(self) -> None:
        """Give back what was not started; what executes goes on."""
        self._under_way = True
        self._exits.watch(self.check)
        if not self._context.keeps:
            self._failures.in_a_row.let_all_go()
        self._feed.finish()
        self._exits.leave_all(self._offsets.stop())
        if self._context.keeps:
            self._exits.leave_all(self._delays.discard_all() + self._suspects.discard_all())
        self._feed.executors.kick()
        self.check()

    def cut(self) -> None:
        """End at once, whatever executes."""
        if self._under_way:
            self._end(self._feed.executors.abort_all() + self._parker.give_up())

    def check(self) -> None:
        """Whether it is over; to be asked whenever something was finished."""
        if not self._under_way or self._feed.executors.busy or len(self._parker):
            return
        if self._offsets.pending and not self.unanswered:
            return
        if (len(self._ready) or len(self._delays)) and self._feed.may_go_on:
            return
        self._end([])  # if the application is not there, nothing more will come of the rest

    def _end(self, unfinished: list[InFlight]) -> None:
        unfinished += self._offsets.abandon()
        unfinished += self._delays.discard_all()
        unfinished += self._ready.discard_all()
        context = self._context
        if not context.keeps:
            self.lost += [entry.record for entry in unfinished]
            context.counters.lost += len(unfinished)
        elif repeated := len(unfinished) + self._exits.given_back:
            context.log.warning("%d records are not finished and will be repeated", repeated)
        self._exits.leave_all(unfinished)
        self._under_way = False
        self._over()
