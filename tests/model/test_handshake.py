"""The fetch thread and the loop, in every interleaving: no deadlock, no lost wake-up.

The real fetcher, committer, mailbox, places and route, on a broker in memory. Each story runs in
every order of its steps, up to a number of preemptions; see tests.fakes.interleaving. Nothing may
end by a deadline: an answer that is there is taken, a place that is free is used.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from random import Random

import pytest

from sidecar.core.commands import Revoked
from sidecar.core.places import Places
from sidecar.dispatch.route import Route
from sidecar.kafka.fetcher import Fetcher
from sidecar.model import Guarantee
from sidecar.ports import Message
from sidecar.settings import RouteSettings
from tests.fakes.application import FakeApp, FakeDelivery, answer
from tests.fakes.broker import FakeBroker, FakeSource
from tests.fakes.interleaving import Choices, Interleaving, Stuck, WatchedMailbox, WatchedPlaces
from tests.fakes.judge import Judge

GROUP, TOPIC = "billing", "orders"
APP_SECONDS = 0.01
POLL_SECONDS = 0.02
RECORDS = 3


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


class QuickSource(FakeSource):
    """Its polls are short, so that what is waited for in vain stands out."""

    def poll(self, limit: int, timeout: float) -> list[Message]:
        return super().poll(limit, min(timeout, POLL_SECONDS))


class Pair:
    """One route and its fetch thread."""

    def __init__(self, between: Interleaving, guarantee: Guarantee) -> None:
        self.between = between
        scheduler = between.scheduler
        self.broker = FakeBroker()
        self.broker.create_topic(TOPIC)
        amo = guarantee is Guarantee.AT_MOST_ONCE
        settings = RouteSettings(
            topics=(TOPIC,),
            target="http://127.0.0.1:8080/",
            guarantee=guarantee,
            executors=1,
            threshold=2,
            loss_budget=2 if amo else None,
        )
        judge = Judge(self.broker, GROUP, settings)
        for offset in range(RECORDS):
            self.broker.produce(TOPIC)
            judge.handed_over("one", self.broker.partitions()[0], offset)
        app = FakeApp(scheduler, lambda _: answer(204, APP_SECONDS), "one", judge)
        self.places: Places = WatchedPlaces(2, 1_000_000, between)
        mailbox = WatchedMailbox(between)
        self.source = QuickSource(
            self.broker, GROUP, [TOPIC], name="one", clock=scheduler.time, wait=self._wait
        )
        self.started = self.over = False
        self.route = Route(
            settings,
            commit_interval_seconds=0.02,
            scheduler=scheduler,
            wall_clock=scheduler.time,
            random=Random(1),
            delivery=FakeDelivery(app),
            parking=None,
            mailbox=mailbox,
            places=self.places,
            start_fetching=self._start_fetching,
            failed=lambda _, error: pytest.fail(repr(error)),
            ended=self._ended,
        )
        self.fetcher = Fetcher(
            source=self.source,
            sink=self.route,
            tell=self._tell,
            mailbox=mailbox,
            places=self.places,
            clock=scheduler.time,
            revoke_seconds=5.0,
            clears_before_dispatch=amo,
        )
        self.route.start()

    def fetch(self) -> None:
        self.between.wait(lambda: self.started, 10.0)
        self.fetcher.run()

    def _start_fetching(self) -> None:
        self.started = True

    @property
    def now(self) -> float:
        return self.between.scheduler.time() - 1000.0

    @property
    def committed(self) -> int | None:
        return self.broker.committed(GROUP, TOPIC).offset

    def _tell(self, *call: object) -> None:
        self.between.point()
        self.between.scheduler.call_soon_threadsafe(*call)  # type: ignore[arg-type]
        self.between.point()

    def _wait(self, seconds: float) -> None:
        version = self.broker.version
        self.between.wait(lambda: self.broker.version != version, seconds)

    def _ended(self, route: Route, error: BaseException | None) -> None:
        assert error is None
        self.over = True


Story = Callable[[Pair], None]


def all_is_delivered_then_stopped(pair: Pair) -> None:
    def look() -> None:
        if pair.route.counters.delivered == RECORDS:
            pair.route.drain()
        else:
            pair.between.scheduler.call_later(0.02, look)

    look()


def revoked_while_it_delivers(pair: Pair) -> None:
    """The group rebalances while a record executes and another is buffered."""

    def rebalance() -> None:
        pair.broker.rejoin(pair.broker.group(GROUP))

    pair.between.scheduler.call_later(0.006, rebalance)
    all_is_delivered_then_stopped(pair)


def stopped_while_it_delivers(pair: Pair) -> None:
    pair.between.scheduler.call_later(0.006, pair.route.drain)


def stopped_while_it_is_revoked(pair: Pair) -> None:
    def both() -> None:
        pair.broker.rejoin(pair.broker.group(GROUP))
        pair.between.scheduler.call_later(0.0, pair.route.drain)

    pair.between.scheduler.call_later(0.006, both)


def paused_and_resumed(pair: Pair) -> None:
    pair.between.scheduler.call_later(0.004, pair.route.pause)
    pair.between.scheduler.call_later(0.015, pair.route.resume)
    all_is_delivered_then_stopped(pair)


STORIES = [
    all_is_delivered_then_stopped,
    revoked_while_it_delivers,
    stopped_while_it_delivers,
    stopped_while_it_is_revoked,
    paused_and_resumed,
]


def every_run(story: Story, guarantee: Guarantee, preemptions: int, most_seconds: float) -> int:
    """How many runs there are; raises in the first that hangs, waits in vain or loses something."""
    choices = Choices()
    number = 0
    for number in choices.runs():
        between = Interleaving(choices, preemptions, limit_seconds=20.0)
        pair = Pair(between, guarantee)
        story(pair)
        between.run(pair.fetch)
        if not pair.over:
            raise Stuck("the fetch thread is over and the route is not")
        if pair.now > most_seconds:
            raise Stuck(f"run {number}: it took {pair.now:g} s; something was waited for in vain")
        delivered = pair.route.counters.delivered
        assert pair.places.in_flight == 0
        assert pair.committed is not None
        if guarantee is Guarantee.AT_LEAST_ONCE:
            assert pair.committed <= delivered
        else:
            assert pair.committed >= delivered
        if "stopped_while" not in story.__name__:
            assert pair.committed == RECORDS <= delivered
    return number + 1


# A record takes 10 ms and a wait for room 10 ms at most, and with one executor and a threshold of
# two each may be in vain once; a poll that finds nothing is 20 ms. Any other wait is 0.2 s or more.
MOST_SECONDS = 0.19


@pytest.mark.parametrize("guarantee", Guarantee)
@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_neither_waits_in_vain_in_any_interleaving(story: Story, guarantee: Guarantee) -> None:
    """CTL-3, LIFE-5."""
    runs = every_run(story, guarantee, 1, MOST_SECONDS)
    assert runs > 40


def test_an_answer_that_is_thrown_away_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lost wake-up: what came between the question and the waiting is taken for stale."""
    right = Fetcher._await_revoked

    def wrong(fetcher: Fetcher, request: int) -> Revoked | None:
        fetcher._serve_mailbox()
        return right(fetcher, request)

    monkeypatch.setattr(Fetcher, "_await_revoked", wrong)
    with pytest.raises(Stuck, match="in vain"):
        every_run(revoked_while_it_delivers, Guarantee.AT_MOST_ONCE, 1, MOST_SECONDS)


def test_a_thread_that_goes_deaf_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A deadlock: once told to fetch no more it reads nothing, and the loop waits for its end."""
    monkeypatch.setattr(Fetcher, "_serve_mailbox", _only_once)
    with pytest.raises(Stuck, match="nothing goes on"):
        every_run(stopped_while_it_delivers, Guarantee.AT_LEAST_ONCE, 1, MOST_SECONDS)


def _only_once(fetcher: Fetcher) -> None:
    """After StopFetching nothing is read any more."""
    while not fetcher._draining and (command := fetcher._mailbox.receive(0)) is not None:
        fetcher._obey(command)
