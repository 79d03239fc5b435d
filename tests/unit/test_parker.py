"""The parker: a record is parked when the broker has confirmed it, and tried until then."""

from __future__ import annotations

import logging
from random import Random

import pytest

from sidecar.core.ledger import InFlight
from sidecar.core.retry import RetrySchedule
from sidecar.dispatch.parker import Parker
from sidecar.logs import RateLimited
from sidecar.model import Answer, Failed, FailureKind
from tests.fakes.clock import SimulatedScheduler
from tests.fakes.parking import FakeParking
from tests.fakes.records import assignment, in_flight, offsets

WALL = 1_700_000_000.0


class Rig:
    def __init__(self) -> None:
        self.scheduler = SimulatedScheduler(100.0)
        self.topic = FakeParking(self.scheduler.call_soon)
        self.parked: list[InFlight] = []
        schedule = RetrySchedule(
            max_attempts=1,
            initial_backoff_seconds=1.0,
            max_backoff_seconds=8.0,
            max_age_seconds=None,
            random=Random(1),
        )
        repeating = RateLimited(logging.getLogger("test"), clock=self.scheduler.time)
        self.parker = Parker(
            self.scheduler, self.wall_clock, schedule, self.topic, self.parked.append, repeating
        )
        self.owner = assignment()

    def wall_clock(self) -> float:
        return WALL + self.scheduler.time()

    def park(self, offset: int = 0) -> InFlight:
        entry = in_flight(self.owner, offset)
        entry.tries, entry.first_try_at = 1, self.scheduler.time()
        self.parker.park(entry, Answer(400), "status_rejected")
        return entry


def test_a_record_is_parked_once_the_broker_has_confirmed_it() -> None:
    rig = Rig()
    rig.topic.holding = True
    entry = rig.park()
    rig.scheduler.advance(60.0)
    assert (rig.parked, len(rig.parker), list(rig.parker.entries())) == ([], 1, [entry])
    rig.topic.release()
    rig.scheduler.run_pending()
    assert (rig.parked, len(rig.parker)) == ([entry], 0)
    assert rig.topic.writes == 1


def test_a_write_that_fails_is_tried_with_growing_waits_until_it_succeeds() -> None:
    """However often; the attempts at the application are no limit for it."""
    rig = Rig()
    rig.topic.error = "not authorized"
    entry = rig.park()
    writes = []
    for _ in range(40):
        rig.scheduler.run_pending()
        writes.append(rig.topic.writes)
        rig.scheduler.advance(1.0)
    # at 0, 1, 3, 7, 15, 23, 31, 39 s
    assert [writes.index(n) for n in range(1, 9)] == [0, 1, 3, 7, 15, 23, 31, 39]
    assert (rig.parker.failures, rig.parker.last_error, rig.parked) == (8, "not authorized", [])
    rig.topic.error = None
    rig.scheduler.advance(8.0)
    assert (rig.parked, len(rig.parker)) == ([entry], 0)
    assert (rig.parker.failures, rig.parker.last_error) == (0, "")
    assert rig.parker.failed_writes == 8, "what a counter tells is not taken back"
    assert rig.scheduler.scheduled == 0


def test_records_are_written_side_by_side() -> None:
    """One that cannot be written does not keep the others."""
    rig = Rig()
    rig.topic.error = "message too large"
    big = rig.park(1)
    rig.scheduler.run_pending()
    rig.topic.error = None
    rig.park(2)
    rig.scheduler.run_pending()
    assert (offsets(rig.parked), list(rig.parker.entries())) == ([2], [big])
    rig.scheduler.advance(1.0)
    assert offsets(rig.parked) == [2, 1]


@pytest.mark.parametrize("waiting", ["for the broker", "for the next try"])
def test_what_is_given_up_is_forgotten_even_if_its_confirmation_still_comes(waiting: str) -> None:
    rig = Rig()
    rig.topic.holding = waiting == "for the broker"
    rig.topic.error = "refused"
    entries = [rig.park(1), rig.park(2)]
    rig.scheduler.run_pending()
    assert rig.parker.give_up() == entries
    assert (len(rig.parker), rig.scheduler.scheduled) == (0, 0)
    rig.topic.error = None
    rig.topic.release()
    rig.scheduler.advance(60.0)
    assert (rig.parked, rig.topic.writes) == ([], 2)


def test_of_a_partition_that_left_nothing_is_written_any_more() -> None:
    """Else its records would hold their places for as long as the topic refuses writes."""
    rig = Rig()
    rig.topic.error = "refused"
    left = [rig.park(1), rig.park(2)]
    gone, rig.owner = rig.owner, assignment(1)
    kept = rig.park(7)
    rig.scheduler.advance(2.0)
    assert rig.parker.discard(gone) == left
    assert rig.parker.discard(gone) == []
    rig.topic.error = None
    rig.scheduler.advance(60.0)
    assert (rig.parked, len(rig.parker)) == ([kept], 0)


def test_the_story_tells_why_how_often_and_when() -> None:
    rig = Rig()
    entry = in_flight(rig.owner, 7)
    entry.tries, entry.first_try_at = 3, 100.0
    rig.scheduler.advance(30.0)
    rig.parker.park(entry, Answer(422, body=b"no such field"), "status_rejected")
    rig.parker.park(in_flight(rig.owner, 8), Failed(FailureKind.BROKEN, "reset"), "broken")
    rig.scheduler.run_pending()
    story, other = rig.topic.stories
    assert story._asdict() == {
        "reason": "status_rejected",
        "detail": "the application answered 422",
        "status": 422,
        "attempts": 3,
        "first_attempt_at": WALL + 100.0,
        "last_attempt_at": WALL + 130.0,
        "answer": b"no such field",
    }
    assert (other.detail, other.status, other.answer) == ("broken: reset", None, b"")


def test_a_retried_write_tells_the_same_story() -> None:
    """It says when the application was tried, not when the dead-letter topic was."""
    rig = Rig()
    rig.topic.error = "refused"
    rig.park()
    rig.scheduler.advance(20.0)
    rig.topic.error = None
    rig.scheduler.advance(10.0)
    [story] = rig.topic.stories
    assert story.last_attempt_at == WALL + 100.0


def test_what_is_given_back_takes_its_trouble_along() -> None:
    rig = Rig()
    rig.topic.error = "not enough replicas"
    rig.park()
    rig.scheduler.run_pending()
    assert rig.parker.failures == 1
    rig.parker.discard(rig.owner)
    assert (rig.parker.failures, rig.parker.last_error) == (0, "")
