"""Faults planted into the engine, to see that the judge finds them.

Purpose: a check that finds nothing may be blind. Each fault is one wrong step, of a kind that this
engine or another has once had; planting it replaces one method for the time of a test.

Owner: a simulation test.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any, Final, NamedTuple

import pytest

from sidecar.core import done_map
from sidecar.core.answers import Verdict
from sidecar.core.breaker import Breaker
from sidecar.core.commands import Revoked
from sidecar.core.intake import Intake
from sidecar.core.ledger import InFlight, Ledger, Snapshot
from sidecar.core.membership import Membership
from sidecar.dispatch import batching, results
from sidecar.dispatch.at_least_once import AtLeastOnce
from sidecar.dispatch.at_most_once import AtMostOnce
from sidecar.dispatch.delays import Delays
from sidecar.dispatch.executors import ExecutorPool, RecordExecutor
from sidecar.dispatch.exits import Exits
from sidecar.dispatch.in_a_row import InARow
from sidecar.dispatch.parker import Parker
from sidecar.dispatch.results import Results
from sidecar.dispatch.route import Route
from sidecar.dispatch.suspects import Suspects
from sidecar.kafka.fetcher import Fetcher
from sidecar.kafka.hand_over import HandOver
from sidecar.kafka.retry_reader import RetryReader
from sidecar.kafka.starting_positions import StartingPositions
from sidecar.model import (
    Answer,
    Assignment,
    Guarantee,
    Outcome,
    Partition,
    Position,
    Result,
)
from sidecar.ports import CommitResult
from tests.fakes.source import FakeSource

ALO: Final = Guarantee.AT_LEAST_ONCE
AMO: Final = Guarantee.AT_MOST_ONCE


class Fault(NamedTuple):
    name: str
    guarantee: Guarantee
    owner: type | ModuleType
    method: str
    wrong: Callable[..., Any]  # gets the right method first

    def plant(self, patch: pytest.MonkeyPatch) -> None:
        right = getattr(self.owner, self.method)
        wrong = self.wrong

        def method(*args: Any, **named: Any) -> Any:
            return wrong(right, *args, **named)

        patch.setattr(self.owner, self.method, method)


def _one_too_far(right: Callable[[Ledger], Snapshot | None], ledger: Ledger) -> Snapshot | None:
    snapshot = right(ledger)
    if snapshot is None or ledger.oldest is None:
        return snapshot
    position = snapshot.position
    return snapshot._replace(position=Position(position.assignment, position.offset + 1))


def _map_without_the_open(
    right: Callable[[Ledger], Snapshot | None], ledger: Ledger
) -> Snapshot | None:
    snapshot = right(ledger)
    if snapshot is None or not snapshot.position.metadata:
        return snapshot
    position, assignment = snapshot.position, ledger.assignment
    key = done_map.Key(assignment.topic, assignment.number, "topic-1")
    text, _ = done_map.encode(key, position.offset, [], position.offset + 3)
    return snapshot._replace(position=position._replace(metadata=text))


def _settle_by_partition(
    right: Callable[..., None],
    late: Results,
    entries: Sequence[InFlight],
    result: Result,
    verdict: Verdict,
) -> None:
    """Any epoch of the partition will do."""
    record = entries[0].record
    for state in late._offsets.partitions():
        if state.assignment.partition == record.assignment.partition:
            each = state.oldest
            while each is not None and each.record.offset < record.offset:
                each = each.next
            if each is not None and each.record.offset == record.offset:
                late._offsets.settled(each)
                break
    right(late, entries, result, verdict)


def _keep_the_delayed(
    right: Callable[..., list[InFlight]], delays: Delays, leaving: frozenset[Assignment]
) -> list[InFlight]:
    return []


def _forget_the_delayed(
    right: Callable[..., list[InFlight]], delays: Delays, leaving: frozenset[Assignment]
) -> list[InFlight]:
    right(delays, leaving)
    return []


def _all_applied(
    right: Callable[[AtMostOnce, CommitResult], list[InFlight]],
    offsets: AtMostOnce,
    result: CommitResult,
) -> list[InFlight]:
    """Whatever the broker said."""
    run = offsets._run
    if run is not None:
        result = CommitResult([Position(a, offset) for a, offset in run.positions.items()])
    return right(offsets, result)


def _answer_at_once(
    right: Callable[..., None],
    engine: Route,
    request: int,
    assignments: Sequence[Assignment],
    timeout: float,
) -> None:
    engine._mailbox.post(Revoked(request, ()))
    right(engine, request, assignments, timeout)


def _finish_what_was_given_up(
    right: Callable[[ExecutorPool[Any]], list[InFlight]], pool: ExecutorPool[Any]
) -> list[InFlight]:
    """A cancelled attempt is taken for a failure."""
    aborted = right(pool)
    for entry in aborted:
        work = entry if pool._executor is RecordExecutor else [entry]
        pool._finished(work, Answer(400), 0.0, 0.0)
    return []


def _parked_at_once(
    right: Callable[..., None], parker: Parker, entry: InFlight, *args: Any
) -> None:
    parker._parked(entry)


def _one_more(right: Callable[[Intake], int], intake: Intake) -> int:
    room = right(intake)
    return room + 1 if room else 0


def _left_twice(right: Callable[[Exits, InFlight], None], exits: Exits, entry: InFlight) -> None:
    right(exits, entry)
    if entry.tries > 1:
        right(exits, entry)


def _charged(right: Callable[..., Any], *args: Any, **named: Any) -> Any:
    verdict = right(*args, **named)
    down = verdict.outcome is Outcome.APP_DOWN
    return verdict._replace(outcome=Outcome.RETRY) if down else verdict


def _send_again(right: Callable[..., Any], *args: Any, **named: Any) -> Any:
    return right(*args, **named)._replace(unprocessed=True)


def _none_named(right: Callable[..., Any], *args: Any, **named: Any) -> Any:
    return {}


def _first_is_lost(
    right: Callable[..., None], hand_over: HandOver, messages: Sequence[Any], due: Sequence[Any]
) -> None:
    """The first record of a batch is lost on the way."""
    right(hand_over, messages[1:] if len(messages) > 5 else messages, due)


def _passed_over(right: Callable[..., None], reader: RetryReader, message: Any, due: int) -> None:
    """What is not due is read past, and never again."""


def _moved_at_once(right: Callable[..., None], parker: Parker, entry: InFlight, *args: Any) -> None:
    parker._retried(entry)


def _withdraw_nothing(
    right: Callable[..., list[InFlight]], offsets: AtLeastOnce, assignments: Sequence[Assignment]
) -> list[InFlight]:
    return []


def _nobody_is_suspected(right: Callable[[Suspects], None], suspects: Suspects) -> None:
    pass


def _one_more_in_a_row(right: Callable[[InARow], bool], in_a_row: InARow) -> bool:
    return in_a_row.count <= in_a_row._most


def _forget_what_is_held_back(right: Callable[..., None], in_a_row: InARow, *args: Any) -> None:
    """It waits to be parked where nobody looks for it."""


def _any_end_of_a_trial_will_do(
    right: Callable[..., None], breaker: Breaker, record: object, now: float
) -> None:
    breaker.answered(record, now)


def _never_return(right: Callable[..., bool], membership: Membership, *args: Any) -> bool:
    return False


def _forget_the_owned(right: Callable[[Fetcher], None], fetcher: Fetcher) -> None:
    """It leaves, and its route keeps what it has."""
    right(fetcher)
    if fetcher._away:
        fetcher._owned.clear()


def _no_answer_is_awaited(right: Callable[[FakeSource], bool], source: FakeSource) -> bool:
    """What a commit came to is read back though the client may still send it."""
    return False


def _unknown_is_failed(
    right: Callable[[AtMostOnce, CommitResult], list[InFlight]],
    offsets: AtMostOnce,
    result: CommitResult,
) -> list[InFlight]:
    """What is not known to be committed is taken for not committed, and for nobody's loss."""
    return right(offsets, result._replace(unknown=()))


