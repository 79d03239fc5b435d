"""Between the domain's partitions and offsets and the binding's TopicPartition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from confluent_kafka import OFFSET_STORED, TopicPartition

from sidecar.model import Partition


def at(partition: Partition, offset: int | None) -> TopicPartition:
    where = OFFSET_STORED if offset is None else offset
    return TopicPartition(partition.topic, partition.number, where)


def plain(partitions: Iterable[Partition]) -> list[TopicPartition]:
    return [TopicPartition(*partition) for partition in partitions]


def partitions_of(offsets: Iterable[TopicPartition]) -> list[Partition]:
    return [partition_of(each) for each in offsets]


def partition_of(offset: TopicPartition) -> Partition:
    return Partition(offset.topic, offset.partition)


def with_offsets(positions: Mapping[Partition, tuple[int, str]]) -> list[TopicPartition]:
    return [TopicPartition(*each, *what) for each, what in positions.items()]


def text(metadata: str | None) -> str:
    """Committed metadata as it was given: the binding sends its terminating NUL along."""
    return (metadata or "").rstrip("\0")


def coordinates(offsets: Iterable[TopicPartition]) -> list[tuple[str, int, int]]:
    return sorted((each.topic, each.partition, each.offset) for each in offsets)
