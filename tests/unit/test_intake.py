"""Intake: never more than fits, no pause without need, and every partition gets its turn."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.core.intake import MAX_BATCH, MAX_BATCH_BYTES, REVIEW_SECONDS, STUCK_SECONDS, Intake
from sidecar.core.places import Places
from sidecar.model import Assignment
from tests.fakes.records import assignment

STEP_SECONDS = 0.01
PLENTY_OF_BYTES = 1 << 40


class Rig:
    """A fetcher, a source that always has more, and an application, in simulated steps.

    queued gives how many of a hundred records the client has queued are of each partition.
    """

    def __init__(
        self,
        queued: Mapping[int, int],
        *,
        threshold: int = 1_000,
        threshold_bytes: int = PLENTY_OF_BYTES,
        size: int = 1,
    ) -> None:
        self.places = Places(threshold, threshold_bytes)
        self.intake = Intake(self.places)
        self.owned = [assignment(number) for number in queued]
        self.pattern = deque(self._interleaved(queued))
        self.size = size
        self.now = 1_000.0
        self.paused: set[Assignment] = set()
        self.lanes: dict[Assignment, int] = dict.fromkeys(self.owned, 0)
        self.turns = deque(self.owned)
        self.delivered: Counter[int] = Counter()
        self.pauses = self.full_pauses = 0
        self.owed = 0.0

    def _interleaved(self, queued: Mapping[int, int]) -> Sequence[Assignment]:
        by_number = {owner.number: owner for owner in self.owned}
        return [by_number[number] for number, share in queued.items() for _ in range(share)]

    def take(self, owner: Assignment) -> None:
        owner.fetched += 1
        self.places.taken += 1
        self.places.taken_bytes += self.size
        self.lanes[owner] += 1
        self.intake.note_size(self.size)

    def free(self, owner: Assignment) -> None:
        owner.freed += 1
        self.places.freed += 1
        self.places.freed_bytes += self.size
        self.lanes[owner] -= 1

    def fetch(self, room: int) -> None:
        """The client hands out in the order of its queue; a paused partition has none in it."""
        live = [owner for owner in self.pattern if owner not in self.paused]
        for index in range(room if live else 0):
            self.take(live[index % len(live)])
        if live:
            self.pattern.rotate(-room)

    def settle(self, per_second: float) -> None:
        """The application takes the partitions in turn."""
        self.owed += per_second * STEP_SECONDS
        while self.owed >= 1.0:
            self.owed -= 1.0
            for _ in range(len(self.turns)):
                owner = self.turns[0]
                self.turns.rotate(-1)
                if self.lanes[owner]:
                    self.free(owner)
                    self.delivered[owner.number] += 1
                    break

    def step(self, per_second: float, *, settles_while_waiting: bool = False) -> None:
        """One turn of the fetch thread; the application settles between turns, or within one."""
        self.now += STEP_SECONDS
        if self.intake.all_paused:
            self.settle(per_second)
            if self.intake.should_resume_all():
                self.paused.clear()
            return
        greedy, patient = self.intake.review(self.now, self.owned, self.paused)
        self.paused.difference_update(patient)
        assert self.paused.isdisjoint(greedy), "paused twice"
        self.paused.update(greedy)
        self.pauses += bool(greedy)
        room = self.intake.room()
        if self.intake.should_pause_all(room, self.now):
            self.full_pauses += 1
            return
        if settles_while_waiting:
            self.settle(per_second)
        room = self.intake.room()
        assert room <= max(0, self.places.threshold - self.places.in_flight)
        self.fetch(room)
        if not settles_while_waiting:
            self.settle(per_second)

    def run(
        self, seconds: float, per_second: float, *, settles_while_waiting: bool = False
    ) -> None:
        for _ in range(round(seconds / STEP_SECONDS)):
            self.step(per_second, settles_while_waiting=settles_while_waiting)


# --- how much ---------------------------------------------------------------------------------


@given(
    threshold=st.integers(1, 5_000),
    taken=st.integers(0, 6_000),
    threshold_bytes=st.integers(1, 10**7),
    taken_bytes=st.integers(0, 2 * 10**7),
    sizes=st.lists(st.integers(0, 10**6), max_size=5),
)
def test_it_never_asks_for_more_than_fits(
    threshold: int, taken: int, threshold_bytes: int, taken_bytes: int, sizes: list[int]
) -> None:
    places = Places(threshold, threshold_bytes)
    places.taken, places.taken_bytes = taken, taken_bytes
    intake = Intake(places)
    for size in sizes:
        intake.note_size(size)
    room = intake.room()
    free, free_bytes = threshold - taken, threshold_bytes - taken_bytes
    if free <= 0 or free_bytes <= 0:
        assert room == 0
    else:
        assert 1 <= room <= min(free, MAX_BATCH)
        assert room == 1 or room * max(sizes, default=1) <= free_bytes
    assert 1 <= intake.worthwhile() <= threshold


def test_the_largest_of_the_last_two_periods_decides_how_many_fit() -> None:
    places = Places(1_000, 10_000)
    intake = Intake(places)
    intake.note_size(5_000)
    assert intake.room() == 2
    intake.review(100.0, [], set())
    intake.note_size(100)
    assert intake.room() == 2
    intake.review(100.0 + REVIEW_SECONDS, [], set())
    assert intake.room() == 100


def test_a_batch_has_its_own_bound() -> None:
    assert Intake(Places(100_000, PLENTY_OF_BYTES)).room() == MAX_BATCH


def test_a_batch_of_large_records_is_bounded_in_bytes() -> None:
    intake = Intake(Places(100_000, PLENTY_OF_BYTES))
    intake.note_size(20_000)
    assert intake.room() == MAX_BATCH_BYTES // 20_000
    intake.note_size(MAX_BATCH_BYTES + 1)
    assert intake.room() == 1


def test_a_threshold_that_was_lowered_below_what_is_in_flight_leaves_no_room() -> None:
    places = Places(100, PLENTY_OF_BYTES)
    places.taken = 80
    places.threshold = 50
    assert Intake(places).room() == 0


# --- everything -------------------------------------------------------------------------------


def test_everything_is_paused_only_after_a_second_without_a_free_place() -> None:
    rig = Rig({0: 100}, threshold=10)
    rig.run(STUCK_SECONDS - STEP_SECONDS, 0.0)
    assert not rig.intake.all_paused
    rig.run(4 * STEP_SECONDS, 0.0)
    assert rig.full_pauses == 1
    rig.run(60.0, 0.0)
    assert rig.full_pauses == 1
    assert not rig.intake.should_pause_all(0, rig.now), "told once"


def test_it_goes_on_once_half_of_the_places_are_free() -> None:
    rig = Rig({0: 100}, threshold=10)
    rig.run(2.0, 0.0)
    for _ in range(4):
        rig.free(rig.owned[0])
    assert not rig.intake.should_resume_all()
    rig.free(rig.owned[0])
    assert rig.intake.should_resume_all()
    assert not rig.intake.all_paused
    assert not rig.intake.should_resume_all(), "told once"


def test_half_of_the_bytes_must_be_free_as_well() -> None:
    """A single large record may hold them."""
    rig = Rig({0: 100}, threshold=10, threshold_bytes=1_000)
    rig.places.taken, rig.places.taken_bytes = 1, 1_000
    rig.run(2.0, 0.0)
    assert rig.intake.all_paused
    rig.places.freed_bytes = 499
    assert not rig.intake.should_resume_all()
    rig.places.freed_bytes = 500
    assert rig.intake.should_resume_all()


def test_after_a_full_pause_the_second_is_counted_anew() -> None:
    rig = Rig({0: 100}, threshold=10)
    rig.run(2.0, 0.0)
    for _ in range(5):
        rig.free(rig.owned[0])
    rig.run(0.5, 0.0)
    assert not rig.intake.all_paused
    rig.run(1.0, 0.0)
    assert rig.intake.all_paused


@pytest.mark.parametrize("settles_while_waiting", [False, True])
@pytest.mark.parametrize(("threshold", "per_second"), [(10, 20.0), (1_000, 2.0), (1_000, 5_000.0)])
def test_an_application_that_goes_on_is_never_paused(
    threshold: int, per_second: float, settles_while_waiting: bool
) -> None:
    """Also if each place is taken again in the very turn in which it became free."""
    rig = Rig({0: 100}, threshold=threshold)
    rig.run(30.0, per_second, settles_while_waiting=settles_while_waiting)
    assert rig.full_pauses == 0
    assert rig.places.in_flight <= threshold


def test_a_pause_comes_though_records_leave_while_their_bytes_leave_no_room() -> None:
    """Nothing is asked for all the while, so the client must be polled some other way."""
    rig = Rig({0: 100}, threshold_bytes=1_000, size=10)
    rig.fetch(500)
    rig.run(STUCK_SECONDS + 2 * STEP_SECONDS, 5.0)
    assert rig.intake.all_paused


# --- those that take more than their share ----------------------------------------------------


def test_a_quiet_partition_gets_its_turn_behind_a_flooding_one() -> None:
    """One record in a hundred is its; the application is slow; both are served alike."""
    rig = Rig({0: 99, 1: 1})
    rig.run(60.0, 100.0)
    assert rig.delivered[1] >= 0.45 * rig.delivered.total()
    assert rig.pauses >= 1


@pytest.mark.parametrize(
    "queued",
    [
        pytest.param({0: 50, 1: 50}, id="two alike"),
        pytest.param({0: 90, 1: 10}, id="two unlike"),
        pytest.param({0: 97, 1: 1, 2: 1, 3: 1}, id="one flood and three trickles"),
        pytest.param({0: 40, 1: 40, 2: 19, 3: 1}, id="all floods of their own"),
    ],
)
def test_no_partition_waits_for_good_for_another(queued: dict[int, int]) -> None:
    """Each always gets an equal part, also those that were paused for their greed before."""
    rig = Rig(queued)
    rig.run(40.0, 100.0)
    for _ in range(2):
        before = rig.delivered.copy()
        rig.run(60.0, 100.0)
        served = rig.delivered - before
        assert min(served[number] for number in queued) >= 0.7 * 6_000 / len(queued), served


def test_shares_hold_where_bytes_are_what_is_scarce() -> None:
    """Thirty large records fill the buffer of a thousand places."""
    rig = Rig({0: 99, 1: 1}, threshold_bytes=30_000, size=1_000)
    rig.intake.note_size(1_000)
    rig.run(60.0, 10.0)
    assert rig.delivered[1] >= 0.4 * rig.delivered.total()


def test_a_partition_is_not_paused_only_to_be_resumed_at_once() -> None:
    """A pause throws away what was prefetched; with a quarter free nobody waits."""
    rig = Rig({0: 99, 1: 1}, threshold=100)
    rig.fetch(100)
    rig.intake.review(rig.now, rig.owned, rig.paused)
    rig.intake.should_pause_all(rig.intake.room(), rig.now)
    for _ in range(30):
        rig.free(rig.owned[0])
    greedy, _ = rig.intake.review(rig.now + REVIEW_SECONDS, rig.owned, rig.paused)
    assert greedy == []


def reviewed(held: list[int], *, paused: list[int], full: bool = True) -> list[int]:
    """Whom a review pauses, given what each holds of a hundred places."""
    rig = Rig(dict.fromkeys(range(len(held)), 1), threshold=100)
    for owner, count in zip(rig.owned, held, strict=True):
        for _ in range(count):
            rig.take(owner)
    rig.intake.review(rig.now, rig.owned, rig.paused)
    rig.intake.should_pause_all(0 if full else rig.intake.room(), rig.now)
    before = {rig.owned[number] for number in paused}
    greedy, _ = rig.intake.review(rig.now + REVIEW_SECONDS, rig.owned, before)
    return [owner.number for owner in greedy]


def test_only_those_with_more_than_their_share_are_paused() -> None:
    assert reviewed([60, 30, 10], paused=[]) == [0]
    assert reviewed([45, 40, 15], paused=[]) == [0, 1]
    assert reviewed([45, 40, 15], paused=[0]) == [1]


def test_there_is_always_one_that_is_not_paused() -> None:
    assert reviewed([26, 37, 37], paused=[0]) == []


def test_nobody_is_paused_where_there_was_room_all_the_time() -> None:
    assert reviewed([70, 10], paused=[], full=True) == [0]
    assert reviewed([70, 10], paused=[], full=False) == []


def test_each_review_looks_at_its_own_second_only() -> None:
    rig = Rig({0: 1, 1: 1}, threshold=100)
    for owner, count in zip(rig.owned, (70, 10), strict=True):
        for _ in range(count):
            rig.take(owner)
    rig.intake.should_pause_all(0, rig.now)
    for seconds, greedy in enumerate(([rig.owned[0]], [])):
        now = rig.now + seconds * REVIEW_SECONDS
        assert rig.intake.review(now, rig.owned, set()) == (greedy, [])


def test_a_fast_application_pauses_nobody() -> None:
    rig = Rig({0: 99, 1: 1})
    rig.run(20.0, 2_000.0)
    assert (rig.pauses, rig.full_pauses) == (0, 0)


def test_a_single_partition_is_never_greedy() -> None:
    rig = Rig({0: 100})
    rig.run(20.0, 50.0)
    assert (rig.pauses, rig.full_pauses) == (0, 0)


def test_the_paused_go_on_at_once_when_a_quarter_is_free() -> None:
    """Between two reviews as well."""
    rig = Rig({0: 99, 1: 1}, threshold=100)
    rig.run(5.0, 1.0)
    [paused] = rig.paused
    while rig.places.in_flight > 75:
        rig.free(next(owner for owner in rig.owned if rig.lanes[owner]))
    assert rig.intake.review(rig.now + 0.001, rig.owned, rig.paused) == ([], [paused])
