"""Where a group begins."""

from __future__ import annotations

from sidecar.model import Partition
from tests.fakes.application import answer
from tests.fakes.engine import TOPIC, World


def test_a_first_record_that_fails_is_found_again() -> None:
    """BRK-3: a fresh group that reads from the end commits where it begins."""
    world = World(members=0, from_end=True, behave=lambda request: answer(500))
    world.produce(7)
    world.judge.starts_at(Partition(TOPIC, 0), 7)
    first = world.join()
    world.run_until(lambda: world.committed().offset == 7)
    world.produce(5)
    world.run_until(lambda: len({r.offset for r in first.app.requests}) == 5)
    first.crash()
    world.behaviour = lambda request: answer()
    second = world.join()
    world.run_until(lambda: world.lag() == 0)
    assert [r.offset for r in second.app.requests] == [7, 8, 9, 10, 11]


def test_a_partition_added_later_is_read_from_its_beginning() -> None:
    world = World(from_end=True)
    world.run_until(lambda: world.committed().offset == 0)
    world.broker.add_partitions(TOPIC, 1)
    world.produce(3, partition=1)
    world.run_until(lambda: len(world.offsets_sent(1)) == 3)


def test_positions_are_waited_for_while_the_broker_is_away() -> None:
    """And nothing is skipped because it did not answer."""
    world = World(members=0)
    world.produce(5)
    member = world.join()
    world.run_until(lambda: member.fetching)
    world.broker.down = True
    world.scheduler.call_later(8.0, setattr, world.broker, "down", False)
    world.run_until(lambda: world.lag() == 0)
    assert sorted(world.offsets_sent()) == [0, 1, 2, 3, 4]


def test_a_log_that_begins_later_is_read_on_loudly() -> None:
    world = World(executors=0)
    world.produce(300)
    member = world.members[0]
    world.run_until(lambda: member.places.in_flight == 100)
    world.broker.truncate(TOPIC, 0, 250)
    member.route.set_executors(4)
    world.run_until(lambda: world.committed().offset == 300)
    assert member.route.counters.out_of_range == 1
    assert sorted(world.offsets_sent()) == [*range(100), *range(250, 300)]


def test_a_log_made_anew_is_read_even_if_the_old_one_was_paused() -> None:
    """Pausing for greed belongs to an epoch."""
    world = World()
    world.produce(10)
    world.run_until(lambda: world.lag() == 0)
    member, partition = world.members[0], Partition(TOPIC, 0)
    member.source.pause([partition])
    member.fetcher._paused.update(member.fetcher._owned.values())
    world.broker.create_topic(TOPIC)
    world.judge.made_anew(partition)
    member.fetcher.on_out_of_range(partition, "the topic was made anew")
    world.produce(3)
    world.run_until(lambda: world.committed().offset == 3)
    assert world.offsets_sent() == [*range(10), 0, 1, 2]
