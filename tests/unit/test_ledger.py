"""The ledger: which offset may be committed, what the commit tells, and what it costs to know."""

from __future__ import annotations

import sys
from collections.abc import Callable
from random import Random
from types import FrameType

import pytest

from sidecar.core import ledger as module
from sidecar.core.done_map import MAX_CHARACTERS
from sidecar.core.ledger import InFlight, Ledger, Snapshot
from sidecar.model import Assignment, Record, Start
from tests.fakes.records import assignment, record


def ledger(
    offset: int = 0,
    *,
    committed: bool = True,
    metadata: str = "",
    owner: Assignment | None = None,
) -> Ledger:
    return Ledger(Start(owner or assignment(), offset, committed, metadata, "topic-id"))


def receive(book: Ledger, *offsets: int) -> list[InFlight]:
    """Receive records that all are to be delivered."""
    unwanted: list[Record] = []
    entries = book.receive((record(book.assignment, offset) for offset in offsets), 0.0, unwanted)
    assert not unwanted
    return entries


def receive_one(book: Ledger, offset: int) -> InFlight | None:
    """None: it is not to be delivered."""
    unwanted: list[Record] = []
    entries = book.receive([record(book.assignment, offset)], 0.0, unwanted)
    assert len(entries) + len(unwanted) == 1
    return entries[0] if entries else None


def settle(book: Ledger, *entries: InFlight) -> None:
    for entry in entries:
        book.settle(entry)


def to_commit(book: Ledger) -> Snapshot:
    snapshot = book.snapshot()
    assert snapshot is not None
    return snapshot


def commit(book: Ledger) -> int:
    snapshot = to_commit(book)
    book.confirm(snapshot)
    return snapshot.position.offset


def next_owner(book: Ledger, snapshot: Snapshot) -> Ledger:
    """The ledger of whoever gets the partition after this commit."""
    position = snapshot.position
    return ledger(position.offset, metadata=position.metadata, owner=assignment(epoch=2))


# --- the watermark ----------------------------------------------------------------------------


def test_a_later_success_does_not_move_it_past_an_earlier_failure() -> None:
    book = ledger()
    first, second, third = receive(book, 0, 1, 2)
    settle(book, first, third)
    assert book.watermark == 1
    settle(book, second)
    assert book.watermark == 3


@pytest.mark.parametrize("start", [0, 31])
def test_a_slow_first_record_holds_it_and_then_it_jumps(start: int) -> None:
    book = ledger(start)
    head, *others = receive(book, *range(start, start + 10))
    settle(book, *reversed(others))
    assert (book.watermark, book.oldest, book.span) == (start, head, 10)
    settle(book, head)
    assert (book.watermark, book.oldest, book.span) == (start + 10, None, 0)


def test_offsets_that_compaction_removed_cost_nothing() -> None:
    book = ledger()
    entries = receive(book, 0, 1, 5, 6, 9)
    settle(book, entries[0], entries[1], entries[3])
    assert book.watermark == 5
    settle(book, entries[2], entries[4])
    assert commit(book) == 10


def test_a_transaction_marker_at_the_end_is_passed_once_nothing_is_outstanding() -> None:
    book = ledger()
    entries = receive(book, 0, 1, 2)
    book.advance(4)
    assert book.watermark == 0
    settle(book, entries[0], entries[2])
    assert commit(book) == 1
    settle(book, entries[1])
    assert commit(book) == 4
    book.advance(3)
    assert book.watermark == 4, "a position that comes late moves nothing back"


def test_a_record_below_the_position_is_not_taken_again() -> None:
    book = ledger(5)
    receive(book, 5, 6)
    assert receive_one(book, 4) is None
    assert receive_one(book, 6) is None
    assert (book.outstanding, book.watermark) == (2, 5)


def test_an_unknown_start_is_told_by_the_first_record() -> None:
    book = ledger(-1, committed=False)
    assert (book.watermark, book.committed, book.snapshot()) == (-1, None, None)
    [entry] = receive(book, 700)
    assert (book.watermark, book.span) == (700, 1)
    assert commit(book) == 700
    settle(book, entry)
    assert commit(book) == 701


def test_settling_twice_is_a_fault_of_the_caller() -> None:
    book = ledger()
    [entry, _] = receive(book, 0, 1)
    settle(book, entry)
    with pytest.raises(RuntimeError, match="settled twice: orders/0/0"):
        book.settle(entry)
    assert (book.outstanding, book.uncovered, book.watermark) == (1, 1, 1)


# --- commits ----------------------------------------------------------------------------------


def test_there_is_nothing_to_commit_while_the_broker_has_it_already() -> None:
    book = ledger(7)
    assert book.snapshot() is None
    receive(book, 7)
    assert book.snapshot() is None


def test_a_start_that_was_only_resolved_is_committed() -> None:
    book = ledger(7, committed=False)
    assert commit(book) == 7
    assert book.snapshot() is None


def test_a_commit_that_was_not_confirmed_is_asked_for_again_with_the_current_value() -> None:
    book = ledger()
    first, second = receive(book, 0, 1)
    settle(book, first)
    assert to_commit(book).position.offset == 1
    settle(book, second)
    assert to_commit(book).position.offset == 2
    assert book.uncovered == 2


def test_what_settles_while_a_commit_is_under_way_is_not_covered_by_it() -> None:
    book = ledger()
    first, second = receive(book, 0, 1)
    settle(book, first)
    snapshot = to_commit(book)
    settle(book, second)
    book.confirm(snapshot)
    assert (book.committed, book.uncovered) == (1, 1)
    assert commit(book) == 2
    assert book.uncovered == 0


