"""End offsets, asked of the brokers by a client of its own and waited for by nobody.

A consumer hears of the end of a partition with what it fetches, so of one that is paused, or whose
queue is full, it hears nothing; and to ask with it means to wait.

Owner: the record source, on its thread. Invariant: one question at a time, and none is waited for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import Final, NamedTuple

from confluent_kafka import IsolationLevel, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ListOffsetsResultInfo, OffsetSpec

from sidecar.kafka.errors import kafka_error
from sidecar.kafka.offsets import partition_of, plain
from sidecar.kafka.topics import connection_settings
from sidecar.model import Partition

ANSWER_SECONDS: Final = 5.0


class _Told(NamedTuple):
    end: int
    fetched: int | None  # what fetching had told when it was asked for


class EndOffsets:
    """The client is made with the first question, and kept: one costs two threads and a second."""

    def __init__(self, config: Mapping[str, object]) -> None:
        self._config: Final = config
        self._client: AdminClient | None = None
        self._asked: dict[Partition, Future[ListOffsetsResultInfo]] = {}
        self._fetched: Mapping[Partition, int] = {}
        self._told: dict[Partition, _Told] = {}

    def ask(self, partitions: Iterable[Partition], fetched: Mapping[Partition, int]) -> None:
        """fetched: what fetching has told so far. Nothing is asked while an answer is due."""
        self._collect()
        if self._asked:
            return
        if self._client is None:
            self._client = AdminClient(connection_settings(self._config))
        wanted = {each: OffsetSpec.latest() for each in plain(partitions)}
        answers = self._client.list_offsets(
            wanted,
            request_timeout=ANSWER_SECONDS,
            isolation_level=IsolationLevel.READ_UNCOMMITTED,  # as with what is fetched
        )
        self._fetched = fetched
        self._asked = {partition_of(each): answer for each, answer in answers.items()}

    def over(self, fetched: Mapping[Partition, int]) -> dict[Partition, int]:
        """What fetching tells, but what was answered where fetching has told nothing since."""
        self._collect()
        newer = {
            partition: told.end
            for partition, told in self._told.items()
            if fetched.get(partition) == told.fetched
        }
        return {**fetched, **newer}

    def _collect(self) -> None:
        if not self._asked or not all(answer.done() for answer in self._asked.values()):
            return
        for partition, answer in self._asked.items():
            error = answer.exception()
            if error is None:
                self._told[partition] = _Told(answer.result().offset, self._fetched.get(partition))
            elif isinstance(error, KafkaException) and (
                kafka_error(error).code() == KafkaError.FENCED_LEADER_EPOCH
            ):
                # librdkafka keeps the epoch that was refused, for up to metadata.max.age.ms.
                self._client = None
        self._told = {each: told for each, told in self._told.items() if each in self._asked}
        self._asked = {}
