"""Why a route is slow or stopped, in named causes with the next step to take.

Reads a route on the loop and changes nothing. Moments are kept in scheduler time inside and
shown as times of day, so every function takes both clocks' reading of now.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final, NamedTuple

from sidecar.core.breaker import IN_A_ROW, State
from sidecar.core.concurrency import TOO_MANY
from sidecar.core.ledger import InFlight
from sidecar.dispatch.route import Phase, Route
from sidecar.status import Cause, CauseName

HELD_LONG_SECONDS: Final = 10.0


class Now(NamedTuple):
    """One moment by both clocks: the scheduler's, and Unix seconds."""

    scheduler: float
    wall: float

    def date(self, moment: float) -> datetime:
        """The time of day of a moment in scheduler time."""
        unix = self.wall - (self.scheduler - moment)
        return datetime.fromtimestamp(round(unix, 3), UTC)

    def age(self, moment: float) -> float:
        return max(0.0, round(self.scheduler - moment, 3))


def causes(route: Route, now: Now) -> Iterator[Cause]:
    """Why the route is slow or stopped, what stops it first; nothing while all is well."""
    if route.phase in (Phase.LEAVING, Phase.ENDED):
        return
    yield from _stopped_by_app(route, now)
    if route.failures.halted:
        yield Cause(
            CauseName.HALTED,
            None,
            route.failures.halted,
            "mend the app or the record, then resume the route",
        )
    if route.paused:
        yield Cause(CauseName.PAUSED, None, "an operator paused the dispatch", "resume the route")
    if route.phase is Phase.DRAINING:
        yield Cause(
            CauseName.DRAINING,
            None,
            f"{route.in_flight} records in flight are being finished",
            "wait; what is not finished in time is cut",
        )
    yield from _kafka(route, now)
    yield from _membership(route, now)
    held = list(_watermark(route, now))
    unanswered = _unanswered(route, now)
    if unanswered is not None and not (held and route.executors.busy == 1):
        yield unanswered
    yield from _executors(route, answered=unanswered is None and not _failing(route))
    yield from _retrying(route, now)
    if route.parker.failures:
        yield Cause(
            CauseName.DEAD_LETTER_WRITES_FAILING,
            None,
            f"{len(route.parker)} records wait to be parked or to be moved to a retry topic;"
            f" {route.parker.last_error}",
            "see that the topic exists and may be written; the writes are repeated by themselves",
        )
    elif route.without_dead_letter_topic:
        yield Cause(
            CauseName.DEAD_LETTER_WRITES_FAILING,
            None,
            f"the dead-letter topic {_dead_letter_topic(route)} does not exist; nothing waits to be"
            " parked yet",
            "create it, as sidecar check says; it is looked for every ten seconds",
        )
    yield from held


def _stopped_by_app(route: Route, now: Now) -> Iterator[Cause]:
    breaker = route.breaker
    since, error = now.date(breaker.told_since), breaker.last_error or "no answer yet"
    if breaker.state is State.WAITING:
        step = f"start the app, or see that it listens at {route.settings.target}; nothing is"
        step += " fetched until then"
        yield Cause(CauseName.WAITING_FOR_APP, since, error, step)
    elif breaker.state is State.HELD or (breaker.state is State.TRIAL and route.in_flight):
        yield _held(route, now)  # reachable and with nothing to try, it is not stopped
    if (left_at := route.membership.left_at) is not None:
        yield Cause(
            CauseName.LEFT_GROUP,
            now.date(left_at),
            f"the app was not there for {route.settings.leave_after_held_seconds:g} s: this member"
            " has left the group, and others have its partitions",
            "bring the app back; the group is joined again by itself",
        )


def _held(route: Route, now: Now) -> Cause:
    breaker, failures = route.breaker, route.failures
    error = breaker.last_error
    if breaker.until_delivered:
        waiting = f", {failures.waiting} wait to be parked" if failures.waiting else ""
        return Cause(
            CauseName.PARKED_IN_A_ROW,
            now.date(breaker.told_since),
            f"{failures.in_a_row.count} records were parked or moved to a retry topic since"
            f" the last delivery{waiting};"
            f" the last failure: {failures.last}",
            "see why the app takes no record; delivery goes on once it takes one. If they are"
            " parked rightly, resume the route to park as many again",
        )
    step = "see why the app is away or misrouted; delivery goes on once it answers"
    if error.endswith((" 401", " 403")):
        step = f"see that the route's auth is what the app asks for. Or {step}"
    return Cause(CauseName.HELD, now.date(breaker.told_since), error or "no answer yet", step)


def _dead_letter_topic(route: Route) -> str:
    dead_letter = route.settings.dead_letter
    return "" if dead_letter is None else dead_letter.topic


def _kafka(route: Route, now: Now) -> Iterator[Cause]:
    trouble = route.trouble
    if trouble.goes_on(now.scheduler, route.membership.joining_since):
        yield Cause(
            CauseName.KAFKA_TROUBLE,
            now.date(trouble.since),
            trouble.last,
            "mend what the error names, and see that the brokers are reachable; the client tries"
            " again by itself",
        )