def test_the_next_owner_repeats_nothing_that_the_commit_tells_of() -> None:
    book = ledger(10)
    entries = receive(book, *range(10, 20))
    settle(book, *entries[1:4], *entries[5:8])
    heir = next_owner(book, to_commit(book))
    again = [receive_one(heir, offset) for offset in range(10, 22)]
    assert [entry.record.offset for entry in again if entry] == [10, 14, 18, 19, 20, 21]
    assert (heir.watermark, heir.uncovered, heir.outstanding) == (10, 0, 6)


def test_an_heir_that_has_read_nothing_yet_hands_on_what_it_inherited() -> None:
    """Three owners in a row; the one in the middle got only the first record."""
    book = ledger(10)
    entries = receive(book, *range(10, 20))
    settle(book, *entries[2:5], *entries[7:])
    heir = next_owner(book, to_commit(book))
    settle(heir, *receive(heir, 10))
    last = next_owner(heir, to_commit(heir))
    again = [receive_one(last, offset) for offset in range(11, 21)]
    assert [entry.record.offset for entry in again if entry] == [11, 15, 16, 20]


def test_an_heir_that_has_read_past_what_it_inherited_still_hands_it_on() -> None:
    book = ledger(10)
    head, *others = receive(book, *range(10, 20))
    settle(book, *others)
    heir = next_owner(book, to_commit(book))
    [again] = receive(heir, 10)
    assert [receive_one(heir, offset) for offset in range(11, 20)] == ([None] * 9)
    assert receive(heir, 20, 21)
    assert heir.snapshot() is None, "nothing has changed"
    settle(heir, again)
    assert to_commit(heir).position.offset == 20
    assert head.ledger is not None


def test_what_was_inherited_is_told_also_when_nothing_above_it_is_settled() -> None:
    book = ledger(10)
    first, second, *others = receive(book, *range(10, 20))
    settle(book, *others)
    heir = next_owner(book, to_commit(book))
    for offset in range(10, 20):
        receive_one(heir, offset)
    oldest = heir.oldest
    assert oldest is not None
    assert receive(heir, 20)
    settle(heir, oldest)
    last = next_owner(heir, to_commit(heir))
    again = [receive_one(last, offset) for offset in range(11, 21)]
    assert [entry.record.offset for entry in again if entry] == [11, 20]
    assert first.ledger is not None
    assert second.ledger is not None


@pytest.mark.parametrize("step", [1, 2, 3, 50, 300])
def test_what_a_commit_cannot_tell_stays_exposed_and_is_not_promised(step: int) -> None:
    """The head is stuck and every step-th is outstanding, far more than fits; no holes."""
    last = 40_000
    book = ledger()
    entries = receive(book, *range(last))
    stuck = {0, *range(0, last, step)} if step > 1 else {*range(0, last, 2), *range(3, last, 7)}
    done = [entry for entry in entries if entry.record.offset not in stuck]
    Random(step).shuffle(done)
    settle(book, *done)
    snapshot = to_commit(book)
    assert len(snapshot.position.metadata) <= MAX_CHARACTERS
    book.confirm(snapshot)
    assert book.snapshot() is None, "what was cut is no reason to commit the same again"
    heir = next_owner(book, snapshot)
    repeated = [
        offset for offset in range(last) if receive_one(heir, offset) and offset not in stuck
    ]
    assert book.uncovered == len(repeated)
    settle(book, *(entry for entry in entries if entry.ledger is not None))
    assert commit(book) == last
    assert book.uncovered == 0


def test_with_holes_the_exposure_is_never_told_too_low() -> None:
    book = ledger()
    entries = receive(book, *range(0, 90_000, 3))
    settle(book, *(e for e in entries[1:] if e.record.offset % 9))
    snapshot = to_commit(book)
    book.confirm(snapshot)
    heir = next_owner(book, snapshot)
    repeated = sum(
        receive_one(heir, offset) is not None and offset % 9 != 0 for offset in range(0, 90_000, 3)
    )
    assert repeated > 0
    assert repeated <= book.uncovered <= repeated + 2


# --- what it costs ----------------------------------------------------------------------------


def lines_of(work: Callable[[], object]) -> int:
    """How many lines of the ledger's module a call runs: a cost without a clock."""
    count = 0

    def trace(frame: FrameType, event: str, _: object) -> object:
        nonlocal count
        if frame.f_code.co_filename != module.__file__:
            return None
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)  # type: ignore[arg-type]
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def test_the_cost_of_a_record_does_not_grow_with_what_settled_behind_a_stuck_one() -> None:
    def cost_behind(settled: int) -> tuple[int, int, int, int]:
        book = ledger()
        receive(book, 0)
        for offset in range(1, settled + 1):
            settle(book, *receive(book, offset))
        fresh: list[InFlight] = []
        received = lines_of(lambda: fresh.extend(receive(book, settled + 1, settled + 2)))
        in_the_middle = lines_of(lambda: book.settle(fresh[0]))
        at_the_end = lines_of(lambda: book.settle(fresh[1]))
        told = lines_of(book.snapshot)
        assert book.span == settled + 3
        return received, in_the_middle, at_the_end, told

    cheap = cost_behind(10)
    assert min(cheap) > 5, "it counts"
    assert cost_behind(100_000) == cheap


def test_the_ledger_holds_what_is_outstanding_and_nothing_else() -> None:
    """A settled record is let go at once, whatever is stuck before it."""
    book = ledger()
    [head] = receive(book, 0)
    for offset in range(1, 1_000):
        [entry] = receive(book, offset)
        settle(book, entry)
        assert (entry.previous, entry.next) == (None, None)
    held, entry_ = 0, book.oldest
    while entry_ is not None:
        held, entry_ = held + 1, entry_.next
    assert (held, book.outstanding, book.oldest) == (1, 1, head)
