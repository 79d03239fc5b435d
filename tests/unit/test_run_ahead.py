"""How far at_most_once commits ahead."""

from __future__ import annotations

from sidecar.core.run_ahead import RunAhead


def test_it_begins_with_what_the_executors_hold() -> None:
    assert RunAhead().allowance(ready=0, slots=32, threshold=1000) == 32


def test_nothing_is_committed_while_a_quarter_of_it_is_left() -> None:
    ahead = RunAhead()
    assert ahead.allowance(ready=9, slots=32, threshold=1000) == 0
    assert ahead.allowance(ready=8, slots=32, threshold=1000) == 24


def test_it_grows_while_the_executors_run_dry_up_to_three_quarters_of_the_budget() -> None:
    ahead = RunAhead()
    for now in range(10):
        ahead.allowance(0, 32, 1000)
        ahead.committed(left=0, waiting=100, now=now)
    assert ahead.allowance(0, 32, 1000) == 750


def test_a_quiet_topic_does_not_make_it_grow() -> None:
    """The executors are idle because there is nothing, not because a commit takes long."""
    ahead = RunAhead()
    for turn in range(10):
        ahead.allowance(0, 32, 1000)
        ahead.committed(left=0, waiting=0, now=turn / 1000)
    assert ahead.allowance(0, 32, 1000) == 32


def test_it_grows_until_commits_no_longer_follow_each_other_at_once() -> None:
    """At 10 000 records/s, with commits so quick that the executors never run dry."""
    ahead, now, sizes = RunAhead(), 0.0, []
    while now < 10:
        ahead.allowance(0, 8, 1000)
        left = ahead.ahead // 4
        sizes.append(ahead.allowance(left, 8, 1000))
        ahead.committed(left, waiting=100, now=now)
        now += sizes[-1] / 10_000
    assert 100 <= sizes[-1] <= 200
    assert len(sizes) <= 1500


def test_it_shrinks_when_plenty_is_left() -> None:
    ahead = RunAhead()
    ahead.ahead = 500
    for now in range(40):
        left = ahead.ahead // 4
        ahead.allowance(left, 8, 1000)
        ahead.committed(left, waiting=100, now=now)
    assert ahead.allowance(0, 8, 1000) <= 8


def test_a_budget_of_one_still_moves() -> None:
    assert RunAhead().allowance(ready=0, slots=16, threshold=1) == 1
