"""The buffer: turns over the partitions, order within one, and true counts."""

from __future__ import annotations

from sidecar.core.buffer import Buffer
from sidecar.core.ledger import InFlight
from sidecar.model import Assignment
from tests.fakes.records import assignment, in_flight


def fill(buffer: Buffer, owner: Assignment, count: int) -> list[InFlight]:
    entries = [in_flight(owner, offset) for offset in range(count)]
    for entry in entries:
        buffer.add(entry)
    return entries


def drain(buffer: Buffer) -> list[str]:
    taken = []
    while (entry := buffer.take()) is not None:
        taken.append(f"{entry.record.partition}/{entry.record.offset}")
    return taken


def test_an_empty_buffer_gives_nothing() -> None:
    buffer = Buffer()
    assert (len(buffer), buffer.take(), buffer.discard_all(), buffer.oldest) == (0, None, [], None)


def test_partitions_take_turns_whatever_their_backlog() -> None:
    buffer = Buffer()
    fill(buffer, assignment(0), 4)
    fill(buffer, assignment(1), 1)
    fill(buffer, assignment(2), 2)
    assert drain(buffer) == ["0/0", "1/0", "2/0", "0/1", "2/1", "0/2", "0/3"]


def test_a_partition_that_comes_late_waits_one_turn_of_the_others() -> None:
    buffer = Buffer()
    fill(buffer, assignment(0), 1_000)
    fill(buffer, assignment(1), 1_000)
    buffer.take()
    fill(buffer, assignment(2), 1)
    assert drain(buffer)[:3] == ["1/0", "0/1", "2/0"]


def test_what_is_put_back_comes_first_again_and_in_its_order() -> None:
    buffer = Buffer()
    owner = assignment()
    fill(buffer, owner, 4)
    taken = [entry for _ in range(3) if (entry := buffer.take())]
    buffer.put_back(taken)
    assert len(buffer) == 4
    assert drain(buffer) == ["0/0", "0/1", "0/2", "0/3"]
    buffer.put_back(taken[:1])
    assert drain(buffer) == ["0/0"], "even into an empty buffer"


def test_the_same_partition_of_another_epoch_is_another_lane() -> None:
    buffer = Buffer()
    old, new = assignment(0, epoch=1), assignment(0, epoch=2)
    fill(buffer, old, 2)
    kept = fill(buffer, new, 3)
    assert [entry.record.assignment for entry in buffer.discard(old)] == [old, old]
    assert (len(buffer), buffer.waiting(old), buffer.waiting(new)) == (3, 0, 3)
    assert buffer.discard(old) == []
    assert buffer.discard_all() == kept
    assert (len(buffer), buffer.take()) == (0, None)


def test_a_discarded_partition_does_not_lose_the_others_their_turn() -> None:
    buffer = Buffer()
    owners = [assignment(number) for number in range(3)]
    for owner in owners:
        fill(buffer, owner, 2)
    buffer.take()
    buffer.discard(owners[1])
    assert drain(buffer) == ["2/0", "0/1", "2/1"]
    fill(buffer, owners[1], 1)
    assert drain(buffer) == ["1/0"]


def test_partitions_that_hold_nothing_leave_no_trace() -> None:
    """Else every rebalance would leave an assignment behind, for as long as the process lives."""
    buffer = Buffer()
    for epoch in range(100):
        owner = assignment(epoch=epoch)
        fill(buffer, owner, 2)
        drain(buffer)
        assert buffer.waiting(owner) == 0
    assert not buffer._lanes


def test_the_oldest_is_found_wherever_it_waits() -> None:
    buffer = Buffer()
    for number, received_at in ((0, 5.0), (1, 3.0), (2, 9.0)):
        entry = in_flight(assignment(number), 0)
        entry.received_at = received_at
        buffer.add(entry)
    assert buffer.oldest == 3.0


def test_one_record_is_taken_out_wherever_it_stands() -> None:
    buffer, owners = Buffer(), [assignment(0), assignment(1)]
    for number in range(3):
        for owner in owners:
            buffer.add(in_flight(owner, number))
    for chosen in list(buffer.entries())[1:]:
        buffer.remove(chosen)
        assert chosen not in list(buffer.entries())
    assert len(buffer) == 1
    assert buffer.waiting(owners[1]) == 0
    assert buffer.take() is not None
    assert buffer.take() is None


def test_a_share_of_each_partition_is_taken_oldest_first() -> None:
    buffer, owners = Buffer(), [assignment(0), assignment(1), assignment(2)]
    for owner, count in zip(owners, (10, 1, 5), strict=True):
        buffer.extend(owner, [in_flight(owner, offset) for offset in range(count)])
    taken = buffer.take_evenly(9)
    assert {owner.number: [e.record.offset for e in share] for owner, share in taken.items()} == {
        0: [0, 1, 2, 3],
        1: [0],
        2: [0, 1, 2, 3],
    }
    assert (len(buffer), buffer.waiting(owners[0]), buffer.waiting(owners[1])) == (7, 6, 0)
    rest = buffer.take_evenly(100)
    assert sum(map(len, rest.values())) == 7
    assert (buffer.take_evenly(1), len(buffer)) == ({}, 0)
