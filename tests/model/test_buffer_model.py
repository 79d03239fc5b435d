"""The buffer against one plain list per assignment."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sidecar.core.buffer import Buffer
from sidecar.core.ledger import InFlight
from tests.fakes.records import assignment, in_flight

LANES = 4


class BufferOfLists(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.buffer = Buffer()
        self.owners = [assignment(number) for number in range(LANES)]
        self.lanes: list[list[InFlight]] = [[] for _ in range(LANES)]
        self.taken: list[InFlight] = []
        self.following = 0
        self.passed_over = [0] * LANES  # takes since a lane that is not empty had its turn

    def forget_turns(self) -> None:
        self.passed_over = [0] * LANES

    @rule(lane=st.integers(0, LANES - 1), count=st.integers(1, 4))
    def add(self, lane: int, count: int) -> None:
        for _ in range(count):
            entry = in_flight(self.owners[lane], self.following)
            self.following += 1
            self.buffer.add(entry)
            self.lanes[lane].append(entry)

    @rule()
    def take(self) -> None:
        entry = self.buffer.take()
        if entry is None:
            assert not any(self.lanes)
            return
        lane = entry.record.partition
        assert self.lanes[lane].pop(0) is entry
        self.taken.append(entry)
        for other in range(LANES):
            waits = other != lane and self.lanes[other]
            self.passed_over[other] = self.passed_over[other] + 1 if waits else 0
            assert self.passed_over[other] < LANES, "a lane waits longer than one round"

    @precondition(lambda self: self.taken)
    @rule(data=st.data())
    def put_back(self, data: st.DataObject) -> None:
        """The last ones taken, oldest first."""
        count = data.draw(st.integers(1, len(self.taken)))
        back, self.taken = self.taken[-count:], self.taken[:-count]
        self.buffer.put_back(back)
        for entry in reversed(back):
            self.lanes[entry.record.partition].insert(0, entry)
        self.forget_turns()

    @rule(lane=st.integers(0, LANES - 1))
    def revoke(self, lane: int) -> None:
        assert self.buffer.discard(self.owners[lane]) == self.lanes[lane]
        self.lanes[lane] = []
        self.taken = [e for e in self.taken if e.record.partition != lane]
        self.owners[lane] = assignment(lane, epoch=self.following)
        self.forget_turns()

    @rule()
    def discard_all(self) -> None:
        held = {id(entry) for entry in self.buffer.discard_all()}
        assert held == {id(entry) for lane in self.lanes for entry in lane}
        self.lanes = [[] for _ in range(LANES)]
        self.forget_turns()

    @invariant()
    def counts_are_true(self) -> None:
        assert len(self.buffer) == sum(map(len, self.lanes))
        for owner, lane in zip(self.owners, self.lanes, strict=True):
            assert self.buffer.waiting(owner) == len(lane)


TestBufferOfLists = BufferOfLists.TestCase
TestBufferOfLists.settings = settings(max_examples=80, stateful_step_count=40)
