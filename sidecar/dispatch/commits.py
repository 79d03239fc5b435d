"""When offsets are handed over to be committed, and what is told of the answers.

Owner: one route, on the loop, from when it fetches until its drain is over. Which offsets, and how
many commits are out at a time, the offsets know; they also post by themselves what cannot wait.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from sidecar.core.ledger import InFlight
from sidecar.dispatch.context import Context
from sidecar.dispatch.offsets import Offsets
from sidecar.logs import gist
from sidecar.ports import CommitResult, Timer


class Commits:
    """also is called with every tick, after the commit was posted."""

    __slots__ = (
        "_also",
        "_counters",
        "_interval_seconds",
        "_log",
        "_offsets",
        "_repeating",
        "_scheduler",
        "_timer",
    )

    def __init__(
        self,
        context: Context,
        interval_seconds: float,
        offsets: Offsets,
        also: Callable[[], None] | None,
    ) -> None:
        self._counters = context.counters
        self._scheduler = context.scheduler
        self._log = context.log
        self._repeating = context.repeating
        self._interval_seconds = interval_seconds
        self._offsets = offsets
        self._also = also
        self._timer: Timer | None = None

    def start(self) -> None:
        self._timer = self._scheduler.call_later(self._interval_seconds, self._tick)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def done(self, result: CommitResult) -> list[InFlight]:
        """The answer to a commit; returns records to be given up."""
        if result.error is not None:
            self._counters.commit_failures += 1
            description = str(result.error)
            key = ("commit", gist(description))
            self._repeating.limited(key, logging.WARNING, "commit failed: %s", description)
        given_up = self._offsets.commit_done(result)
        unknown = {position.assignment for position in result.unknown}
        if lost := [each.record for each in given_up if each.record.assignment in unknown]:
            self._log.error(
                "%d records may be lost, whether they were committed is unknown: %s",
                len(lost),
                ", ".join(map(repr, lost)),
            )
        return given_up

    def _tick(self) -> None:
        self.start()
        self._offsets.commit()
        if self._also is not None:
            self._also()
