"""What must hold in every run of the engine, judged from the outside: by what the broker stored,
what the application saw and what the dead-letter topic holds.

Purpose: the truth of a simulated world. It reads no state of the engine but what a crash would
cost at most; so it cannot make the engine's own mistakes.

Owner: one World. Invariants (numbers are those of the design):
* 2: a commit covers only records that were delivered, parked or dropped as configured; what a
  done-map calls done is done.
* 3: a request only for what is committed; none for what may have been processed; what one
  member's crash would lose is within the budget.
* 4: what is committed for a partition never falls.
* 9: while the application was refused and has answered nothing since, one request at a time; since
  a member's last delivery it parks no more than it may.
* 10: only what the application refused often enough is parked or dropped; a connection that broke
  with others when the application died is nobody's failure.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from sidecar.core import done_map
from sidecar.dispatch.in_a_row import LET_THROUGH_SECONDS
from sidecar.model import (
    Answer,
    Assignment,
    Failed,
    FailureKind,
    Guarantee,
    OnExhausted,
    Partition,
    Record,
    Result,
)
from sidecar.settings import RouteSettings
from sidecar.status import RecordAction
from tests.fakes.application import RESET_WITH_OTHERS
from tests.fakes.broker import FakeBroker

UNPROCESSED: Final = (425, 429, 503)
MORE_THAN_THE_RECORD: Final = (401, 403, 405, 408, 425, 429)  # of 4xx: not rejected at once

Coordinates = tuple[Partition, int]


class Broken(AssertionError):
    """An invariant does not hold."""


class Judge:
    def __init__(self, broker: FakeBroker, group: str, settings: RouteSettings) -> None:
        self._broker = broker
        self._group = broker.group(group)
        self._keeps = settings.guarantee is Guarantee.AT_LEAST_ONCE
        self._budget = settings.threshold
        self._max_attempts = settings.retry.max_attempts
        self._topics = settings.topics or ()  # any other is a retry topic
        self.relieves = False  # what holds a watermark may be moved away, whatever it came to
        self._ages = settings.retry.max_age_seconds is not None
        self._timeout_seconds = settings.timeout_seconds
        self._drops = settings.on_exhausted is OnExhausted.DROP
        self._most_in_a_row = settings.max_parked_in_a_row
        self._row: dict[str, set[Record]] = defaultdict(set)  # given to be parked, by member
        self._last_of_row: dict[str, float] = defaultdict(float)
        self._row_before: set[Record] = set()  # and a delivery came after
        self._leaving: set[str] = set()
        self._of_old: set[Assignment] = set()  # of topics that were deleted
        self._given_up: set[Assignment] = set()  # revoked or lost, and the member knows
        self._trials: dict[str, set[Coordinates]] = {}  # sent since it was refused, by member
        self._judged = 0  # entries of the group's history
        self._frontier: dict[Partition, int] = {}  # nothing below is open
        self._committed: dict[Partition, int] = {}
        self._holder: dict[Coordinates, str] = {}  # to whom it was handed over last
        self._perhaps_processed: set[Coordinates] = set()
        self._failed: Counter[tuple[str, Coordinates]] = Counter()  # may count as attempts
        self._rejected: set[Coordinates] = set()
        self._by_hand: set[Coordinates] = set()  # an operator gave them up
        self.done: dict[Partition, set[int]] = defaultdict(set)  # delivered, parked or dropped
        self.delivered: Counter[Coordinates] = Counter()
        self.parked: Counter[Coordinates] = Counter()
        self.moved: Counter[Coordinates] = Counter()
        self.exposed: dict[str, set[Coordinates]] = defaultdict(set)  # at_most_once, by member
        self.lost: set[Coordinates] = set()  # by a crash
        self.perhaps_lost: Counter[str] = Counter()  # told by a member: never known, and not sent

    # --- what happens -------------------------------------------------------------------------

    def starts_at(self, partition: Partition, offset: int) -> None:
        """The group begins here: what lies before is not its business."""
        self._frontier[partition] = self._committed[partition] = offset

    def made_anew(self, partition: Partition) -> None:
        """Its log begins again at 0 with other records."""
        self.starts_at(partition, 0)
        self.done.pop(partition, None)

    def deleted(self, topic: str, assignments: Iterable[Assignment]) -> None:
        """What is still said of these is of a topic that is no more, whatever its name."""
        self._of_old.update(assignments)
        for each in (self._frontier, self._committed, self.done):
            for partition in [known for known in each if known.topic == topic]:
                del each[partition]
        for where in [known for known in self._holder if known[0].topic == topic]:
            del self._holder[where]
        for key in [known for known in self._failed if known[1][0].topic == topic]:
            del self._failed[key]
        sets = (self._perhaps_processed, self._rejected, self._by_hand, self.lost)
        for known in (*sets, *self.exposed.values()):
            known -= {where for where in known if where[0].topic == topic}

    def handed_over(self, member: str, partition: Partition, offset: int) -> None:
        self._holder[partition, offset] = member

    def given_up(self, assignments: Iterable[Assignment]) -> None:
        """Nothing of these is sent any more (at_least_once)."""
        self._given_up.update(assignments)

    def sent(self, member: str, record: Record, attempt: int) -> None:
        self.commits()
        if record.assignment in self._of_old:
            return
        where = (record.assignment.partition, record.offset)
        if member in self._trials:
            self._trials[member].add(where)
            if len(self._trials[member]) > 1:
                raise Broken(f"{member} sends {record}, and the application is not back")
        if self._keeps:
            if record.assignment in self._given_up or not record.assignment.live:
                raise Broken(f"{record} was sent by {member}, which had given it up")
            return
        if self._committed.get(where[0], -1) <= record.offset:
            raise Broken(f"{record} was sent before its offset was committed")
        if where in self._perhaps_processed:
            raise Broken(f"{record} was sent again, though it may have been processed")
        self._perhaps_processed.add(where)

    def answered(self, member: str, record: Record, attempt: int, result: Result) -> None:
        where = (record.assignment.partition, record.offset)
        status = result.status if isinstance(result, Answer) else 0
        if record.assignment in self._of_old:
            self._trials.pop(member, None)
            if 200 <= status < 300:
                self.excused(member)
            return
        self._judge_trial(member, where, result, status)
        if 200 <= status < 300:
            self.excused(member)
            self.delivered[where] += 1
            self._finish(where)
            return
        refused = isinstance(result, Failed) and not result.sent
        nobodys = self._keeps and result is RESET_WITH_OTHERS
        self._failed[member, where] += not refused and not nobodys
        if 400 <= status < 500 and status not in MORE_THAN_THE_RECORD:
            self._rejected.add(where)
        if refused or status in UNPROCESSED:
            self._perhaps_processed.discard(where)
        if self._drops and self._may_be_given_up(member, where):
            self._finish(where)

    def aborted(self, member: str, record: Record, seconds: float, *, reached: bool) -> None:
        """The engine gave the request up: at its deadline, or because it is cut.

        reached: a byte of it may have got to the application.
        """
        if record.assignment in self._of_old:
            return
        where = (record.assignment.partition, record.offset)
        self._trials.get(member, set()).discard(where)
        if not reached:
            self._perhaps_processed.discard(where)
        if seconds >= self._timeout_seconds:
            self._failed[member, where] += 1
            if self._drops and self._may_be_given_up(member, where):
                self._finish(where)

    def parking(self, member: str, record: Record, now: float) -> None:
        if record.assignment in self._of_old:
            return
        where = (record.assignment.partition, record.offset)
        if not self._may_be_given_up(member, where):
            raise Broken(f"{record} is parked after {self._failed[member, where]} failures")
        row = self._row[member]
        if record in self._row_before or member in self._leaving or where in self._by_hand:
            return
        waited = now - self._last_of_row[member]
        self._last_of_row[member] = now
        if not self._keeps and len(row) == self._most_in_a_row and waited >= LET_THROUGH_SECONDS:
            return  # one in a while makes room for another to be tried
        row.add(record)
        if len(row) > self._most_in_a_row:
            raise Broken(f"{member} parks {len(row)} records in a row")

    def moving(self, member: str, record: Record) -> None:
        """To a retry topic."""
        if record.assignment in self._of_old:
            return
        where = (record.assignment.partition, record.offset)
        if not self._may_be_given_up(member, where):
            raise Broken(f"{record} is moved after {self._failed[member, where]} failures")

    def was_moved(self, record: Record) -> None:
        if record.assignment in self._of_old:
            return
        where = (record.assignment.partition, record.offset)
        self.moved[where] += 1
        self._finish(where)

    def was_parked(self, record: Record) -> None:
        if record.assignment in self._of_old:
            return
        where = (record.assignment.partition, record.offset)
        self.parked[where] += 1
        self._finish(where)

    @contextmanager
    def by_hand(self, record: Record, action: RecordAction) -> Iterator[None]:
        """An operator asks for this; what the engine refuses by an exception has not happened."""
        where = (record.assignment.partition, record.offset)
        if record.assignment in self._of_old:
            yield
            return
        before = set(self._by_hand)
        if action is not RecordAction.RETRY:
            self._by_hand.add(where)
        try:
            yield
        except BaseException:
            self._by_hand = before
            raise
        if action is RecordAction.DROP:
            self._finish(where)

    def excused(self, member: str) -> None:
        """Its row of parked records is over."""
        self._row_before |= self._row.pop(member, set())

    def leaves(self, member: str) -> None:
        """It drains: in at_most_once what failed cannot wait any longer."""
        if not self._keeps:
            self._leaving.add(member)

    def _judge_trial(self, member: str, where: Coordinates, result: Result, status: int) -> None:
        if isinstance(result, Failed) and result.kind is FailureKind.UNREACHABLE:
            self._trials.setdefault(member, set()).discard(where)
        elif member in self._trials:
            tried = where in self._trials[member]
            if 200 <= status < 300 or (tried and status):
                del self._trials[member]
            else:
                self._trials[member].discard(where)

    def crashed(self, member: str) -> None:
        self.commits()
        self.lost |= self.exposed.pop(member, set())

    def _may_be_given_up(self, member: str, where: Coordinates) -> bool:
        if self.relieves and self.first_open(where[0]) == where[1]:
            return True
        failed = self._failed[member, where]
        if where in self._by_hand:
            return True
        most = self._max_attempts if where[0].topic in self._topics else 1
        if where in self._rejected or failed >= most or (self._ages and failed):
            return True
        return not self._keeps and where in self._perhaps_processed and failed > 0

    def _finish(self, where: Coordinates) -> None:
        self.done[where[0]].add(where[1])
        holder = self._holder.get(where)
        if holder is None:
            raise Broken(f"something came of {where[0]}/{where[1]}, which nobody was given")
        if holder in self.exposed:
            self.exposed[holder].discard(where)

    # --- commits ------------------------------------------------------------------------------

    def commits(self) -> None:
        """Judge the commits that are new in the broker's history."""
        history = self._group.history
        while self._judged < len(history):
            partition, offset, metadata, member, _ = history[self._judged]
            self._judged += 1
            log = self._broker.log(partition)
            assert log is not None
            before = self._committed.get(partition, min(offset, log.start))
            if offset < before:
                raise Broken(f"{member} commits {offset} of {partition} after {before}")
            if self._keeps:
                self._judge_kept(partition, offset, metadata, member)
            else:
                self._judge_exposed(partition, before, offset, member)
            self._committed[partition] = offset

    def _judge_kept(self, partition: Partition, offset: int, metadata: str, member: str) -> None:
        first = self.first_open(partition)
        if first is not None and offset > first:
            raise Broken(f"{member} commits {offset} of {partition}, {first} is open")
        if not metadata:
            return
        topic_id = self._broker.topics[partition.topic].topic_id
        key = done_map.Key(partition.topic, partition.number, topic_id)
        told = done_map.decode(metadata, key, offset)
        if told is None:
            raise Broken(f"{member} commits metadata that nobody can read: {metadata}")
        for each in self._visible(partition, offset, told.highest + 1):
            if told.is_done(each) and each not in self.done[partition]:
                raise Broken(f"{member} tells that {each} of {partition} is done")

    def _judge_exposed(self, partition: Partition, before: int, offset: int, member: str) -> None:
        exposed = self.exposed[member]
        for each in self._visible(partition, before, offset):
            if each in self.done[partition]:
                continue
            if self._holder.get((partition, each)) != member:
                raise Broken(f"{member} commits {offset} of {partition}: it does not hold {each}")
            exposed.add((partition, each))
        if len(exposed) > self._budget + self.perhaps_lost[member]:
            raise Broken(f"a crash of {member} would lose {len(exposed)} records")

    def first_open(self, partition: Partition) -> int | None:
        """The lowest record that is not done."""
        log = self._broker.log(partition)
        assert log is not None
        done = self.done[partition]
        for index in range(log.index_of(self._frontier.get(partition, 0)), len(log.entries)):
            entry = log.entries[index]
            if entry.visible and entry.offset not in done:
                self._frontier[partition] = entry.offset
                return entry.offset
        self._frontier[partition] = log.end
        return None

    def is_of_old(self, record: Record) -> bool:
        return record.assignment in self._of_old

    def open(self) -> list[Coordinates]:
        """Every record that is not done."""
        return [
            (partition, offset)
            for partition in self._broker.partitions()
            if (first := self.first_open(partition)) is not None
            for offset in self._visible(partition, first, None)
            if offset not in self.done[partition]
        ]

    def _visible(self, partition: Partition, start: int, end: int | None) -> list[int]:
        log = self._broker.log(partition)
        assert log is not None
        stop = len(log.entries) if end is None else log.index_of(end)
        return [e.offset for e in log.entries[log.index_of(start) : stop] if e.visible]
