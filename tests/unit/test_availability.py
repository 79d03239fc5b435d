"""Availability: probes while the application is away, and only then."""

from __future__ import annotations

from sidecar.core.breaker import Breaker, State
from sidecar.dispatch.availability import PROBE_SECONDS, Availability
from tests.fakes.clock import SimulatedScheduler
from tests.fakes.delivery import ManualDelivery


class Rig:
    def __init__(self) -> None:
        self.scheduler = SimulatedScheduler()
        self.delivery = ManualDelivery()
        self.breaker = Breaker(self.scheduler.time())
        self.changes = 0
        self.availability = Availability(
            self.scheduler, self.delivery, self.breaker, self.note_change, "http://app"
        )

    def note_change(self) -> None:
        self.changes += 1

    def hold(self) -> None:
        self.breaker.app_down(self.scheduler.time(), "refused", at_once=True)
        self.availability.watch()


def up() -> Rig:
    rig = Rig()
    rig.availability.start()
    rig.delivery.answer_probe(None)
    return rig


def test_the_first_probe_goes_out_at_once_and_dispatch_begins_with_its_answer() -> None:
    rig = up()
    assert (rig.delivery.probed, rig.breaker.state, rig.changes) == (1, State.UP, 1)
    rig.scheduler.advance(60.0)
    assert rig.delivery.probed == 1, "nothing probes an application that is there"


def test_a_refused_application_is_probed_every_half_second_until_it_is_there() -> None:
    rig = Rig()
    rig.availability.start()
    for seconds in range(40):
        assert rig.delivery.probed == seconds + 1
        rig.delivery.answer_probe("refused")
        rig.scheduler.advance(PROBE_SECONDS)
    assert (rig.breaker.state, rig.breaker.last_error, rig.changes) == (State.WAITING, "refused", 0)
    rig.delivery.answer_probe(None)
    assert (rig.breaker.state, rig.changes) == (State.UP, 1)


def test_one_probe_at_a_time() -> None:
    rig = Rig()
    rig.availability.start()
    rig.availability.watch()
    rig.scheduler.advance(60.0)
    assert rig.delivery.probed == 1, "the first has no answer yet"
    rig.delivery.answer_probe("refused")
    rig.availability.watch()
    rig.availability.watch()
    assert rig.scheduler.scheduled == 1


def test_when_intake_is_held_a_probe_allows_one_trial_and_a_failed_trial_the_next_probe() -> None:
    rig = up()
    for probes in range(2, 6):
        rig.hold()
        rig.scheduler.advance(PROBE_SECONDS)
        assert rig.delivery.probed == probes
        rig.delivery.answer_probe(None)
        assert rig.breaker.state is State.TRIAL
        rig.scheduler.advance(60.0)
        assert rig.delivery.probed == probes, "the trial decides now"
    rig.breaker.answered(rig.scheduler.time())
    rig.scheduler.advance(60.0)
    assert (rig.breaker.state, rig.delivery.probed) == (State.UP, 5)


def test_after_stop_no_probe_begins() -> None:
    rig = up()
    rig.hold()
    rig.availability.stop()
    rig.availability.watch()
    rig.scheduler.advance(60.0)
    assert (rig.delivery.probed, rig.scheduler.scheduled) == (1, 0)


def test_the_answer_to_a_probe_that_was_under_way_at_stop_changes_nothing() -> None:
    """Neither a success, which would start what has ended, nor a failure, which would go on."""
    for answer in (None, "refused"):
        rig = Rig()
        rig.availability.start()
        rig.availability.stop()
        rig.delivery.answer_probe(answer)
        rig.scheduler.advance(60.0)
        assert (rig.delivery.probed, rig.changes, rig.breaker.state) == (1, 0, State.WAITING)
