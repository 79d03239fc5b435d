"""What every RecordSource does: the fake, KafkaSource on the embedded broker, and on a real one."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import pytest

from sidecar.errors import CommitFailed, CommitUnknown, SourceError
from sidecar.model import Partition
from sidecar.ports import Committed, Message
from tests.contract.backends import Backend, partitions_of
from tests.contract.conftest import ASK_SECONDS, TestMember, idle, until

Join = Callable[..., TestMember]


def numbered(count: int, start: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(start, start + count)]


def filled(backend: Backend, count: int, partitions: int = 1) -> str:
    """A topic that holds so many messages in each partition."""
    topic = backend.create_topic(partitions)
    for number in range(partitions):
        backend.produce(topic, numbered(count), number)
    return topic


def test_messages_come_in_order_and_all(backend: Backend, join: Join) -> None:
    topic = filled(backend, 100, partitions=3)
    member = join(topic)
    until(lambda: len(member.messages) >= 300, member)
    assert not idle(member)
    for each in partitions_of(topic, 3):
        assert member.offsets(each) == list(range(100))


def test_limit_is_kept(backend: Backend, join: Join) -> None:
    topic = filled(backend, 50)
    member = join(topic)
    sizes: list[int] = []
    for member.limit in (1, 7, 1, 100):
        wanted = min(len(member.messages) + member.limit, 50)
        while len(member.messages) < wanted:
            sizes.append(len(member.poll()))
            assert sizes[-1] <= member.limit
    assert sum(sizes) == 50


@pytest.mark.parametrize(
    ("key", "value", "headers"),
    [
        (None, None, None),
        (b"", b"", [("", b"")]),
        (b"\x00\xff", b"\x00\xff", [("a", None), ("b", b""), ("a", b"\xff"), ("ü", b"x")]),
    ],
)
def test_bytes_come_as_they_were_sent(
    backend: Backend,
    join: Join,
    key: bytes | None,
    value: bytes | None,
    headers: list[tuple[str, bytes | None]] | None,
) -> None:
    """Null stays null and empty stays empty, for key, value and headers."""
    topic = backend.create_topic()
    backend.produce(topic, [value], key=key, headers=headers)
    member = join(topic)
    until(lambda: member.messages, member)
    message = member.messages[0]
    assert (message.key, message.value, message.headers) == (key, value, headers)
    assert message.partition == Partition(topic, 0)
    assert message.timestamp_ms > 1_600_000_000_000


def test_pause_holds_one_partition_without_loss_or_repeat(backend: Backend, join: Join) -> None:
    topic = filled(backend, 200, partitions=2)
    held, free = partitions_of(topic, 2)
    member = join(topic)
    member.limit = 5
    until(lambda: member.offsets(held), member)
    member.source.pause([held])
    before = len(member.offsets(held))
    until(lambda: len(member.offsets(free)) == 200, member)
    idle(member)
    assert len(member.offsets(held)) == before
    member.source.resume([held])
    until(lambda: len(member.offsets(held)) >= 200, member)
    assert member.offsets(held) == list(range(200))


def test_the_end_of_a_paused_partition_is_told_when_it_was_asked_for(
    backend: Backend, join: Join
) -> None:
    """Nothing is fetched of it, so nothing else tells; and nobody waits for the answer."""
    topic = filled(backend, 5)
    partition = Partition(topic, 0)
    member = join(topic)
    until(lambda: len(member.messages) == 5, member)
    until(lambda: member.source.ends([partition]) == {partition: 5}, member)
    member.source.pause([partition])
    backend.produce(topic, numbered(3, 5))

    def told() -> bool:
        member.source.ask_ends([partition])
        return member.source.ends([partition]) == {partition: 8}

    until(told, member)
    assert member.source.ends([]) == {}
    member.source.resume([partition])
    backend.produce(topic, numbered(2, 8))
    until(lambda: len(member.messages) == 10, member)
    until(lambda: member.source.ends([partition]) == {partition: 10}, member)


def test_pause_and_resume_many_times(backend: Backend, join: Join) -> None:
    topic = filled(backend, 100)
    member = join(topic)
    member.limit = 10
    until(lambda: member.owned, member)
    while len(member.messages) < 100:
        member.poll()
        member.source.pause(list(member.owned))
        assert not member.poll()
        member.source.resume(list(member.owned))
    assert member.offsets(Partition(topic, 0)) == list(range(100))


def test_seek_goes_back_and_forth(backend: Backend, join: Join) -> None:
    topic = filled(backend, 20)
    partition = Partition(topic, 0)
    member = join(topic)
    until(lambda: len(member.messages) == 20, member)
    member.messages.clear()
    member.source.seek(partition, 15)
    assert member.source.positions([partition]) == {partition: 15}
    until(lambda: len(member.messages) == 5, member)
    member.source.seek(partition, 3)
    until(lambda: len(member.messages) == 22, member)
    assert member.offsets(partition) == [*range(15, 20), *range(3, 20)]


def test_seek_of_a_paused_partition_holds_until_it_is_resumed(backend: Backend, join: Join) -> None:
    topic = filled(backend, 20)
    partition = Partition(topic, 0)
    member = join(topic)
    member.limit = 5
    until(lambda: member.messages, member)
    member.source.pause([partition])
    member.source.seek(partition, 17)
    assert not idle(member)
    assert member.source.positions([partition]) == {partition: 17}
    member.messages.clear()
    member.source.resume([partition])
    until(lambda: len(member.messages) == 3, member)
    assert member.offsets(partition) == [17, 18, 19]


def test_commit_and_its_metadata_are_read_back(backend: Backend, join: Join) -> None:
    topic = backend.create_topic(2)
    first, second = partitions_of(topic, 2)
    member = join(topic)
    until(lambda: member.owned, member)
    assert member.found == {first: Committed(None, ""), second: Committed(None, "")}
    member.source.commit({first: (0, "x" * 3072)}, ASK_SECONDS)
    found = member.source.committed([first, second], ASK_SECONDS)
    assert found == {first: Committed(0, "x" * 3072), second: Committed(None, "")}
    member.source.commit({first: (7, ""), second: (1, "a b")}, ASK_SECONDS)
    found = member.source.committed([first, second], ASK_SECONDS)
    assert found == {first: Committed(7, ""), second: Committed(1, "a b")}


def test_commit_for_an_unknown_topic_is_refused(backend: Backend, join: Join) -> None:
    topic = backend.create_topic()
    member = join(topic)
    until(lambda: member.owned, member)
    with pytest.raises(CommitFailed):
        member.source.commit({Partition("no-such-topic", 0): (1, "")}, ASK_SECONDS)


def test_commit_later_answers_from_poll(backend: Backend, join: Join) -> None:
    topic = backend.create_topic()
    partition = Partition(topic, 0)
    member = join(topic)
    until(lambda: member.owned, member)
    answers: list[Exception | None] = []
    member.source.commit_later({partition: (3, "m")}, answers.append)
    assert answers == []
    until(lambda: answers, member)
    assert answers == [None]
    assert member.source.committed([partition], ASK_SECONDS)[partition] == Committed(3, "m")
    member.source.commit_later({Partition("no-such-topic", 0): (1, "")}, answers.append)
    until(lambda: len(answers) == 2, member)
    assert isinstance(answers[1], CommitFailed)


def test_commit_later_is_answered_even_by_close(backend: Backend, join: Join) -> None:
    topic = backend.create_topic()
    member = join(topic)
    until(lambda: member.owned, member)
    answers: list[Exception | None] = []
    member.source.commit_later({Partition(topic, 0): (3, "")}, answers.append)
    member.source.close()
    assert len(answers) == 1


def test_commit_in_revoke_reaches_the_next_owner(
    backend: Backend, join: Join, protocol: str
) -> None:
    """Two members share a topic; what the first has read is not read again."""
    topic = filled(backend, 10, partitions=4)
    first = join(topic, protocol=protocol)
    failures: list[SourceError] = []

    def commit_position(partitions: object) -> None:
        assert isinstance(partitions, list)
        positions = first.source.positions(partitions)
        try:
            first.source.commit({each: (at, "mine") for each, at in positions.items()}, ASK_SECONDS)
        except SourceError as error:
            failures.append(error)

    first.on_giving_up = commit_position
    until(lambda: len(first.messages) == 40, first)
    second = join(topic, protocol=protocol)
    until(lambda: len(first.owned) == len(second.owned) == 2, first, second)
    assert failures == []
    assert first.owned.isdisjoint(second.owned)
    assert all(second.found[each] == Committed(10, "mine") for each in second.owned)
    for number in range(4):
        backend.produce(topic, numbered(10, 10), number)
    until(lambda: len(first.messages) + len(second.messages) == 80, first, second)
    given_up = [set(partitions) for what, partitions in first.told if what == "revoke"]
    everything = set(partitions_of(topic, 4))
    assert given_up == [everything if protocol == "eager" else second.owned]


def test_close_leaves_the_group(backend: Backend, join: Join, protocol: str) -> None:
    topic = backend.create_topic(2)
    first = join(topic, protocol=protocol)
    until(lambda: len(first.owned) == 2, first)
    first.on_giving_up = lambda partitions: first.source.commit(
        dict.fromkeys(partitions, (5, "bye")), ASK_SECONDS
    )
    first.source.close()
    assert [what for what, _ in first.told] == ["assign", "revoke"]
    second = join(topic, protocol=protocol)
    until(lambda: len(second.owned) == 2, second)
    assert set(second.found.values()) == {Committed(5, "bye")}


def test_leave_gives_everything_to_others_and_rejoin_takes_part_again(
    backend: Backend, join: Join, protocol: str
) -> None:
    """The member stays alive and polls meanwhile; what it had committed is where others begin."""
    topic = filled(backend, 10, partitions=4)
    first = join(topic, protocol=protocol)
    until(lambda: len(first.messages) == 40, first)
    second = join(topic, protocol=protocol)
    until(lambda: len(first.owned) == len(second.owned) == 2, first, second)
    for _ in range(4):  # for what is left of the rebalance
        first.poll()
        second.poll()
    first.source.commit(dict.fromkeys(first.owned, (10, "mine")), ASK_SECONDS)
    second.source.commit(dict.fromkeys(second.owned, (10, "mine")), ASK_SECONDS)
    first.messages.clear()
    first.source.leave()
    until(lambda: len(second.owned) == 4, first, second)
    assert first.owned == set()
    assert {what for what, _ in first.told} == {"assign", "revoke"}
    second.messages.clear()
    for number in range(4):
        backend.produce(topic, numbered(5, 10), number)
    until(lambda: len(second.messages) >= 20, first, second)
    assert set(second.values()) == set(numbered(5, 10))
    assert first.messages == []
    first.source.rejoin()
    until(lambda: len(first.owned) == len(second.owned) == 2, first, second)
    for number in range(4):
        backend.produce(topic, numbered(5, 15), number)
    until(lambda: set(first.values()) >= set(numbered(5, 15)), first, second)


def test_what_was_paused_when_it_was_given_up_is_read_when_it_returns(
    backend: Backend, join: Join, protocol: str
) -> None:
    """librdkafka keeps a pause over a rebalance; here it ends with the ownership."""
    topic = filled(backend, 3, partitions=2)
    member = join(topic, protocol=protocol)
    until(lambda: len(member.messages) == 6, member)
    member.source.commit(dict.fromkeys(member.owned, (3, "")), ASK_SECONDS)
    member.source.pause(list(member.owned))
    member.source.leave()
    until(lambda: not member.owned, member)
    assert not idle(member)
    member.messages.clear()
    for number in range(2):
        backend.produce(topic, numbered(2, 3), number)
    member.source.rejoin()
    until(lambda: len(member.messages) == 4, member)


def test_a_static_member_really_leaves(backend: Backend, join: Join, protocol: str) -> None:
    """At once; with the consumer protocol once the group has not heard of it for a session."""
    topic = filled(backend, 1, partitions=2)
    first = join(topic, protocol=protocol, group_instance_id="first")
    second = join(topic, protocol=protocol, group_instance_id="second")
    until(lambda: len(first.owned) == len(second.owned) == 1, first, second)
    first.source.leave()
    until(lambda: len(second.owned) == 2, first, second)
    assert not first.owned
    first.source.rejoin()
    until(lambda: len(first.owned) == len(second.owned) == 1, first, second)


def test_a_member_alone_may_leave_and_rejoin_again_and_again(
    backend: Backend, join: Join, protocol: str
) -> None:
    topic = filled(backend, 10)
    member = join(topic, protocol=protocol)
    for _ in range(3):
        until(lambda: member.owned, member)
        member.source.leave()
        until(lambda: not member.owned, member)
        assert not idle(member)
        member.source.rejoin()
    until(lambda: member.owned, member)
    member.source.leave()
    member.source.close()
    assert [what for what, _ in member.told] == ["assign", "revoke"] * 4


def test_a_client_made_anew_goes_on_where_the_old_one_stopped(
    backend: Backend, join: Join, protocol: str
) -> None:
    """Twice; it belongs to the group no longer, and then again, with what others left."""
    topic = filled(backend, 10, partitions=2)
    member = join(topic, protocol=protocol)
    until(lambda: len(member.messages) == 20, member)
    for number in (1, 2):
        member.source.commit(dict.fromkeys(member.owned, (9 + number, "")), ASK_SECONDS)
        member.source.leave()
        until(lambda: not member.owned, member)
        member.source.renew()
        member.messages.clear()
        for partition in range(2):
            backend.produce(topic, numbered(1, 9 + number), partition)
        member.source.rejoin()
        until(lambda: len(member.messages) >= 2, member)
        assert member.values() == numbered(1, 9 + number) * 2
    assert [what for what, _ in member.told] == ["assign", "revoke"] * 2 + ["assign"]


def test_positions_go_past_transaction_markers(backend: Backend, join: Join) -> None:
    """After the last record the position comes to the end of the log: lag 0 when idle."""
    topic = backend.create_topic()
    partition = Partition(topic, 0)
    backend.transaction(topic, numbered(3))
    member = join(topic)
    until(lambda: len(member.messages) == 3, member)
    assert member.source.watermarks(partition, ASK_SECONDS) == (0, 4)
    until(lambda: member.source.positions([partition]) == {partition: 4}, member)


def test_aborted_transactions_are_passed_unseen(backend: Backend, join: Join) -> None:
    topic = backend.create_topic()
    partition = Partition(topic, 0)
    backend.transaction(topic, numbered(2), commit=False)
    backend.transaction(topic, numbered(2), commit=True)
    backend.transaction(topic, numbered(2), commit=False)
    member = join(topic)
    until(lambda: member.source.positions([partition]) == {partition: 9}, member)
    assert member.offsets(partition) == [3, 4]


def test_position_stays_before_what_was_not_returned(backend: Backend, join: Join) -> None:
    topic = backend.create_topic()
    partition = Partition(topic, 0)
    backend.transaction(topic, numbered(3))
    member = join(topic)
    member.limit = 2
    until(lambda: member.messages, member)
    while len(member.messages) < 2:
        member.limit = 1
        member.poll()
    assert member.source.positions([partition]) == {partition: 2}


def test_position_out_of_range_is_asked_about(backend: Backend, join: Join, protocol: str) -> None:
    topic = filled(backend, 10, partitions=2)
    lost, other = partitions_of(topic, 2)
    member = join(topic, protocol=protocol)
    member.restart_at = 8
    member.starts = {lost: 1000}
    until(lambda: len(member.messages) == 12, member)
    assert not idle(member)
    assert member.out_of_range == [lost]
    assert member.offsets(lost) == [8, 9]
    assert member.offsets(other) == list(range(10))


def test_out_of_range_while_paused_elsewhere(backend: Backend, join: Join, protocol: str) -> None:
    """A partition set right again stirs no other: one that is paused stays so and in place."""
    topic = filled(backend, 10, partitions=2)
    lost, held = partitions_of(topic, 2)
    member = join(topic, protocol=protocol)
    until(lambda: len(member.messages) == 20, member)
    member.source.pause([held])
    backend.produce(topic, numbered(5), 1)
    member.source.seek(lost, 1000)
    member.messages.clear()
    until(lambda: len(member.messages) == 10, member)
    assert not idle(member)
    assert member.offsets(held) == []
    member.source.resume([held])
    until(lambda: len(member.offsets(held)) == 5, member)
    assert member.offsets(held) == [10, 11, 12, 13, 14]


def test_start_as_committed(backend: Backend, join: Join) -> None:
    """None starts where the group is, and asks where it is nowhere."""
    topic = filled(backend, 5, partitions=2)
    known, unknown = partitions_of(topic, 2)
    first = join(topic)
    until(lambda: first.owned, first)
    first.source.commit({known: (3, "")}, ASK_SECONDS)
    first.source.close()
    second = join(topic)
    second.starts = {known: None, unknown: None}
    second.restart_at = 4
    until(lambda: len(second.messages) == 3, second)
    assert second.offsets(known) == [3, 4]
    assert second.offsets(unknown) == [4]
    assert second.out_of_range == [unknown]


def test_log_start_moves_past_the_position(backend: Backend, join: Join) -> None:
    topic = filled(backend, 10)
    partition = Partition(topic, 0)
    member = join(topic)
    until(lambda: len(member.messages) == 10, member)
    backend.truncate(topic, 6)
    member.restart_at = 6
    assert member.source.watermarks(partition, ASK_SECONDS) == (6, 10)
    member.source.seek(partition, 2)
    until(lambda: len(member.messages) == 14, member)
    assert member.out_of_range == [partition]
    assert member.offsets(partition)[10:] == [6, 7, 8, 9]


def test_watermarks_and_group_knows(backend: Backend, join: Join) -> None:
    topic, other = backend.create_topic(2), backend.create_topic()
    backend.produce(topic, numbered(4), 1)
    member = join(topic)
    until(lambda: member.owned, member)
    source = member.source
    assert source.watermarks(Partition(topic, 0), ASK_SECONDS) == (0, 0)
    assert source.watermarks(Partition(topic, 1), ASK_SECONDS) == (0, 4)
    assert not source.group_knows(topic, ASK_SECONDS)
    source.commit({Partition(topic, 1): (0, "")}, ASK_SECONDS)
    assert source.group_knows(topic, ASK_SECONDS)
    assert not source.group_knows(other, ASK_SECONDS)


def test_topic_id_tells_recreated_topics_apart(backend: Backend, join: Join) -> None:
    topic, reborn = backend.create_topic(), backend.create_topic()
    member = join(topic)
    until(lambda: member.owned, member)
    before = member.source.topic_ids([reborn, topic, "no-such-topic"], ASK_SECONDS)
    assert before.keys() == {reborn, topic}
    assert member.source.topic_ids([reborn, topic], ASK_SECONDS) == before
    backend.recreate(reborn)
    after = member.source.topic_ids([reborn, topic], ASK_SECONDS)
    assert after[topic] == before[topic]
    assert after[reborn] not in {"", before[reborn]}


def test_pattern_finds_topics(backend: Backend, join: Join, group: str) -> None:
    first = backend.create_topic(name=f"{group}.a")
    second = backend.create_topic(name=f"{group}.b")
    backend.create_topic(name=f"not.{group}.c")
    member = join(pattern=f"^{group}\\..*")
    until(lambda: len(member.owned) == 2, member)
    assert member.owned == {Partition(first, 0), Partition(second, 0)}


def test_exception_in_a_callback_comes_out_of_poll(backend: Backend, join: Join) -> None:
    topic = filled(backend, 5)
    member = join(topic)

    def fail() -> None:
        raise LookupError("in the listener")

    member.before_assign = fail
    with pytest.raises(LookupError, match="in the listener"):
        until(lambda: False, member)
    assert not idle(member)


def test_on_assign_must_assign(backend: Backend, join: Join) -> None:
    topic = backend.create_topic()
    member = join(topic)
    member.on_assign = lambda _: None  # type: ignore[method-assign, assignment]
    with pytest.raises(SourceError, match="without having assigned"):
        until(lambda: False, member)


def test_callbacks_may_seek_pause_and_ask(backend: Backend, join: Join) -> None:
    """What is done to other partitions while a rebalance gives up some holds afterwards."""
    topic = filled(backend, 50, partitions=4)
    first = join(topic)
    until(lambda: len(first.messages) == 200, first)
    held: list[Partition] = []

    def rearrange(leaving: Sequence[Partition]) -> None:
        kept = sorted(first.owned - set(leaving))
        held.append(kept[0])
        first.source.pause([kept[0]])
        first.source.seek(kept[1], 40)
        assert first.source.positions(kept) == {kept[0]: 50, kept[1]: 40}

    first.on_giving_up = rearrange
    first.messages.clear()
    second = join(topic)
    until(lambda: len(second.owned) == 2, first, second)
    until(lambda: len(first.messages) == 10, first, second)
    backend.produce(topic, numbered(1), held[0].number)
    assert not idle(first)
    first.source.resume(held)
    until(lambda: first.offsets(held[0]) == [50], first, second)


def test_callback_amid_a_batch_holds_for_that_batch(backend: Backend, join: Join) -> None:
    """A rebalance that stands behind messages in the client's queue: none of what was given up,
    paused or moved meanwhile is returned, and nothing is lost."""
    topic = backend.create_topic(4)
    first = join(topic)
    until(lambda: len(first.owned) == 4, first)
    kept: list[Partition] = []

    def rearrange(leaving: Sequence[Partition]) -> None:
        kept.extend(sorted(first.owned - set(leaving)))
        first.source.pause([kept[0]])
        first.source.seek(kept[1], 40)

    first.on_giving_up = rearrange
    first.limit = 1000
    for number in range(4):
        backend.produce(topic, numbered(50), number)
    second = join(topic)
    if backend.name != "fake":  # its members learn of a rebalance by polling alone
        until(lambda: second.told, second)
    returned: list[Message] = []
    while not kept:
        returned = first.poll()
        second.poll()
    assert {each.partition for each in returned} <= {kept[1]}
    assert all(each.offset >= 40 for each in returned)
    first.source.resume([kept[0]])
    until(lambda: first.offsets(kept[0])[-1:] == [49], first, second)
    assert first.offsets(kept[0]) == list(range(50))


def test_out_of_range_while_paused_stays_paused(
    backend: Backend, join: Join, protocol: str
) -> None:
    topic = filled(backend, 10)
    partition = Partition(topic, 0)
    member = join(topic, protocol=protocol)
    member.restart_at = 8

    def pause_and_seek(partition: Partition, _: str) -> None:
        member.out_of_range.append(partition)
        member.source.pause([partition])
        member.source.seek(partition, 8)

    member.on_out_of_range = pause_and_seek  # type: ignore[method-assign, assignment]
    member.starts = {partition: 1000}
    until(lambda: member.out_of_range, member)
    assert not idle(member)
    member.source.resume([partition])
    until(lambda: len(member.messages) == 2, member)
    assert member.offsets(partition) == [8, 9]


def test_outage(backend: Backend, join: Join) -> None:
    """A broker that is gone: bounded waits, unknown commits, trouble told, a close that returns."""
    topic = filled(backend, 3)
    partition = Partition(topic, 0)
    member = join(topic)
    until(lambda: len(member.messages) == 3, member)
    backend.set_down(True)
    try:
        until(lambda: member.trouble, member)
        started = time.monotonic()
        with pytest.raises(CommitUnknown):
            member.source.commit({partition: (3, "")}, 1.0)
        for ask in (
            lambda: member.source.committed([partition], 1.0),
            lambda: member.source.watermarks(partition, 1.0),
            lambda: member.source.group_knows(topic, 1.0),
        ):
            with pytest.raises(SourceError):
                ask()
        assert time.monotonic() - started < 6.0
    finally:
        backend.set_down(False)
    backend.produce(topic, numbered(1))
    until(lambda: len(member.messages) >= 4, member)
    member.source.commit({partition: (4, "")}, ASK_SECONDS)
    assert member.source.committed([partition], ASK_SECONDS)[partition].offset == 4
