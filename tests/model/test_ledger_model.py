"""A chain of owners of one partition against the plain truth of what is done.

The model keeps sets where the ledger keeps a list, counts and a text in the commit. Records
come with holes, settle in any order, commits are confirmed, refused or never answered, and the
partition passes to the next owner with whatever the broker has by then.
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from sidecar.core import done_map
from sidecar.core.done_map import Key
from sidecar.core.ledger import InFlight, Ledger, Snapshot
from sidecar.model import Record, Start
from tests.fakes.records import assignment, record

TOPIC_ID = "topic-id"
WHOLE_BODY = done_map._BODY_BYTES


@dataclass(frozen=True)
class Commit:
    """What a commit says, and the truth at the time it was made."""

    offset: int
    metadata: str
    known: frozenset[int]  # records that its owner knew to be done


class LedgerOfAChain(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.log: list[int] = []  # offsets that exist
        self.end = 0
        self.done: set[int] = set()  # settled by anybody
        self.epoch = 0
        self.posted: tuple[Snapshot, Commit] | None = None

    def teardown(self) -> None:
        done_map._BODY_BYTES = WHOLE_BODY

    @initialize(
        start=st.integers(0, 300),
        committed=st.booleans(),
        room=st.sampled_from([WHOLE_BODY, WHOLE_BODY, 3]),
    )
    def first_owner(self, start: int, committed: bool, room: int) -> None:
        """room: bytes for a map's outstanding offsets; with three, nearly every map is cut."""
        done_map._BODY_BYTES = room
        self.whole = room == WHOLE_BODY
        self.end = start
        self.broker = Commit(start, "", frozenset())
        self.produce([0] * 10, marker=False)
        self.take_over(committed=committed)

    def take_over(self, *, committed: bool = True) -> None:
        self.epoch += 1
        self.owner = assignment(epoch=self.epoch)
        start = Start(self.owner, self.broker.offset, committed, self.broker.metadata, TOPIC_ID)
        self.ledger = Ledger(start)
        self.outstanding: dict[int, InFlight] = {}
        self.read_to = self.broker.offset
        self.inherited = self.broker.known
        self.known = set(self.inherited)
        self.settled_here: set[int] = set()
        self.confirmed: Commit | None = self.broker if committed else None
        self.low = self.ledger.watermark
        self.posted = None
        self.rules_since = 0

    def to_commit(self) -> tuple[Snapshot, Commit] | None:
        snapshot = self.ledger.snapshot()
        if snapshot is None:
            return None
        position = snapshot.position
        assert position.assignment is self.owner
        return snapshot, Commit(position.offset, position.metadata, frozenset(self.known))

    # --- the log ------------------------------------------------------------------------------

    @rule(
        holes=st.lists(st.sampled_from([0, 0, 0, 1, 2, 7, 200]), min_size=1, max_size=12),
        marker=st.booleans(),
    )
    def produce(self, holes: list[int], marker: bool) -> None:
        for hole in holes:
            self.log.append(self.end + hole)
            self.end += hole + 1
        self.end += marker  # of a transaction, at the end

    @rule(count=st.integers(1, 12))
    def receive(self, count: int) -> None:
        for offset in [o for o in self.log if o >= self.read_to][:count]:
            self.read_to = offset + 1
            unwanted: list[Record] = []
            entries = self.ledger.receive([record(self.owner, offset)], 1.0, unwanted)
            if unwanted:
                assert not entries
                assert offset in self.inherited, f"{offset} is skipped and nobody was told"
                self.known.add(offset)
            else:
                assert not (self.whole and offset in self.inherited), f"{offset} is repeated"
                self.known.discard(offset)  # cut from the map: it will be settled once more
                (self.outstanding[offset],) = entries

    @rule(again=st.integers(0, 5))
    def receive_what_was_received(self, again: int) -> None:
        """A seek back, or a source that repeats itself."""
        for offset in [o for o in self.log if o < self.read_to][-again:] if again else []:
            unwanted: list[Record] = []
            assert self.ledger.receive([record(self.owner, offset)], 1.0, unwanted) == []
            assert len(unwanted) == 1

    @rule(back=st.integers(0, 3))
    def stand_past_what_holds_no_record(self, back: int) -> None:
        following = next((o for o in self.log if o >= self.read_to), self.end)
        self.read_to = max(self.read_to, following)
        self.ledger.advance(following - back)
        self.ledger.advance(following)

    # --- settling and committing --------------------------------------------------------------

    @precondition(lambda self: self.outstanding)
    @rule(data=st.data(), count=st.integers(1, 8))
    def settle(self, data: st.DataObject, count: int) -> None:
        for _ in range(min(count, len(self.outstanding))):
            offset = data.draw(st.sampled_from(sorted(self.outstanding)))
            self.ledger.settle(self.outstanding.pop(offset))
            self.done.add(offset)
            self.known.add(offset)
            self.settled_here.add(offset)

    @rule()
    def commit(self) -> None:
        """The usual case: nothing happens between commit and answer."""
        if self.posted is None:
            self.posted = self.to_commit()
        if self.posted is not None:
            self.answer(applied=True, answered=True)

    @precondition(lambda self: self.posted is None)
    @rule()
    def post(self) -> None:
        self.posted = self.to_commit()

    @precondition(lambda self: self.posted is not None)
    @rule(applied=st.booleans(), answered=st.booleans())
    def answer(self, applied: bool, answered: bool) -> None:
        assert self.posted is not None
        snapshot, commit = self.posted
        self.posted = None
        if applied:
            assert commit.offset >= self.broker.offset, "a commit goes backwards"
            self.broker = commit
            if answered:
                self.confirmed = commit
                self.ledger.confirm(snapshot)

    # --- rebalance ----------------------------------------------------------------------------

    @precondition(lambda self: self.rules_since > 8)
    @rule(crash=st.booleans(), applied=st.booleans())
    def hand_over(self, crash: bool, applied: bool) -> None:
        """The next owner has what the broker got; a crash may come while a commit is under way."""
        last = self.posted if crash and applied else None if crash else self.to_commit()
        if last is not None:
            self.broker = last[1]
        self.take_over()

    # --- what must hold -----------------------------------------------------------------------

    @invariant()
    def watermark_is_true(self) -> None:
        if self.epoch == 0:
            return
        self.rules_since += 1
        watermark = self.ledger.watermark
        assert watermark == min(self.outstanding, default=self.ledger.position)
        assert watermark >= self.low, "the watermark falls"
        self.low = watermark
        assert all(offset in self.done for offset in self.log if offset < watermark)
        assert self.ledger.span == self.ledger.position - watermark

    @invariant()
    def size_is_what_is_outstanding(self) -> None:
        if self.epoch == 0:
            return
        held, entry = [], self.ledger.oldest
        while entry is not None:
            held.append(entry.record.offset)
            entry = entry.next
        assert held == sorted(self.outstanding)
        assert self.ledger.outstanding == len(held)

    @invariant()
    def uncovered_is_what_a_crash_repeats(self) -> None:
        if self.epoch == 0:
            return
        confirmed = self.confirmed
        covered: set[int] = set()
        if confirmed is not None:
            key = Key(self.owner.topic, self.owner.number, TOPIC_ID)
            told = done_map.decode(confirmed.metadata, key, confirmed.offset)
            covered = {
                offset
                for offset in self.settled_here
                if offset < confirmed.offset or (told is not None and told.is_done(offset))
            }
        truth = len(self.settled_here - covered)
        if self.whole:
            assert self.ledger.uncovered == truth
        else:
            assert truth <= self.ledger.uncovered <= len(self.settled_here)

    @invariant()
    def an_idle_group_has_no_lag(self) -> None:
        if self.epoch == 0 or self.outstanding or self.read_to < self.end:
            return
        last = self.to_commit()
        committed = self.ledger.committed if last is None else last[1].offset
        assert committed == self.end or self.ledger.position < self.end


TestLedgerOfAChain = LedgerOfAChain.TestCase
TestLedgerOfAChain.settings = settings(max_examples=60, stateful_step_count=50)
