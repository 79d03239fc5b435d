"""Commits as the loop orders them, and what becomes of each.

Owner: the fetcher, on its thread; some run inside rebalance callbacks. The answers go to the loop,
through the sink.

Invariants:
* Nothing is committed for an assignment that has ended; a revocation commits what ends with it.
* What a commit came to is told once, and as applied only where the broker said so: one that was
  not answered is read back first, and until then nothing is told. It is read back once the client
  will not send it any more: it keeps a commit through an outage, and what was read before that
  would be true no longer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from sidecar.errors import CommitFailed, CommitUnknown, FatalSource, SourceError
from sidecar.model import Assignment, Partition, Position, Start
from sidecar.ports import CommitResult, Committed, FetchSink, RecordSource

REQUEST_SECONDS: Final = 5.0
READ_BACK_SECONDS: Final = 1.0


class Committer:
    """owned is the fetcher's own view, which changes; warn is for what is tried again and again."""

    def __init__(
        self,
        source: RecordSource,
        owned: Mapping[Partition, Assignment],
        *,
        sink: FetchSink,
        tell: Callable[..., object],
        clock: Callable[[], float],
        log: logging.LoggerAdapter[logging.Logger],
        warn: Callable[[str, SourceError], None],
    ) -> None:
        self._source: Final = source
        self._owned: Final = owned
        self._sink: Final = sink
        self._tell: Final = tell
        self._clock: Final = clock
        self._log: Final = log
        self._warn: Final = warn
        self._unknown: list[Position] | None = None  # a commit whose result has to be read back
        self._unknown_tried_at = 0.0

    def later(self, positions: Sequence[Position]) -> None:
        """Without waiting for the answer."""
        current = self._current(positions)
        if not current:
            self._tell(self._sink.commit_done, CommitResult(()))
            return

        def done(error: Exception | None) -> None:
            applied = current if error is None else ()
            self._tell(self._sink.commit_done, CommitResult(applied, error))

        try:
            self._source.commit_later(_by_partition(current), done)
        except FatalSource:
            raise
        except SourceError as problem:
            done(problem)

    def now(self, positions: Sequence[Position]) -> None:
        """At once, because the loop dispatches nothing of it before."""
        current = self._current(positions)
        error: Exception | None = None
        if current:
            try:
                self._source.commit(_by_partition(current), REQUEST_SECONDS)
            except CommitUnknown as problem:
                self._log.warning("a commit was not answered, reading it back: %s", problem)
                self._unknown = current
                self.read_back(self._clock())
                return
            except CommitFailed as problem:
                current, error = [], problem
        self._tell(self._sink.commit_done, CommitResult(current, error))

    def read_back(self, now: float) -> None:
        """Find out what became of a commit that was not answered; until then nothing starts."""
        if self._unknown is None or self._source.commit_pending():
            return
        if now - self._unknown_tried_at < READ_BACK_SECONDS:
            return
        self._unknown_tried_at = now
        current = self._current(self._unknown)
        try:
            committed = self._source.committed(
                [position.assignment.partition for position in current], REQUEST_SECONDS
            )
        except FatalSource:
            raise
        except SourceError as problem:
            self._warn("cannot read the committed offsets back yet", problem)
            return
        # A partition that left meanwhile is not in current: others may have committed for it. So
        # they have where more is committed, or the same without our mark: it left, and this member
        # does not know it yet.
        unknown = [position for position in self._unknown if position not in current]
        self._unknown = None
        applied = []
        for position in current:
            offset, mark = committed.get(position.assignment.partition, Committed(None, ""))
            if offset == position.offset and mark == position.metadata:
                applied.append(position)
            elif offset is not None and offset >= position.offset:
                unknown.append(position)
        self._tell(self._sink.commit_done, CommitResult(applied, unknown=unknown))

    def at_start(self, starts: list[Start]) -> list[Start]:
        """Commit what the policy said, so that a first record that fails is found again."""
        fresh = [
            Position(s.assignment, s.offset) for s in starts if s.offset >= 0 and not s.committed
        ]
        if not fresh:
            return starts
        try:
            self._source.commit(_by_partition(fresh), REQUEST_SECONDS)
        except FatalSource:
            raise
        except SourceError as problem:
            self._log.warning("the starting position is not committed yet: %s", problem)
            return starts
        done = {position.assignment for position in fresh}
        return [s._replace(committed=True) if s.assignment in done else s for s in starts]

    def at_revocation(self, positions: Iterable[Position]) -> None:
        """The last of assignments that have just been given up."""
        leaving = _by_partition(positions)
        if not leaving:
            return
        try:
            self._source.commit(leaving, REQUEST_SECONDS)
        except FatalSource:
            raise
        except SourceError as problem:
            self._log.warning("the commit on revocation failed, records will repeat: %s", problem)

    def at_end(self, positions: Iterable[Position]) -> None:
        """The last of all. Raises SourceError."""
        if current := self._current(positions):
            self._source.commit(_by_partition(current), REQUEST_SECONDS)

    def _current(self, positions: Iterable[Position]) -> list[Position]:
        return [p for p in positions if self._owned.get(p.assignment.partition) is p.assignment]


def _by_partition(positions: Iterable[Position]) -> Mapping[Partition, tuple[int, str]]:
    return {p.assignment.partition: (p.offset, p.metadata) for p in positions}
