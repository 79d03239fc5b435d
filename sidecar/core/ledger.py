"""The ledger: per assignment, which records are outstanding, and the watermark.

Owner: the offsets of one route, on the loop. What is outstanding is a linked list in offset
order, so receiving and settling cost the same whatever the span, and the size is what is
outstanding and nothing else.

Invariants:
* Only received offsets are tracked: a hole (compaction, a transaction marker) costs nothing.
* The watermark is the lowest outstanding offset, or the position if there is none; it never
  falls, and it never passes an outstanding record.
* A record is settled once; a second time is a fault of the caller and raises.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from sidecar.core import done_map
from sidecar.core.done_map import DoneMap
from sidecar.model import Assignment, Position, Record, Start

ANY_BATCH: Final = 1_000_000


class InFlight:
    """A record between fetch and settle, with what is known of its attempts.

    tries counts requests sent; attempts counts those that are held against the record.
    batch_limit is the size of the largest batch it may still travel in.
    """

    __slots__ = (
        "attempts",
        "batch_limit",
        "deliveries_seen",
        "first_try_at",
        "ledger",
        "next",
        "previous",
        "received_at",
        "record",
        "settled_after",
        "tries",
    )

    def __init__(self, record: Record, received_at: float) -> None:
        self.record = record
        self.received_at = received_at  # scheduler time
        self.tries = 0
        self.attempts = 0
        self.batch_limit = ANY_BATCH
        self.first_try_at = 0.0  # scheduler time of the first try
        self.deliveries_seen = -1  # the route's deliveries when this record was last tried
        self.ledger: Ledger | None = None  # while it is outstanding there
        self.previous: InFlight | None = None
        self.next: InFlight | None = None
        self.settled_after = 0  # settled here, between this one and the next outstanding

    def __repr__(self) -> str:
        return f"<{self.record} attempts={self.attempts}>"


class Snapshot(NamedTuple):
    """What a ledger wants committed; covered counts the settled records it accounts for."""

    position: Position
    covered: int


class Ledger:
    """See the module. Offsets are next-to-read offsets."""

    __slots__ = (
        "_committed",
        "_head",
        "_highest_settled",
        "_inherited",
        "_key",
        "_tail",
        "assignment",
        "outstanding",
        "position",
        "uncovered",
    )

    def __init__(self, start: Start) -> None:
        assignment = start.assignment
        self.assignment: Assignment = assignment
        self.position = start.offset
        self.outstanding = 0
        self.uncovered = 0  # settled and not yet covered by a commit: a crash repeats them
        self._committed = (start.offset, start.metadata) if start.committed else None
        self._head: InFlight | None = None
        self._tail: InFlight | None = None
        self._highest_settled = start.offset - 1
        self._key = done_map.Key(assignment.topic, assignment.number, start.topic_id)
        self._inherited: DoneMap | None = done_map.decode(start.metadata, self._key, start.offset)

    @property
    def watermark(self) -> int:
        """The next offset to commit; -1 while the position is unknown."""
        return self.position if self._head is None else self._head.record.offset

    @property
    def committed(self) -> int | None:
        """The offset last confirmed by the broker."""
        return None if self._committed is None else self._committed[0]

    @property
    def span(self) -> int:
        return max(0, self.position - self.watermark)

    @property
    def oldest(self) -> InFlight | None:
        """The outstanding record that holds the watermark."""
        return self._head

    def receive(
        self, records: Iterable[Record], now: float, unwanted: list[Record]
    ) -> list[InFlight]:
        """Track records, in the order of their offsets.

        unwanted gets those that are not to be delivered: an earlier owner has done them.
        """
        entries: list[InFlight] = []
        tail = self._tail
        for record in records:  # plain and flat: this runs for every record
            offset = record.offset
            if offset < self.position:
                unwanted.append(record)
                continue
            self.position = offset + 1
            if self._inherited is not None and self._was_done(offset):
                unwanted.append(record)
                continue
            entry = InFlight(record, now)
            entry.ledger = self
            if tail is None:
                self._head = entry
            else:
                tail.next = entry
                entry.previous = tail
            tail = entry
            entries.append(entry)
        self._tail = tail
        self.outstanding += len(entries)
        return entries

    def _was_done(self, offset: int) -> bool:
        """Whether an earlier owner has done it, of whom nothing is kept that is not needed."""
        inherited = self._inherited
        if inherited is None:
            return False
        if inherited.is_done(offset):
            self._highest_settled = offset
            return True
        if offset > inherited.highest:
            self._inherited = None
        return False

    def advance(self, position: int) -> None:
        """The consumer stands here: what lies before was received or does not exist."""
        self.position = max(self.position, position)

    def settle(self, entry: InFlight) -> None:
        if entry.ledger is not self:
            raise RuntimeError(f"settled twice: {entry.record}")
        entry.ledger = None
        previous, following = entry.previous, entry.next
        if previous is None:
            self._head = following
        else:
            previous.next = following
            previous.settled_after += entry.settled_after + 1
        if following is None:
            self._tail = previous
        else:
            following.previous = previous
        entry.previous = entry.next = None
        offset = entry.record.offset
        if offset > self._highest_settled:  # noqa: PLR1730 - runs for every record
            self._highest_settled = offset
        self.outstanding -= 1
        self.uncovered += 1

    def snapshot(self) -> Snapshot | None:
        """What to commit now, or None if the broker has exactly that already."""
        base = self.watermark
        if base < 0 or (self.uncovered == 0 and base == self.committed):
            return None
        highest = self._highest_settled
        inherited = self._inherited
        if inherited is not None and inherited.highest >= self.position:
            highest = max(highest, inherited.highest)
        offsets = []
        entry = self._head
        while entry is not None and entry.record.offset <= highest:
            offsets.append(entry.record.offset)
            entry = entry.next
        if inherited is not None:
            offsets += sorted(o for o in inherited.outstanding if o >= self.position)
        metadata, described = done_map.encode(self._key, base, offsets, highest)
        if self._committed == (base, metadata):
            return None
        cut = 0 if described >= highest else self._settled_above(described)
        return Snapshot(Position(self.assignment, base, metadata), max(0, self.uncovered - cut))

    def confirm(self, snapshot: Snapshot) -> None:
        """The broker has committed this snapshot."""
        self._committed = (snapshot.position.offset, snapshot.position.metadata)
        self.uncovered -= snapshot.covered

    def _settled_above(self, described: int) -> int:
        """How many records settled here lie above an offset; with holes, an upper bound.

        What an earlier owner settled is not counted: its map fitted, and what is outstanding
        below its end only becomes less.
        """
        count = 0
        following = self._highest_settled + 1
        entry = self._tail
        while entry is not None and entry.record.offset > described:
            count += entry.settled_after
            following = entry.record.offset
            entry = entry.previous
        if entry is not None:
            count += max(0, min(entry.settled_after, following - described - 1))
        return count
