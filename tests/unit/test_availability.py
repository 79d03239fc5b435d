"""Availability: probes while the application is away, and only then."""

from __future__ import annotations

import logging

from sidecar.core.breaker import Breaker, State
from sidecar.core.membership import Membership
from sidecar.dispatch.availability import AFTER_A_BREAK_SECONDS, PROBE_SECONDS, Availability
from sidecar.logs import RateLimited
from tests.fakes.clock import SimulatedScheduler
from tests.fakes.delivery import ManualDelivery

LEAVE_AFTER = 300.0


class Rig:
    def __init__(self) -> None:
        self.scheduler = SimulatedScheduler()
        self.delivery = ManualDelivery()
        self.breaker = Breaker(self.scheduler.time())
        self.changes = 0
        self.told: list[str] = []
        self.gone: list[str] = []
        self.availability = Availability(
            self,
            self.scheduler,
            self.delivery,
            self.breaker,
            Membership(LEAVE_AFTER),
            "http://app",
            RateLimited(logging.getLogger("sidecar.x"), clock=self.scheduler.time),
        )

    def app_is_reachable(self) -> None:
        self.changes += 1

    def app_is_gone(self, error: str) -> None:
        self.gone.append(error)
        self.hold()

    def leave_group(self) -> None:
        self.told.append("leave")

    def return_to_group(self) -> None:
        self.told.append("return")

    def hold(self) -> None:
        self.breaker.app_down(None, self.scheduler.time(), "refused", at_once=True)
        self.availability.watch()

    def probe(self, error: str | None = None) -> None:
        """Half a second passes, and the probe of then gets this answer."""
        self.scheduler.advance(PROBE_SECONDS)
        self.delivery.answer_probe(error)

    def try_in_vain(self) -> None:
        """The trial that a probe allowed is answered as by a misrouted application."""
        record = object()
        self.breaker.started(record)
        self.breaker.app_down(record, self.scheduler.time(), "status 401", at_once=False)
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
    trial = object()
    rig.breaker.started(trial)
    rig.breaker.answered(trial, rig.scheduler.time())
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


def test_after_a_broken_connection_one_look_tells_whether_the_application_went_with_it() -> None:
    rig = up()
    rig.availability.look_soon()
    rig.availability.look_soon()
    rig.scheduler.advance(AFTER_A_BREAK_SECONDS)
    assert rig.delivery.probed == 2
    rig.delivery.answer_probe(None)
    rig.scheduler.advance(60.0)
    assert (rig.delivery.probed, rig.gone, rig.breaker.state) == (2, [], State.UP)
    rig.availability.look_soon()
    rig.scheduler.advance(AFTER_A_BREAK_SECONDS)
    rig.delivery.answer_probe("refused")
    assert (rig.gone, rig.breaker.state) == (["refused"], State.HELD)
    rig.probe()
    assert rig.breaker.state is State.TRIAL


def test_a_probe_under_way_when_a_connection_breaks_does_not_count_for_it() -> None:
    """It may have got through before the application went."""
    rig = up()
    rig.availability.look_soon()
    rig.scheduler.advance(AFTER_A_BREAK_SECONDS)
    rig.availability.look_soon()
    rig.delivery.answer_probe(None)
    rig.scheduler.advance(AFTER_A_BREAK_SECONDS)
    assert rig.delivery.probed == 3
    rig.delivery.answer_probe("refused")
    rig.scheduler.advance(PROBE_SECONDS)
    assert (rig.gone, rig.delivery.probed) == (["refused"], 4)


def test_each_probe_that_fails_is_told_while_held_as_well() -> None:
    """What the application had on the wire may break long after it was refused first."""
    rig = up()
    rig.hold()
    for _ in range(3):
        rig.probe("refused")
    assert rig.gone == ["refused"] * 3


# --- leaving the group ------------------------------------------------------------------------


def test_an_application_away_for_long_costs_the_membership_until_a_probe_gets_through() -> None:
    rig = up()
    rig.hold()
    while not rig.told:
        rig.probe("refused")
    assert rig.told == ["leave"]
    assert rig.scheduler.time() - (rig.breaker.down_since or 0.0) == LEAVE_AFTER
    for _ in range(500):
        rig.probe("refused")
    assert rig.told == ["leave"]
    assert rig.breaker.state is State.HELD
    rig.probe()
    assert (rig.told, rig.breaker.state) == (["leave", "return"], State.TRIAL)


def test_one_that_answers_and_takes_nothing_is_left_as_long_as_it_was_waited_for() -> None:
    """Else each probe would lead to a rebalance."""
    rig = up()
    rig.hold()
    rig.probe()
    began = rig.breaker.down_since or 0.0
    moments = []
    for _ in range(5000):
        rig.try_in_vain() if rig.breaker.state is State.TRIAL else None
        before = len(rig.told)
        rig.probe()
        if len(rig.told) > before:
            moments.append(rig.scheduler.time() - began)
    assert rig.told[:4] == ["leave", "return", "leave", "return"]
    gaps = [later - earlier for earlier, later in zip([0.0, *moments], moments, strict=False)]
    assert all(gap >= LEAVE_AFTER for gap in gaps)


def test_one_that_was_restarted_meanwhile_is_returned_to_at_once() -> None:
    rig = up()
    rig.hold()
    rig.probe()
    while not rig.told:
        rig.try_in_vain()
        rig.probe()
    rig.probe("refused")
    rig.probe()
    assert rig.told == ["leave", "return"]


def test_one_that_has_just_come_back_is_tried_before_it_is_left() -> None:
    """However long it was away: here the loop was stalled."""
    rig = up()
    rig.hold()
    rig.probe("refused")
    rig.scheduler.advance(LEAVE_AFTER)
    rig.delivery.answer_probe(None)
    assert (rig.told, rig.breaker.state) == ([], State.TRIAL)


def test_who_is_about_to_end_does_not_leave_before() -> None:
    rig = up()
    rig.hold()
    rig.availability.membership.stay()
    for _ in range(1000):
        rig.probe("refused")
    assert rig.told == []


def test_one_that_has_taken_a_record_meanwhile_is_returned_to_at_once() -> None:
    """Or an operator said that it does; nothing but a probe can tell it from one that is away."""
    rig = up()
    rig.hold()
    rig.probe()
    while not rig.told:
        rig.try_in_vain()
        rig.probe()
    rig.breaker.reset(rig.scheduler.time())
    rig.probe()
    assert rig.told == ["leave", "return"]
    probed = rig.delivery.probed
    rig.scheduler.advance(60.0)
    assert rig.delivery.probed == probed