def _never_paused(right: Callable[..., bool], intake: Intake, room: int, now: float) -> bool:
    """A full buffer is waited out without a poll (FLOW-2)."""
    return False


def _by_contiguous_numbers(
    right: Callable[..., None], offsets: AtLeastOnce, positions: Mapping[Assignment, int]
) -> None:
    """A hole or a transaction marker at the end is waited for (OFF-3, OFF-4)."""


def _kept_at_a_loss(
    right: Callable[..., None], engine: Route, assignments: Sequence[Assignment]
) -> None:
    """What was lost is gone on with, and committed (REB-1)."""
    engine.counters.rebalances += 1


def _written_once(
    right: Callable[..., None],
    parker: Parker,
    entry: InFlight,
    write: Any,
    tries: int,
    error: str | None,
) -> None:
    """A write that failed is not repeated (DLQ-2)."""
    if error is None:
        right(parker, entry, write, tries, error)


def _cancelled_frees_nothing(
    right: Callable[..., None], pool: ExecutorPool[Any], executor: Any
) -> None:
    """The executor of a request that was cut never rests (WIRE-2)."""


def _no_deadline(right: Callable[..., None], pool: ExecutorPool[Any]) -> None:
    """A request without an answer runs for ever (WIRE-3)."""


def _nobody_is_woken(right: Callable[..., None], pool: ExecutorPool[Any]) -> None:
    """What comes in is left for the next executor that ends a request."""
    if pool.busy:
        return
    right(pool)


