"""Which letters were sent: over any filters, restarts and topics made anew, none twice."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.core.done_map import Key
from sidecar.core.redrive_progress import NoRoom, RedriveProgress, Unreadable

KEY = Key("dlq", 0, "id")
END = 100_000


def reopened(progress: RedriveProgress, key: Key = KEY, end: int = END) -> RedriveProgress:
    return RedriveProgress(key, end, *progress.position())


def test_at_first_nothing_was_sent() -> None:
    progress = RedriveProgress(KEY, END, None)
    assert progress.start == 0
    assert not progress.is_sent(0)


def test_what_a_filter_left_is_left_for_the_next() -> None:
    progress = RedriveProgress(KEY, END, None)
    progress.leave(0)
    progress.send(1)
    progress.leave(2)
    progress.send(3)
    progress.leave(4)
    again = reopened(progress)
    assert again.start == 0
    assert [offset for offset in range(6) if not again.is_sent(offset)] == [0, 2, 4, 5]
    again.send(0)
    assert reopened(again).start == 2


def test_where_all_is_sent_the_map_still_names_the_topic() -> None:
    """So that a topic made anew under the name does not pass for redriven."""
    progress = RedriveProgress(KEY, END, None)
    for offset in range(3):
        progress.send(offset)
    committed, metadata = progress.position()
    assert committed == 2
    assert reopened(progress).is_sent(2)
    assert not reopened(progress).is_sent(3)
    with pytest.raises(Unreadable):
        RedriveProgress(KEY._replace(topic_id="new"), END, committed, metadata)


@pytest.mark.parametrize(
    ("committed", "metadata", "end"), [(5, "x", END), (5, "sc1:", END), (5, "", 4)]
)
def test_what_cannot_be_read_is_not_guessed(committed: int, metadata: str, end: int) -> None:
    with pytest.raises(Unreadable):
        RedriveProgress(KEY, end, committed, metadata)


def test_a_bare_offset_is_taken_as_it_is() -> None:
    progress = RedriveProgress(KEY, END, 5, "")
    assert [progress.is_sent(offset) for offset in (0, 4, 5, 6)] == [True, True, False, False]


def test_what_the_topic_no_longer_holds_needs_no_room() -> None:
    progress = RedriveProgress(KEY, END, None)
    for offset in range(30_000):
        progress.leave(offset)
    progress.send(30_000)
    with pytest.raises(NoRoom) as caught:
        progress.position()
    assert (caught.value.left, caught.value.offset) == (30_000, 30_000)
    progress.forget_before(29_000)
    assert reopened(progress).start == 29_000


def test_nothing_is_cut_from_a_map() -> None:
    """Scattered letters take the most room: there is none before it is used up, not a wrong one."""
    chance = random.Random(4)
    progress = RedriveProgress(KEY, 10**9, None)
    offset = 0
    sent = set()
    for _ in range(20_000):
        offset += chance.randrange(1, 40)
        if chance.random() < 0.5:
            progress.leave(offset)
            continue
        progress.send(offset)
        sent.add(offset)
        if len(sent) % 25:
            continue
        try:
            metadata = progress.position()[1]
        except NoRoom:
            break
        assert len(metadata) <= 3072
    else:
        pytest.fail("there is room without end")
    assert len(sent) > 500


@given(st.lists(st.lists(st.booleans(), max_size=12), max_size=6))
def test_rounds_of_any_filters_send_each_once(rounds: list[list[bool]]) -> None:
    progress = RedriveProgress(KEY, END, None)
    sent: list[int] = []
    for takes in rounds:
        for offset in range(progress.start, len(takes)):
            if progress.is_sent(offset):
                continue
            if takes[offset]:
                progress.send(offset)
                sent.append(offset)
            else:
                progress.leave(offset)
        # A redrive that sends nothing commits nothing.
        progress = reopened(progress) if sent else RedriveProgress(KEY, END, None)
    assert len(sent) == len(set(sent))
    assert all(progress.is_sent(offset) for offset in sent)
    assert not progress.is_sent(12)
