"""One record by hand: an operator parks it, drops it, or has it tried now, wherever it is.

Owner: one route, on the loop. It takes the record from where it is (an executor, whose request is
cancelled; the delays; the buffer; the parker, between two writes) and puts it where it is to go.

Invariants:
* A record is taken from exactly one place before anything is done with it, so it settles once.
* Whatever cannot be done is refused before anything was touched.
* at_most_once sends nothing again that the application may have processed.
"""

from __future__ import annotations

from itertools import chain
from typing import NamedTuple

from sidecar.core.ledger import InFlight
from sidecar.dispatch.route import Phase, Route
from sidecar.errors import Conflict, NotFound
from sidecar.model import Guarantee, Record, ReturnedRecord
from sidecar.status import RecordAction, RecordPlace

REASON = "by_hand"


class Coordinates(NamedTuple):
    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}"

    def of(self, record: Record) -> bool:
        """Whether they are the record's: where it lies, or where it was first."""
        if (record.offset, record.partition, record.topic) == (
            self.offset,
            self.partition,
            self.topic,
        ):
            return True
        return isinstance(record, ReturnedRecord) and self.of(record.original)


class ByHand:
    """See the module."""

    def __init__(self, route: Route) -> None:
        self._route = route
        self._keeps = route.settings.guarantee is Guarantee.AT_LEAST_ONCE

    def do(self, action: RecordAction, where: Coordinates) -> RecordPlace:
        """Where the record was. Raises NotFound, or Conflict with the reason."""
        entry, place = self._find(where)
        self._check(action, entry, place)
        self._take(entry, place)
        match action:
            case RecordAction.PARK:
                self._route.parker.park_by_hand(entry, REASON, "an operator parked it")
            case RecordAction.DROP:
                self._route.counters.dropped += 1
                self._route.exits.settle(entry)
            case RecordAction.RETRY:
                self._route.ready.put_back([entry])
        self._route.go_on()  # an executor may be free, and a record may start
        return place

    def _find(self, where: Coordinates) -> tuple[InFlight, RecordPlace]:
        route, held_back = self._route, self._route.failures.in_a_row
        places = {
            RecordPlace.EXECUTING: route.executors.entries(),
            RecordPlace.DELAYED: chain(route.delays.entries(), held_back.entries()),
            RecordPlace.PARKING: route.parker.entries(),
            RecordPlace.BUFFERED: chain(route.ready.entries(), route.suspects.entries()),
        }
        for place, entries in places.items():
            for entry in entries:
                if where.of(entry.record):
                    return entry, place
        if any(where.of(entry.record) for entry in route.offsets.uncommitted()):
            raise Conflict(f"{where} is not committed yet, and nothing was done with it so far")
        raise NotFound(f"{where} is not in flight on route {route.settings.name}")

    def _check(self, action: RecordAction, entry: InFlight, place: RecordPlace) -> None:
        route, record = self._route, entry.record
        if route.phase is not Phase.RUNNING:
            raise Conflict(f"the route is {route.phase.value}; {record} is left to the next start")
        if route.revocations.covers(record.assignment):
            raise Conflict(f"the partition of {record} is leaving; ask its next owner")
        if action is RecordAction.PARK and route.settings.dead_letter is None:
            raise Conflict(
                "the route has no dead-letter topic: set dead_letter, or drop the record"
            )
        if place is RecordPlace.PARKING:
            if action is RecordAction.PARK:
                raise Conflict(
                    f"{record} is being parked already, or moved to a retry topic; the write"
                    " repeats by itself"
                )
            if route.parker.is_writing(entry):
                raise Conflict(f"{record} is being written to its topic at this moment")
            if action is RecordAction.RETRY and not self._keeps:
                raise Conflict(f"{record} may have been processed; at_most_once sends it no more")
        if action is RecordAction.RETRY and entry in route.failures.in_a_row.entries():
            raise Conflict(f"{record} may have been processed; at_most_once sends it no more")
        if place is RecordPlace.EXECUTING and not self._keeps:
            if action is RecordAction.RETRY:
                raise Conflict(f"{record} may have been processed; at_most_once sends it no more")
            if route.settings.batch is not None:
                raise Conflict(
                    f"{record} travels in a batch whose other records at_most_once could not send"
                    " again; wait for its answer"
                )

    def _take(self, entry: InFlight, place: RecordPlace) -> None:
        match place:
            case RecordPlace.EXECUTING:
                self._route.feed.cancel(entry)
            case RecordPlace.DELAYED:
                if not self._route.delays.remove(entry):
                    self._route.failures.in_a_row.release(entry)
            case RecordPlace.PARKING:
                self._route.parker.remove(entry)
            case RecordPlace.BUFFERED if entry in self._route.suspects.entries():
                self._route.suspects.remove(entry)
            case RecordPlace.BUFFERED:
                self._route.ready.remove(entry)