def _membership(route: Route, now: Now) -> Iterator[Cause]:
    """Of the group: what is given up, or that there is nothing to fetch from."""
    if route.phase is not Phase.RUNNING or route.membership.left_at is not None:
        return
    if revoking := route.revocations.waited_for:
        yield Cause(
            CauseName.REBALANCING,
            None,
            f"{revoking} records of partitions that are being given up are finished first",
            "wait; see why members come and go if it happens again and again",
        )
    elif route.offsets.partitions():
        return
    elif route.membership.joining_since is not None:
        yield Cause(
            CauseName.REBALANCING,
            now.date(route.membership.joining_since),
            "the group has assigned no partition yet",
            "wait; if it lasts, see that the brokers can be reached, and that the other members of"
            " the group answer",
        )
    else:
        yield Cause(
            CauseName.NO_PARTITIONS,
            None,
            "the group has assigned no partition to this member",
            "nothing to do where there are more members than partitions; else see that the topics"
            " exist: sidecar check tells",
        )


def _unanswered(route: Route, now: Now) -> Cause | None:
    """Requests that are out for long, while none comes back."""
    out = list(route.executors.executing())
    if not out or route.timings.rates().delivered_per_second:
        return None
    oldest = min(out, key=lambda each: each.started_at)
    if now.scheduler - oldest.started_at < HELD_LONG_SECONDS:
        return None
    return Cause(
        CauseName.UNANSWERED,
        now.date(oldest.started_at),
        f"the app has taken nothing lately; {len(out)} requests are out, the oldest for"
        f" {oldest.entries[0].record.original}",
        "see what keeps the app from answering; a request is given up after"
        f" {route.settings.timeout_seconds:g} s",
    )


def _executors(route: Route, *, answered: bool) -> Iterator[Cause]:
    pool = route.executors
    if pool.wanted == 0:
        yield Cause(
            CauseName.NO_EXECUTORS,
            None,
            "the number of executors is 0: nothing is dispatched",
            "set it to what the app can take",
        )
        return
    waiting = route.startable + route.offsets.waiting
    if route.pace.rate is not None and route.pace.holds and waiting:
        yield Cause(
            CauseName.RATE_LIMITED,
            None,
            f"no more than {route.pace.rate:g} records start per second, {waiting} wait",
            "raise or remove the rate limit if the app can take more",
        )
    elif pool.effective < pool.wanted:
        yield Cause(
            CauseName.APP_OVERLOADED,
            None,
            f"{route.failures.concurrency.rate:.0%} of the recent answers were 429 or 503:"
            f" {pool.effective} of {pool.wanted} executors are used",
            "give the app more room, or lower the number of executors; it is raised by itself as"
            " records are delivered",
        )
    elif (share := route.timings.rates().throttled_share or 0.0) >= TOO_MANY:
        yield Cause(
            CauseName.APP_OVERLOADED,
            None,
            f"{share:.0%} of the answers of the last seconds were 429 or 503",
            "give the app more room, or set a rate limit that it bears",
        )
    elif pool.busy >= pool.effective and waiting and answered and not route.paused:
        yield Cause(
            CauseName.EXECUTORS_BUSY,
            None,
            f"all {pool.busy} executors have a request out, {waiting} records wait for one",
            "raise the number of executors if the app has room, else make the app faster",
        )


def _failing(route: Route) -> bool:
    """Whether one attempt after another fails, of an application that is there."""
    return route.breaker.state is State.UP and route.failures.failed_in_a_row >= IN_A_ROW


def _retrying(route: Route, now: Now) -> Iterator[Cause]:
    """Records that wait to be tried again, once they are many or one has waited long."""
    waiting, oldest, failing = len(route.delays), route.delays.oldest, _failing(route)
    if failing and route.executing:
        oldest = route.oldest
    if oldest is None:
        return
    if waiting * 10 >= route.threshold or now.scheduler - oldest >= HELD_LONG_SECONDS or failing:
        tried = f", {route.executing} are being tried" if failing and route.executing else ""
        yield Cause(
            CauseName.RETRYING,
            now.date(oldest),
            f"{waiting} records wait to be tried again{tried}; the last failure:"
            f" {route.failures.last}",
            "see why the app fails; the records are tried again by themselves",
        )


def _watermark(route: Route, now: Now) -> Iterator[Cause]:
    """The record that keeps the most settled ones from being committed, once it does so long."""
    held = [
        (state.span - state.outstanding, state.oldest)
        for state in route.offsets.partitions()
        if state.oldest is not None
        and state.span > state.outstanding
        and now.scheduler - state.oldest.received_at >= HELD_LONG_SECONDS
    ]
    if held:
        done, entry = max(held, key=lambda each: each[0])
        yield Cause(
            CauseName.WATERMARK_HELD,
            now.date(entry.received_at),
            f"{entry.record} is not settled; {done} offsets behind it are done or hold no record",
            _way_out(route, entry),
        )


def _way_out(route: Route, entry: InFlight) -> str:
    """What gets a record settled depends on where it is."""
    move = "drop" if route.settings.dead_letter is None else "park"
    done = "gives it up for good" if move == "drop" else "moves it out of the way"
    by_hand = f"`sidecar record {move} {entry.record.original}` {done}"
    if any(each is entry for each in route.parker.entries()):
        return (
            "it is settled once its write to the dead-letter or retry topic is confirmed: see that"
            " the topic exists and may be written"
        )
    if route.breaker.state is not State.UP:
        return "it is sent once the app takes records again: see why it is away or misrouted"
    if any(each is entry for each in route.executors.entries()):
        return f"its request is out: see what keeps the app from answering; {by_hand}"
    if any(each is entry for each in route.delays.entries()):
        return (
            f"it waits for its next attempt; the last failure: {route.failures.last}; see why the"
            f" app fails it; {by_hand}"
        )
    return "it waits for an executor: see what else is told here"