def _shown_without_the_run(right: Callable[..., Any], offsets: AtMostOnce, *args: Any) -> Any:
    """What is committed ahead is not counted among what a crash would lose (OFF-9)."""
    return right(offsets, *args)._replace(would_lose=args[0])


def _start_behind(
    right: Callable[..., Mapping[Partition, Any]], starting: StartingPositions, *args: Any
) -> Mapping[Partition, Any]:
    """A starting position by policy is told as committed, and is not (BRK-3)."""
    found = right(starting, *args)
    return {each: start._replace(offset=start.offset + 1) for each, start in found.items()}


def _given_up_at_a_stop(right: Callable[..., bool], exits: Exits, entry: InFlight) -> bool:
    """A stop or a revocation cuts a retry short, and that is its end (REB-7, LIFE-3)."""
    if right(exits, entry):
        exits._offsets.settled(entry)
        return True
    return False


def _only_told(right: Callable[..., None], pool: ExecutorPool[Any], limit: int | None) -> None:
    """The limit is shown, and the executors stay."""
    pool.effective = pool.wanted if limit is None else min(limit, pool.wanted)


FAULTS: Final = [
    Fault("commits one too far", ALO, Ledger, "snapshot", _one_too_far),
    Fault("tells that open records are done", ALO, Ledger, "snapshot", _map_without_the_open),
    Fault("settles by an old epoch", ALO, Results, "_late", _settle_by_partition),
    Fault("keeps delayed records at a revocation", ALO, Delays, "discard", _keep_the_delayed),
    Fault("forgets delayed records at a revocation", ALO, Delays, "discard", _forget_the_delayed),
    Fault("keeps the buffer at a revocation", ALO, AtLeastOnce, "withdraw", _withdraw_nothing),
    Fault("gives up before what executes is settled", ALO, Route, "revoke", _answer_at_once),
    Fault("counts a cancelled attempt", ALO, ExecutorPool, "abort_all", _finish_what_was_given_up),
    Fault("settles before the park is confirmed", ALO, Parker, "park", _parked_at_once),
    Fault("settles before the move is confirmed", ALO, Parker, "retry", _moved_at_once),
    Fault("passes over what is not due", ALO, RetryReader, "_sleep", _passed_over),
    Fault("asks for one record too many", ALO, Intake, "room", _one_more),
    Fault("frees a place twice", ALO, Exits, "leave", _left_twice),
    Fault("loses a record after the fetch", ALO, HandOver, "give", _first_is_lost),
    Fault("takes what a batch's answer names for done", ALO, batching, "failures_of", _none_named),
    Fault("charges an outage to the records", ALO, results, "classify", _charged),
    Fault("suspects nobody", ALO, Suspects, "app_is_gone", _nobody_is_suspected),
    Fault("parks one more in a row", ALO, InARow, "may_park", _one_more_in_a_row),
    Fault(
        "opens for a trial without answer", ALO, Breaker, "unanswered", _any_end_of_a_trial_will_do
    ),
    Fault("never returns to the group", ALO, Membership, "should_return", _never_return),
    Fault("leaves and keeps its records", ALO, Fetcher, "_leave_or_rejoin", _forget_the_owned),
    Fault("takes a retry cut short for done", ALO, Exits, "goes_back", _given_up_at_a_stop),
    Fault("never pauses when it is full", ALO, Intake, "should_pause_all", _never_paused),
    Fault("waits for holes", ALO, AtLeastOnce, "positions", _by_contiguous_numbers),
    Fault("goes on with what was lost", ALO, Route, "lost", _kept_at_a_loss),
    Fault("writes a failed letter once", ALO, Parker, "_written", _written_once),
    Fault(
        "loses the executor of a cut request", ALO, ExecutorPool, "_rest", _cancelled_frees_nothing
    ),
    Fault("knows no deadline", ALO, ExecutorPool, "_check_deadlines", _no_deadline),
    Fault("wakes nobody while others run", ALO, ExecutorPool, "kick", _nobody_is_woken),
    Fault("starts one record too late", ALO, StartingPositions, "find", _start_behind),
    Fault(
        "reads a commit back too early", AMO, FakeSource, "commit_pending", _no_answer_is_awaited
    ),
    Fault("takes an unknown commit for none", AMO, AtMostOnce, "commit_done", _unknown_is_failed),
    Fault("shows too little exposure", AMO, AtMostOnce, "exposure", _shown_without_the_run),
    Fault("shows a limit and keeps none", ALO, ExecutorPool, "limit", _only_told),
    Fault("loses what is held back", AMO, InARow, "hold_back", _forget_what_is_held_back),
    Fault("sends again what may be processed", AMO, results, "classify", _send_again),
    Fault("dispatches whatever the commit came to", AMO, AtMostOnce, "commit_done", _all_applied),
]
