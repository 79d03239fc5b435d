"""The fetcher: one thread that alone owns a route's consumer.

It fetches what fits, hands it to the loop a batch at a time, and carries out what the loop asks
for (commits, by its Committer, and stop). Rebalance callbacks run inside poll, on this thread,
and finish their work before they return; while one waits for the loop it serves the mailbox, so
the loop may post anything at any time and neither waits for the other for ever.

Owner of: the consumer, the assignments and their epochs, what is paused. Everything else is
reached through the sink, whose methods run on the loop in the order in which they were told.

Invariants:
* A batch is never larger than the free places at the time of asking.
* A partition has one assignment at most; one that returns gets a new one, with a higher epoch.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from threading import Thread
from typing import Final

from sidecar.core.commands import (
    Clear,
    Command,
    Commit,
    Finish,
    Leave,
    Rejoin,
    Renew,
    Revoked,
    StopFetching,
    Wake,
)
from sidecar.core.intake import Intake
from sidecar.core.places import Places
from sidecar.errors import FatalSource, SourceError
from sidecar.kafka.committer import Committer
from sidecar.kafka.ends import Ends
from sidecar.kafka.hand_over import HandOver
from sidecar.kafka.retry_reader import RetryReader
from sidecar.kafka.starting_positions import NOT_FOUND, Found, StartingPositions
from sidecar.logs import RateLimited, WithFields, gist
from sidecar.model import Assignment, Partition, RetryTopic, Start
from sidecar.ports import FetchSink, Mailbox, RecordSource

log = logging.getLogger(__name__)

POLL_SECONDS: Final = 0.05
ROOM_WAIT_SECONDS: Final = 0.01
REPORT_SECONDS: Final = 1.0
RESOLVE_SECONDS: Final = 15.0
REVOKE_GRACE_SECONDS: Final = 1.0
LAST_COMMIT_SECONDS: Final = 5.0  # for tries to commit at the end


class Fetcher:
    """See the module. Everything but the constructor runs on the fetch thread.

    tell runs a function on the loop; clock gives monotonic seconds. clears_before_dispatch: the
    route commits before it dispatches, so the loop's answer to a batch is a Clear to be carried
    out at once. from_end: where the group has no position, start at the end of the partition.
    retry_topics are those among the source's that are read when their records are due, by
    wall_clock (Unix seconds). prepare is called before the group is joined.
    """

    def __init__(
        self,
        *,
        source: RecordSource,
        sink: FetchSink,
        tell: Callable[..., object],
        mailbox: Mailbox,
        places: Places,
        clock: Callable[[], float],
        revoke_seconds: float,
        clears_before_dispatch: bool,
        from_end: bool = False,
        retry_topics: Sequence[RetryTopic] = (),
        wall_clock: Callable[[], float] = time.time,
        prepare: Callable[[], object] = lambda: None,
        name: str = "",
    ) -> None:
        self._log = WithFields(log, {"route": name})
        self._source = source
        self._sink = sink
        self._tell = tell
        self._mailbox = mailbox
        self._places = places
        self._clock = clock
        self._repeating = RateLimited(self._log, clock=clock)
        self._revoke_seconds = revoke_seconds
        self._intake = Intake(places)
        self._ends = Ends(source, clock)
        self._owned: dict[Partition, Assignment] = {}
        self._retries = RetryReader(source, retry_topics, wall_clock, self._repeating)
        self._prepare = prepare
        # A done-map is of use where commits come after what they are about.
        self._starting = StartingPositions(
            source,
            from_end=from_end,
            with_topic_ids=not clears_before_dispatch,
            own_topics=self._retries.topics,
        )
        self._hand_over = HandOver(
            self._owned,
            retries=self._retries,
            intake=self._intake,
            places=places,
            sink=sink,
            tell=tell,
            clears=clears_before_dispatch,
        )
        self._committer = Committer(
            source,
            self._owned,
            sink=sink,
            tell=tell,
            clock=clock,
            log=self._log,
            warn=self._warn,
        )
        self._paused: set[Assignment] = set()  # for their greed; see Intake.review
        self._epochs: dict[Partition, int] = {}
        self._revoke_requests = 0
        self._reported: dict[Assignment, int] = {}
        self._reported_at = 0.0
        self._out_of_range: dict[Partition, str] = {}  # reset them as soon as the broker answers
        self._draining = False
        self._away = False  # out of the group, or on the way
        self._to_be_away = False
        self._to_be_renewed = False
        self._finish: Finish | None = None
        self._last_commit_by = 0.0
        self.last_step_at = clock()
        # For whoever shows them; replaced once a second, never changed.
        self.ends: Mapping[Partition, int] = {}
        self.paused: frozenset[Assignment] = frozenset()

    # --- the thread ---------------------------------------------------------------------------

    def start_in(self, thread: Thread) -> None:
        """Let the thread, which is to run run, begin."""
        self.last_step_at = self._clock()
        thread.start()

    def run(self) -> None:
        """Fetch until told to finish; tells the sink how it ended. Raises nothing."""
        error: BaseException | None = None
        try:
            self.start()
            while self._finish is None:
                self.step()
            while not self.finish():
                pass
        except BaseException as problem:  # noqa: BLE001
            error = problem
            self.leave_after(problem)
        self._tell(self._sink.ended, error)

    def start(self) -> None:
        self._prepare()
        self._source.subscribe(self)

    @property
    def finishing(self) -> bool:
        return self._finish is not None

    def step(self) -> None:
        """One turn: commands, then records as far as there is room."""
        self._serve_mailbox()
        if self._finish is not None:
            return
        now = self.last_step_at = self._clock()
        self._committer.read_back(now)
        if woken := self._retries.wake():
            self._resume_woken(woken)
        if now - self._reported_at >= REPORT_SECONDS:
            self._reported_at = now
            self._reset_out_of_range()
            self._report_positions()
            all_paused = self._draining or self._intake.all_paused
            asleep = (self._owned[partition] for partition in self._retries.asleep)
            paused = self._owned.values() if all_paused else chain(self._paused, asleep)
            self.paused = frozenset(paused)
            self.ends = self._ends.look(self._owned, self.paused)
        if self._away is not self._to_be_away or self._to_be_renewed:
            self._leave_or_rejoin()
        if self._draining or self._away or self._intake.all_paused:
            self._idle_poll()
        else:
            self._fetch(now)

    def finish(self) -> bool:
        """Commit what was settled, leave the group, close. False: it has to be called again."""
        assert self._finish is not None
        try:
            self._committer.at_end(self._finish.positions)
        except SourceError as problem:
            if not isinstance(problem, FatalSource) and self._clock() < self._last_commit_by:
                self._idle_poll()  # a group in a rebalance refuses commits until that is over
                self._serve_mailbox()
                return False
            self._log.error("the last commit failed, records will repeat: %s", problem)
        self._finish = Finish(())
        self._source.close()
        return True

    def leave_after(self, problem: BaseException) -> None:
        """Leave the group without a commit, so that others need not wait for the session's end."""
        self._finish = Finish(())
        try:
            self._source.close()
        except Exception as another:  # noqa: BLE001
            self._log.warning("cannot leave the group after %r: %r", problem, another)

    # --- fetching -----------------------------------------------------------------------------

    def _fetch(self, now: float) -> None:
        greedy, patient = self._intake.review(now, self._owned.values(), self._paused)
        if patient:
            self._paused.difference_update(patient)
            self._resume(assignment.partition for assignment in patient)
        if greedy:
            self._paused.update(greedy)
            self._source.pause([assignment.partition for assignment in greedy])
        room = self._intake.room()
        if self._intake.should_pause_all(room, now):
            self._source.pause(list(self._owned))
        elif (room := self._await_room(room)) > 0:
            messages = self._source.poll(room, 0.0 if self._hand_over.unanswered else POLL_SECONDS)
            if messages:
                self._hand_over.give(*self._retries.sort_out(messages))
            elif self._hand_over.unanswered:
                self._serve_for(ROOM_WAIT_SECONDS)

    def _await_room(self, room: int) -> int:
        """Wait a moment for a worthwhile number of free places; the room there is then."""
        worthwhile = self._intake.worthwhile()
        if room >= worthwhile:
            return room
        places = self._places
        freed = places.freed  # read first: what is freed from here on may make the wake-up early
        room = self._intake.room()
        places.wake_at = freed + worthwhile - room
        if room < worthwhile:
            self._serve_for(ROOM_WAIT_SECONDS)
        places.wake_at = 0
        return 0 if self._draining or self._finish is not None else self._intake.room()

    def _idle_poll(self) -> None:
        """Keep the membership while nothing may come in.

        Everything is paused. Should a message come all the same, its partition is set back to
        what was handed over, so that it comes again.
        """
        for message in self._source.poll(1, POLL_SECONDS):
            assignment = self._owned.get(message.partition)
            if assignment is not None and not self._draining:
                self._source.pause([message.partition])
                offset = assignment.next_offset if assignment.next_offset >= 0 else message.offset
                self._source.seek(message.partition, offset)
        if not self._draining and self._intake.should_resume_all():
            self._paused.clear()
            self._resume(self._owned)

    def _resume(self, partitions: Iterable[Partition]) -> None:
        """But for those that sleep until something of them is due."""
        asleep = self._retries.asleep
        self._source.resume([each for each in partitions if each not in asleep])

    def _resume_woken(self, woken: Iterable[Partition]) -> None:
        """But for those that are paused for another reason."""
        if not self._draining and not self._intake.all_paused:
            self._source.resume([each for each in woken if self._owned[each] not in self._paused])

    def _leave_or_rejoin(self) -> None:
        if not self._away:
            self._away = True
            self._source.pause(list(self._owned))
            self._source.leave()
        elif not self._owned:  # what is still given up is given up first
            if self._to_be_renewed:
                self._to_be_renewed = False
                self._source.renew()
            if not self._to_be_away:
                self._source.rejoin()
                self._away = False

    def _report_positions(self) -> None:
        """Tell the loop where the consumer stands, past what holds no record."""
        if self._draining:
            return
        positions = self._source.positions(list(self._owned))
        moved = {}
        for partition, position in positions.items():
            assignment = self._owned[partition]
            if position > max(assignment.next_offset, self._reported.get(assignment, -1)):
                moved[assignment] = self._reported[assignment] = position
        if moved:
            self._tell(self._sink.positions, moved)

    # --- commands -----------------------------------------------------------------------------

    def _serve_mailbox(self) -> None:
        while (command := self._mailbox.receive(0)) is not None:
            self._obey(command)

    def _serve_for(self, seconds: float) -> None:
        """Wait for a command and carry it out, and those that came with it."""
        command = self._mailbox.receive(seconds)
        if command is not None:
            self._obey(command)
            self._serve_mailbox()

    def _obey(self, command: Command) -> None:
        match command:
            case Wake():
                pass
            case Commit(positions):
                self._committer.later(positions)
            case Clear(positions):
                self._hand_over.answered(command)
                self._committer.now(positions)
            case StopFetching():
                self._draining = True
                self._to_be_renewed = False
                self._source.pause(list(self._owned))
            case Leave():
                self._to_be_away = True
            case Rejoin():
                self._to_be_away = False
            case Renew():
                self._to_be_renewed = not self._draining
            case Finish():
                self._last_commit_by = self._clock()
                if self._finish is None:
                    self._finish = command
                    self._last_commit_by += LAST_COMMIT_SECONDS
            case Revoked(request, _):
                self._log.info("answer to revocation %d came late; it was not waited for", request)

    # --- rebalance (inside poll or close) -----------------------------------------------------

    def on_assign(self, partitions: Sequence[Partition]) -> None:
        starts = [
            Start(self._adopt(partition, found.offset), *found)
            for partition, found in self._find_starts(partitions).items()
        ]
        self._source.assign(
            {
                start.assignment.partition: None if start.offset < 0 else start.offset
                for start in starts
            }
        )
        if self._draining or self._away or self._intake.all_paused:
            self._source.pause(partitions)
        self._tell(self._sink.assigned, self._committer.at_start(starts))

    def _find_starts(self, partitions: Sequence[Partition]) -> dict[Partition, Found]:
        """What the broker does not say in time stays unknown."""
        if self._finish is not None:  # they are given up next
            return dict.fromkeys(partitions, NOT_FOUND)
        deadline = self._clock() + RESOLVE_SECONDS
        while True:
            try:
                return self._starting.find(partitions)
            except FatalSource:
                raise
            except SourceError as problem:
                if self._clock() >= deadline or self._finish is not None:
                    self._log.error(
                        "starting positions unknown, the client goes on by itself: %s", problem
                    )
                    return dict.fromkeys(partitions, NOT_FOUND)
                self._warn("cannot read the starting positions yet", problem)
                self._serve_for(0.2)

    def on_revoke(self, partitions: Sequence[Partition]) -> None:
        leaving = self._disown(partitions)
        if not leaving:
            return
        if self._finish is not None:
            last = self._finish.positions
            self._committer.at_revocation(each for each in last if each.assignment in leaving)
            return
        self._revoke_requests += 1
        request = self._revoke_requests
        self._tell(self._sink.revoke, request, leaving, self._revoke_seconds)
        answer = self._await_revoked(request)
        if answer is None:
            self._log.error(
                "the loop did not answer a revocation in time: nothing is committed for it"
            )
        else:
            self._committer.at_revocation(answer.positions)

    def on_lost(self, partitions: Sequence[Partition]) -> None:
        leaving = self._disown(partitions)
        if leaving:
            self._tell(self._sink.lost, leaving)

    def on_out_of_range(self, partition: Partition, reason: str) -> None:
        self._out_of_range[partition] = reason
        self._reset_out_of_range()

    def on_trouble(self, description: str) -> None:
        self._tell(self._sink.fetch_trouble, description)

    def _warn(self, what: str, problem: SourceError) -> None:
        """Of something that is tried again and again."""
        key = (what, gist(str(problem)))
        self._repeating.limited(key, logging.WARNING, "%s: %s", what, problem)

    def _reset_out_of_range(self) -> None:
        """Send those whose position does not exist any more to where the policy says."""
        for partition, reason in list(self._out_of_range.items()):
            assignment = self._owned.get(partition)
            if assignment is not None:
                try:
                    offset = self._starting.by_policy(partition, {})
                    if offset >= assignment.next_offset:
                        self._source.seek(partition, offset)
                    else:
                        self._restart(assignment, offset)
                except FatalSource:
                    raise
                except SourceError as problem:
                    self._warn(f"{partition}: cannot find a position to read on from", problem)
                    continue
                self._tell(self._sink.out_of_range, assignment, offset, reason)
            del self._out_of_range[partition]

    def _restart(self, assignment: Assignment, offset: int) -> None:
        """The log ends before what was read of it: it is another log, so another epoch."""
        partition = assignment.partition
        self._source.seek(partition, offset)
        self._disown([partition])
        self._tell(self._sink.lost, [assignment])
        start = Start(self._adopt(partition, offset), offset, committed=False)
        if not self._intake.all_paused:
            self._resume([partition])  # the old epoch may have been paused for its greed
        self._tell(self._sink.assigned, [start])

    def _adopt(self, partition: Partition, offset: int) -> Assignment:
        epoch = self._epochs[partition] = self._epochs.get(partition, 0) + 1
        assignment = self._owned[partition] = Assignment(partition, epoch)
        assignment.next_offset = offset
        self._retries.adopt(partition)
        return assignment

    def _disown(self, partitions: Iterable[Partition]) -> list[Assignment]:
        leaving = [self._owned.pop(p) for p in partitions if p in self._owned]
        self._paused.difference_update(leaving)
        for assignment in leaving:
            self._reported.pop(assignment, None)
            self._retries.forget(assignment.partition)
        if not self._owned:
            self._hand_over.given_back()
        return leaving

    def _await_revoked(self, request: int) -> Revoked | None:
        deadline = self._clock() + self._revoke_seconds + REVOKE_GRACE_SECONDS
        while (left := deadline - self._clock()) > 0:
            command = self._mailbox.receive(left)
            if isinstance(command, Revoked) and command.request == request:
                return command
            if command is not None:
                self._obey(command)
        return None
