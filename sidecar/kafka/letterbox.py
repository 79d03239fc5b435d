"""Letterbox: looks into the dead-letter topic of a route, while its sidecar runs or not.

Purpose: list, count and show letters, with what has been redriven marked. Nothing is joined,
committed or written. Blocking, every wait bounded by SECONDS: for a thread, or the command line.

Owner: whoever opened it, from one thread at a time.

Invariants:
* Only committed records are seen (read_committed), up to the end as it was when reading began.
* A letter belongs to the route if the route's group wrote it and, where several routes share the
  topic, if this route reads its original topic. Those of others are never listed, counted or
  sent, and are shown to who asks for their offset; those that no sidecar wrote are never sent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import chain
from threading import Event
from time import monotonic, sleep
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient

from sidecar.core.done_map import Key
from sidecar.core.letters import By, Letter, Selection, Value, counted, read_letter
from sidecar.core.redrive_progress import RedriveProgress, Unreadable
from sidecar.errors import ConfigError, Problem, SidecarError, SourceError
from sidecar.kafka.client_config import client_config
from sidecar.kafka.client_log import ClientLog
from sidecar.kafka.dead_letter_check import offsets_kept_ms
from sidecar.kafka.errors import describe, kafka_error, refused_config, source_error
from sidecar.kafka.messages import MessageError, read_messages
from sidecar.kafka.offsets import text
from sidecar.kafka.ways_out import way_out
from sidecar.model import UNREADABLE_HEADERS, Partition
from sidecar.settings import RouteSettings, Settings

SECONDS: Final = 30.0

_POLL_SECONDS: Final = 0.2  # how soon a stop is noticed
_AGAIN_SECONDS: Final = 0.2
_TAKEN: Final = 500
_FIRST_WINDOW: Final = 200
_WINDOW_GROWTH: Final = 4

_T = TypeVar("_T")

_MOVING: Final = frozenset(
    {
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.FENCED_LEADER_EPOCH,
    }
)


def lettered_routes(settings: Settings) -> list[RouteSettings]:
    """The routes that have a dead-letter topic."""
    return [route for route in settings.routes if route.dead_letter is not None]


class Letterbox:
    """See the module. Raises ConfigError where the route has no letters to look at."""

    def __init__(self, settings: Settings, route: RouteSettings) -> None:
        if route.dead_letter is None:
            raise ConfigError([Problem("", f"route {route.name} has no dead_letter topic")])
        if settings.embedded_broker:
            raise ConfigError(
                [Problem("kafka.bootstrap.servers", "the embedded broker ends with its sidecar")]
            )
        self.settings: Final = settings
        self.route: Final = route
        self.topic: Final[str] = route.dead_letter.topic
        self.group: Final = settings.group_of(route)
        self.progress_group: Final = f"{self.group}.redrive"
        self._sharing: Final = [
            other
            for other in lettered_routes(settings)
            if other is not route
            and other.dead_letter == route.dead_letter
            and settings.group_of(other) == self.group
        ]
        self.trouble: Final[list[KafkaError]] = []  # what clients report on the side
        connection = client_config(settings)
        connection.pop("topic.blacklist", None)
        # The binding's stubs know no callbacks in the configuration.
        self._connection: dict[str, Any] = {**connection, "error_cb": self.trouble.append}
        try:
            self.admin: Final = AdminClient({**self._connection, "log_level": 0})
            self.consumer: Final = self._client("read_committed")
        except KafkaException as error:
            raise refused_config(error) from error
        self._observer: Consumer | None = None
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._topic_id = ""
        self._count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        with self.admin:  # left alone, its threads last as long as the traceback of a failure
            self.consumer.close()
            if self._observer is not None:
                self._observer.close()

    def _client(self, isolation: str) -> Consumer:
        return Consumer(
            {
                **self._connection,
                "group.id": self.progress_group,
                "isolation.level": isolation,
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                # What retention removes while it is read is gone.
                "auto.offset.reset": "earliest",
                "queued.max.messages.kbytes": 16_384,
            },
            logger=ClientLog(),
        )

    # --- looking ------------------------------------------------------------------------------

    def oldest(self, selection: Selection, limit: int) -> list[Letter]:
        """The first so many that are meant, by the time of parking."""
        found: list[Letter] = []
        for number in self.partitions():
            mine: list[Letter] = []
            for letter in self._selected(number, selection):
                mine.append(letter)
                if len(mine) == limit:
                    break
            found += mine
        return sorted(found, key=_parked)[:limit]

    def newest(self, selection: Selection, limit: int) -> list[Letter]:
        """The last so many that are meant, the newest first. Reads backwards as far as needed."""
        found: list[Letter] = []
        for number in self.partitions():
            found += self._last(number, selection, limit)
        return sorted(found, key=_parked, reverse=True)[:limit]

    def count(self, selection: Selection, by: By) -> Counter[Value]:
        """How many are meant, by what they are counted under."""
        numbers = self.partitions()
        return counted(chain.from_iterable(self._selected(n, selection) for n in numbers), by)

    def letter(self, partition: int, offset: int) -> Letter | None:
        """The letter there, also one that was redriven or belongs to somebody else."""
        if partition not in self.partitions():
            return None
        progress = self.progress(partition)
        _, end = self.bounds(partition)
        letters = self.read(partition, offset, min(end, offset + 1), progress)
        return next((each for each in letters if each.offset == offset), None)

    def owns(self, letter: Letter) -> bool:
        """True for what this route parked, and for what no sidecar wrote."""
        if letter.origin is None:
            return True
        if letter.group != self.group:
            return False
        origin = letter.origin.topic
        return self.route.reads(origin) or not any(each.reads(origin) for each in self._sharing)

    # --- reading ------------------------------------------------------------------------------

    def partitions(self) -> range:
        """The numbers of the topic's partitions. Asks the broker the first time."""
        if not self._count:
            try:
                found = self.admin.describe_topics(
                    TopicCollection([self.topic]), request_timeout=SECONDS
                )[self.topic].result()
            except KafkaException as error:
                raise self.failure(error, f"dead-letter topic {self.topic}") from error
            self._count = len(found.partitions)
            self._topic_id = str(found.topic_id or "")
        return range(self._count)

    def progress(self, partition: int, *, settled: bool = False) -> RedriveProgress:
        """What the group's redrives have sent of a partition.

        settled: wait for a transaction that is under way. Whoever only looks does not: that of a
        killed redrive would be waited for until the broker ends it.
        """
        if self._observer is None and not settled:
            self._observer = self._client("read_uncommitted")
        client = self._observer if self._observer is not None and not settled else self.consumer
        found = self._committed(client, partition)
        committed = found.offset if found.offset >= 0 else None
        key = Key(self.topic, partition, self._topic_id)
        low, end = self.bounds(partition)
        try:
            progress = RedriveProgress(key, end, committed, text(found.metadata))
        except Unreadable:
            raise SidecarError(
                f"what group {self.progress_group} says of {self.topic}/{partition} was written"
                " for another topic of this name. Delete that group"
                f" (kafka-consumer-groups.sh --delete --group {self.progress_group}), and"
                " nothing in the topic counts as redriven"
            ) from None
        progress.forget_before(low)
        return progress

    def _committed(self, client: Consumer, partition: int) -> TopicPartition:
        where = TopicPartition(self.topic, partition)
        (found,) = self._answer(
            lambda: client.committed([where], SECONDS), f"group {self.progress_group}"
        )
        if found.error is not None:
            raise source_error(found.error)
        return found

    def bounds(self, partition: int) -> tuple[int, int]:
        """The first offset of a partition, and the one behind its last committed record."""
        where = TopicPartition(self.topic, partition)
        return self._answer(
            lambda: self.consumer.get_watermark_offsets(where, SECONDS),
            f"dead-letter topic {self.topic}",
        )

    def _answer(self, ask: Callable[[], _T], what: str) -> _T:
        """Asks again while a leader or the group's coordinator moves, as on a new broker."""
        deadline = monotonic() + SECONDS
        while True:
            try:
                return ask()
            except KafkaException as error:
                if kafka_error(error).code() not in _MOVING or monotonic() >= deadline:
                    raise self.failure(error, what) from error
                sleep(_AGAIN_SECONDS)

    def read(
        self,
        partition: int,
        start: int,
        end: int,
        progress: RedriveProgress,
        stop: Event | None = None,
    ) -> Iterator[Letter]:
        """The letters from start to before end, in order; fewer once stop is set."""
        if start >= end:
            return
        self.consumer.assign([TopicPartition(self.topic, partition, start)])
        deadline = monotonic() + SECONDS
        try:
            while stop is None or not stop.is_set():
                first = self.consumer.poll(_POLL_SECONDS)
                if first is None:
                    if monotonic() > deadline:
                        raise SourceError(f"{self.topic}/{partition}: {self._silence()}")
                    continue
                errors: list[MessageError] = []
                taken = [first, *self.consumer.consume(_TAKEN, 0)]
                for message in read_messages(taken, self._partitions, errors):
                    if message.offset >= end:
                        return
                    headers = message.headers
                    yield read_letter(
                        self.topic,
                        partition,
                        message.offset,
                        message.timestamp_ms,
                        message.key,
                        message.value,
                        None if headers is UNREADABLE_HEADERS else headers,
                        redriven=progress.is_sent(message.offset),
                    )
                    if message.offset == end - 1:
                        return
                for told, error in errors:
                    if error.code() != KafkaError._PARTITION_EOF:
                        raise source_error(error)
                    if told.partition() == partition and (told.offset() or 0) >= end:
                        return
                if len(taken) > len(errors):
                    deadline = monotonic() + SECONDS
        finally:
            self.consumer.unassign()

    def _selected(self, partition: int, selection: Selection) -> Iterator[Letter]:
        start, end = self._range(partition, selection)
        progress = self.progress(partition)
        for letter in self.read(partition, start, end, progress):
            if selection.takes(letter) and self.owns(letter):
                yield letter

    def _last(self, partition: int, selection: Selection, limit: int) -> list[Letter]:
        low, end = self._range(partition, selection)
        progress = self.progress(partition)
        found: list[Letter] = []
        window = max(limit, _FIRST_WINDOW)
        while end > low and len(found) < limit:
            start = max(low, end - window)
            letters = self.read(partition, start, end, progress)
            found = [
                *(each for each in letters if selection.takes(each) and self.owns(each)),
                *found,
            ]
            end = start
            window *= _WINDOW_GROWTH
        return found[-limit:]

    def _range(self, partition: int, selection: Selection) -> tuple[int, int]:
        """The offsets between which there may be letters that are meant."""
        low, end = self.bounds(partition)
        if selection.since_ms is not None:
            wanted = TopicPartition(self.topic, partition, max(0, selection.since_ms))
            try:
                (found,) = self.consumer.offsets_for_times([wanted], SECONDS)
            except KafkaException as error:
                raise self.failure(error, f"dead-letter topic {self.topic}") from error
            low = end if found.offset < 0 else max(low, found.offset)
        return low, end

    def remembered_ms(self) -> int:
        """How long after a redrive its progress is known; the brokers forget it then."""
        try:
            brokers = self.admin.list_topics(timeout=SECONDS).brokers
        except KafkaException as error:
            raise self.failure(error, "kafka") from error
        return offsets_kept_ms(self.admin, next(iter(brokers)))

    # --- errors -------------------------------------------------------------------------------

    def failure(self, error: KafkaException, subject: str) -> SourceError:
        """What to tell: the cause, which the client reports on the side, before the symptom."""
        told = [each for each in self.trouble if way_out(each)]
        return SourceError(f"{subject}: {describe((told or [kafka_error(error)])[-1])}")

    def _silence(self) -> str:
        said = f"not read within {SECONDS:g} s"
        return f"{said}: {describe(self.trouble[-1])}" if self.trouble else said


def _parked(letter: Letter) -> tuple[int, int, int]:
    return letter.parked_ms, letter.partition, letter.offset
