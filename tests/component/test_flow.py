"""Backpressure, fairness, isolation, executors."""

from __future__ import annotations

import logging
from typing import Final

import pytest

from sidecar.settings import RetrySettings
from tests.fakes.application import HANG, Reply, Request, answer
from tests.fakes.engine import World

PATIENT: Final = 1000.0


def test_a_full_buffer_does_not_cost_the_membership() -> None:
    """FLOW-2: the consumer is polled all the time, and consumption resumes at once."""
    world = World(threshold=20, executors=4, timeout_seconds=PATIENT, behave=lambda r: HANG)
    world.produce(200)
    member = world.members[0]
    world.run_until(lambda: member.places.in_flight == 20)
    for _ in range(30):
        polls = member.source.polls
        world.run(2.0)
        assert member.source.polls > polls
    assert member.route.counters.rebalances == 0
    world.behaviour = lambda request: answer()
    for slot in list(member.app.executing):
        slot.reply(answer().result)
    world.run_until(lambda: world.lag() == 0, limit=5.0)


def test_every_line_about_a_route_names_it(caplog: pytest.LogCaptureFixture) -> None:
    """Troubles that repeat as well, whoever of its parts tells them."""
    caplog.set_level(logging.DEBUG)
    world = World(behave=lambda request: answer(500), retry=RetrySettings(max_attempts=2))
    app = world.members[0].app
    app.up = False
    world.run(2.0)
    app.up = True
    world.produce(3)
    world.run(5.0)
    app.up = False
    world.run(5.0)
    parts = {entry.name for entry in caplog.records if hasattr(entry, "route")}
    assert {entry.name for entry in caplog.records if entry.name not in parts} == set()
    assert all(hasattr(entry, "route") for entry in caplog.records), caplog.messages
    assert "sidecar.dispatch.route" in parts


def test_an_empty_topic_does_not_cost_the_membership() -> None:
    """FLOW-2, the idle variant."""
    world = World()
    world.run(60.0)
    member = world.members[0]
    assert member.route.counters.rebalances == 0
    assert member.source.polls > 600


def test_a_quiet_partition_gets_its_turn_beside_a_hot_one() -> None:
    world = World(partitions=2, threshold=100, executors=1, behave=lambda r: answer(seconds=0.1))
    world.produce(2000, partition=0)
    member = world.members[0]
    world.run(20.0)
    for _ in range(5):
        world.produce(1, partition=1)
        # Behind the 100 that are buffered it would be 10 s.
        world.run_until(lambda: world.committed(1).offset == world.end(1), limit=4.0)
        world.run(3.0)
    assert member.places.in_flight <= 100


def test_routes_do_not_feel_each_other() -> None:
    """One whose application hangs, and one whose broker does not answer, beside a healthy one."""
    healthy = World()
    hanging = World(scheduler=healthy.scheduler, timeout_seconds=PATIENT, behave=lambda r: HANG)
    silent = World(scheduler=healthy.scheduler)
    hanging.produce(500)
    for world in (healthy, hanging, silent):
        world.run(1.0)
    silent.broker.down = True
    began = healthy.now
    healthy.produce(500)
    while healthy.lag():
        for world in (healthy, hanging):
            world.turn()
        assert healthy.now - began < 3.0
    assert hanging.members[0].route.executing == hanging.settings.executors


def test_records_that_wait_hold_a_place_but_no_executor() -> None:
    world = World(
        threshold=10,
        executors=1,
        retry=RetrySettings(
            max_attempts=100, initial_backoff_seconds=100.0, max_backoff_seconds=100.0
        ),
        behave=lambda r: answer(500 if r.offset < 5 and r.attempt == 1 else 204),
    )
    world.produce(30)
    member = world.members[0]
    world.run_until(lambda: member.route.counters.delivered == 25)
    assert member.route.delayed == 5
    assert member.route.executing == 0
    assert member.places.in_flight == 5
    world.run_until(lambda: world.lag() == 0, limit=200.0)


def test_no_executors_pause_dispatch_and_keep_the_membership() -> None:
    world = World()
    world.run(1.0)
    member = world.members[0]
    member.route.set_executors(0)
    world.produce(10)
    world.run(60.0)
    assert member.app.requests == []
    assert member.route.counters.rebalances == 0
    member.route.set_executors(2)
    world.run_until(lambda: world.lag() == 0)


def test_shrinking_cancels_no_request() -> None:
    world = World(executors=8, behave=lambda request: answer(seconds=1.0))
    world.produce(16)
    member = world.members[0]
    world.run_until(lambda: member.route.executing == 8)
    member.route.set_executors(1)
    assert member.route.executing == 8
    world.run(1.5)
    assert member.route.executors.running == 1
    world.run_until(lambda: world.lag() == 0)
    assert len(world.requests) == 16


def test_the_deadline_frees_the_executor() -> None:
    """Whatever the application does; the record is tried again."""

    def behave(request: Request) -> Reply:
        return HANG if request.offset == 0 and request.attempt == 1 else answer()

    world = World(executors=1, timeout_seconds=2.0, behave=behave)
    world.produce(2)
    world.run_until(lambda: world.lag() == 0)
    assert sorted(world.offsets_sent()) == [0, 0, 1]
    assert world.requests[1].at - world.requests[0].at >= 2.0
    assert world.members[0].route.counters.failures["timeout"] == 1
