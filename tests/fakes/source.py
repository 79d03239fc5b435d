"""ports.RecordSource on FakeBroker: a member of a group, in memory.

Purpose: stands for KafkaSource and passes the same contract suite.

Owner: the thread that calls subscribe, as with the real one.

Invariants:
* Time and waiting are given: wait(seconds) is called when poll has nothing, and must let time
  pass (clock) or something happen at the broker. Without it poll waits for the broker's changes.
* Callbacks run inside poll and close, before any message of that poll is taken.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from sidecar.errors import CommitUnknown, FatalSource, SourceError
from sidecar.model import Partition
from sidecar.ports import Committed, Message, SourceListener
from tests.fakes.groups import Group, Member, Protocol, subscription

if TYPE_CHECKING:
    from tests.fakes.broker import FakeBroker, Log

_Done = Callable[[Exception | None], None]


class _Answer(NamedTuple):
    """A commit_later under way. error is known once it was applied."""

    ready_at: float
    released_by: int
    positions: Mapping[Partition, tuple[int, str]]
    done: _Done
    applied: bool = False
    error: SourceError | None = None


def _unheard(_: Exception | None) -> None:
    pass


class FakeSource:
    """See the module. name is the member's name in the broker's history."""

    def __init__(
        self,
        broker: FakeBroker,
        group: str,
        topics: Sequence[str] | None = None,
        pattern: str | None = None,
        *,
        protocol: Protocol | str = Protocol.EAGER,
        name: str = "member",
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], None] | None = None,
    ) -> None:
        self._broker = broker
        self._protocol = Protocol(protocol)
        self._group: Group = broker.group(group, self._protocol)
        self._clock = clock
        self._wait = wait or self._wait_for_broker
        self._member = Member(name, subscription(topics, pattern))
        self._listener: SourceListener
        self._positions: dict[Partition, int | None] = {}
        self._paused: set[Partition] = set()
        self._ends: dict[Partition, int] = {}  # as a fetch or an answer told them
        self._stopped: set[Partition] = set()  # out of range, until seek
        self._answers: list[_Answer] = []
        self._assigning = False
        self._joined = False
        self._away = False
        self.renewals = 0
        self._fatal: str | None = None
        self._told_down = False
        self._seen = 0
        self._turn = 0

    # --- for tests ----------------------------------------------------------------------------

    @property
    def member(self) -> str:
        return self._member.name

    @property
    def owned(self) -> frozenset[Partition]:
        return frozenset(self._member.owned)

    @property
    def paused(self) -> frozenset[Partition]:
        return frozenset(self._paused)

    def die(self, reason: str = "fenced") -> None:
        """From now on the client has a fatal error."""
        self._fatal = reason
        self._broker.notify()

    # --- membership ---------------------------------------------------------------------------

    def subscribe(self, listener: SourceListener) -> None:
        self._listener = listener
        self._joined = True
        self._broker.enter(self._group, self._member)

    def leave(self) -> None:
        self._away = True

    def rejoin(self) -> None:
        assert not self._member.owned, "rejoin before everything was given up"
        self._away = False
        self._broker.enter(self._group, self._member)

    def renew(self) -> None:
        assert self._away, "renew in the group"
        assert not self._member.owned, "renew before everything was given up"
        self.renewals += 1

    def assign(self, starts: Mapping[Partition, int | None]) -> None:
        if not self._assigning:
            raise SourceError("assign outside of on_assign")
        self._assigning = False
        for partition, offset in starts.items():
            if offset is None:
                with self._broker.lock:
                    offset = self._group.offsets.get(partition, Committed(None, "")).offset
            self._positions[partition] = offset

    def close(self) -> None:
        if self._joined and self._fatal is None and not self._broker.down:
            self._leave_group()
        self._joined = False
        answers, self._answers = self._answers, []
        for answer in answers:
            answer.done(CommitUnknown("closed before the broker answered"))

    # --- messages -----------------------------------------------------------------------------

    def poll(self, limit: int, timeout: float) -> list[Message]:
        assert limit >= 1
        deadline = self._clock() + timeout
        while True:
            self._seen = self._broker.version
            self._check()
            if not self._is_down():
                self._serve_answers()
                self._serve_group()
                self._serve_out_of_range()
                messages = self._take(limit)
                if messages:
                    return messages
            left = deadline - self._clock()
            if left <= 0:
                return []
            self._wait(left)

    def pause(self, partitions: Sequence[Partition]) -> None:
        self._paused.update(each for each in partitions if each in self._positions)

    def resume(self, partitions: Sequence[Partition]) -> None:
        self._paused.difference_update(partitions)

    def seek(self, partition: Partition, offset: int) -> None:
        if partition not in self._positions:
            raise SourceError(f"seek of {partition}, which is not assigned")
        self._positions[partition] = offset
        self._stopped.discard(partition)

    def positions(self, partitions: Sequence[Partition]) -> dict[Partition, int]:
        known = {each: self._positions.get(each) for each in partitions}
        return {each: offset for each, offset in known.items() if offset is not None}

    # --- what the broker knows ----------------------------------------------------------------

    def committed(
        self, partitions: Sequence[Partition], timeout: float
    ) -> dict[Partition, Committed]:
        self._ask(timeout)
        with self._broker.lock:
            offsets = self._group.offsets
            return {each: offsets.get(each, Committed(None, "")) for each in partitions}

    def watermarks(self, partition: Partition, timeout: float) -> tuple[int, int]:
        self._ask(timeout)
        with self._broker.lock:
            log = self._broker.log(partition)
            if log is None:
                raise SourceError(f"no such partition: {partition}")
            return log.start, log.end

    def ends(self, partitions: Sequence[Partition]) -> dict[Partition, int]:
        self.ask_ends([each for each in partitions if each not in self._paused])
        return {each: self._ends[each] for each in partitions if each in self._ends}

    def ask_ends(self, partitions: Sequence[Partition]) -> None:
        if self._broker.down:
            return
        with self._broker.lock:
            logs = {each: self._broker.log(each) for each in partitions}
            self._ends |= {each: log.end for each, log in logs.items() if log is not None}

    def group_knows(self, topic: str, timeout: float) -> bool:
        self._ask(timeout)
        with self._broker.lock:
            return any(each.topic == topic for each in self._group.offsets)

    def topic_ids(self, topics: Collection[str], timeout: float) -> dict[str, str]:
        known = {} if self._broker.down else self._broker.topics
        return {topic: known[topic].topic_id for topic in topics if topic in known}

    # --- commits ------------------------------------------------------------------------------

    def commit(self, positions: Mapping[Partition, tuple[int, str]], timeout: float) -> None:
        self._check()
        if self._broker.down:  # the client sends it when it can, whoever still waits for it
            answer = _Answer(self._clock(), self._broker.commits_released, positions, _unheard)
            self._answers.append(answer)
            self._wait(timeout)
            raise CommitUnknown(f"no answer within {timeout:g} s")
        self._apply_put_off()
        error = self._broker.apply_commit(self._group, self._member, positions)
        if error is not None:
            raise error

    def commit_later(self, positions: Mapping[Partition, tuple[int, str]], done: _Done) -> None:
        self._check()
        applied, error = not self._broker.down, None
        if applied:
            self._apply_put_off()
            error = self._broker.apply_commit(self._group, self._member, positions)
        ready_at = self._clock() + self._broker.commit_delay_seconds
        released_by = self._broker.commits_released
        self._answers.append(_Answer(ready_at, released_by, positions, done, applied, error))
        self._broker.notify()

    def commit_pending(self) -> bool:
        return bool(self._answers)

    # --- inside poll --------------------------------------------------------------------------

    def _check(self) -> None:
        if self._fatal is not None:
            raise FatalSource(self._fatal)

    def _is_down(self) -> bool:
        down = self._broker.down
        if down and not self._told_down:
            self._listener.on_trouble("the broker is down")
        self._told_down = down
        return down

    def _is_member(self) -> bool:
        with self._broker.lock:
            return self._group.members.get(self.member) is self._member

    def _serve_answers(self) -> None:
        self._apply_put_off()
        waiting, self._answers = self._answers, []
        for answer in waiting:
            released = answer.released_by < self._broker.commits_released
            if answer.ready_at > self._clock() and not released:
                self._answers.append(answer)
                continue
            answer.done(answer.error)

    def _apply_put_off(self) -> None:
        """Commits that met an outage, in the order in which they were asked for."""
        for index, (_, _, positions, _, applied, _) in enumerate(self._answers):
            if not applied:
                error = self._broker.apply_commit(self._group, self._member, positions)
                self._answers[index] = self._answers[index]._replace(applied=True, error=error)

    def _serve_group(self) -> None:
        if self._away:
            self._leave_group()
            return
        if not self._is_member():
            self._give_up(self._listener.on_lost, set(self._member.owned))
            self._broker.enter(self._group, self._member)
        member, group, lock = self._member, self._group, self._broker.lock
        with lock:
            asked = group.rebalancing and member.name not in group.joined
        if asked:
            if self._protocol is Protocol.EAGER:
                self._give_up(self._listener.on_revoke, set(member.owned))
            self._broker.join(group, member)
        with lock:
            if group.rebalancing or member.generation == group.generation:
                return
            member.generation = group.generation
            leaving, coming = member.owned - member.target, member.granted - member.owned
        if leaving:
            self._give_up(self._listener.on_revoke, leaving)
            self._broker.rejoin(group)
        if coming or self._protocol is Protocol.EAGER:
            self._take_over(coming)

    def _leave_group(self) -> None:
        if self._is_member():
            self._give_up(self._listener.on_revoke, set(self._member.owned))
            self._broker.leave(self._group, self.member)
        else:
            self._give_up(self._listener.on_lost, set(self._member.owned))

    def _take_over(self, partitions: set[Partition]) -> None:
        with self._broker.lock:
            self._member.owned |= partitions
        self._assigning = True
        self._listener.on_assign(sorted(partitions))
        if self._assigning:
            self._assigning = False
            raise SourceError("on_assign returned without having assigned")

    def _give_up(
        self, tell: Callable[[Sequence[Partition]], None], partitions: set[Partition]
    ) -> None:
        if not partitions:
            return
        try:
            tell(sorted(partitions))
        finally:
            with self._broker.lock:
                self._member.owned -= partitions
            for partition in partitions:
                self._positions.pop(partition, None)
            self._paused -= partitions
            self._stopped -= partitions

    def _serve_out_of_range(self) -> None:
        for partition, position in list(self._positions.items()):
            if partition in self._paused or partition in self._stopped:
                continue
            reason = self._out_of_range(partition, position)
            if reason:
                self._stopped.add(partition)
                self._listener.on_out_of_range(partition, reason)

    def _out_of_range(self, partition: Partition, position: int | None) -> str:
        if position is None:
            return "no offset is committed"
        with self._broker.lock:
            log = self._broker.log(partition)
            if log is None or log.start <= position <= log.end:
                return ""
            return f"{position} is not within {log.start}..{log.end}"

    def _take(self, limit: int) -> list[Message]:
        readable = sorted(self._positions.keys() - self._paused - self._stopped)
        messages: list[Message] = []
        self._turn += 1
        with self._broker.lock:
            for index in range(len(readable)):
                partition = readable[(index + self._turn) % len(readable)]
                log = self._broker.log(partition)
                if log is not None:
                    self._read(partition, log, limit, messages)
        return messages

    def _read(self, partition: Partition, log: Log, limit: int, into: list[Message]) -> None:
        position = self._positions[partition]
        assert position is not None
        for entry in log.entries[log.index_of(position) :]:
            if len(into) == limit:
                break
            if entry.visible:
                _, timestamp_ms, key, value, headers, _ = entry
                into.append(Message(partition, entry.offset, timestamp_ms, key, value, headers))
            position = entry.offset + 1
        self._positions[partition] = position

    def _ask(self, timeout: float) -> None:
        self._check()
        if self._broker.down:
            self._wait(timeout)
            raise SourceError(f"no answer within {timeout:g} s")

    def _wait_for_broker(self, seconds: float) -> None:
        ready = [answer.ready_at - self._clock() for answer in self._answers]
        soonest = max(min([seconds, *ready]), 0.0)
        self._broker.wait_for_change(self._seen, soonest)
