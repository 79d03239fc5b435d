"""Clients made anew while the engine runs: nothing is lost or repeated, and nobody stays away."""

from __future__ import annotations

import pytest

from sidecar.core.commands import Renew
from sidecar.model import Guarantee
from tests.fakes.application import answer
from tests.fakes.broker import Protocol
from tests.fakes.engine import World


@pytest.mark.parametrize("protocol", Protocol)
@pytest.mark.parametrize("guarantee", Guarantee)
def test_what_executes_is_finished_and_the_rest_comes_again(
    guarantee: Guarantee, protocol: Protocol
) -> None:
    """Of two members, each of which is renewed once; the second while the first is away."""
    world = World(
        guarantee=guarantee,
        protocol=protocol,
        members=2,
        partitions=4,
        executors=3,
        behave=lambda request: answer(seconds=0.3),
    )
    world.run_until(lambda: all(len(member.owned) == 2 for member in world.members))
    for partition in range(4):
        world.produce(20, partition)
    world.run_until(lambda: len(world.requests) > 10)
    for member in world.members:
        member.mailbox.post(Renew())
        world.run_until(lambda member=member: member.source.renewals == 1)  # type: ignore[misc]
    world.run_until(lambda: world.lag() == 0 and all(member.owned for member in world.members))
    world.run_until(lambda: len(world.requests) >= 80)  # in at_most_once a commit comes before
    world.run(5.0)
    for partition in range(4):
        assert sorted(world.offsets_sent(partition)) == list(range(20))


def test_a_member_that_is_away_is_renewed_and_stays_away() -> None:
    world = World(partitions=2, leave_after_held_seconds=5.0)
    (member,) = world.members
    world.run_until(lambda: len(member.owned) == 2)
    member.app.up = False
    world.produce(1)
    world.run_until(lambda: not member.owned)
    member.mailbox.post(Renew())
    world.run_until(lambda: member.source.renewals == 1)
    world.run(3.0)
    assert not member.owned
    member.app.up = True
    world.run_until(lambda: world.lag() == 0)
    assert member.source.renewals == 1


def test_nothing_is_renewed_on_the_way_out() -> None:
    world = World(behave=lambda request: answer(seconds=2.0))
    (member,) = world.members
    world.produce(1)
    world.run_until(lambda: len(world.requests) == 1)
    member.route.drain()
    member.mailbox.post(Renew())
    world.run_until(lambda: not member.running)
    assert member.source.renewals == 0
    assert world.lag() == 0
