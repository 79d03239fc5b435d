"""librdkafka's error codes, mapped onto the exception tree of sidecar.errors.

Invariant: CommitFailed is raised only for answers after which nothing can have been committed.
Whatever is doubtful is CommitUnknown; that costs a read-back, the opposite mistake costs records.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from sidecar.errors import (
    CommitFailed,
    CommitUnknown,
    ConfigError,
    FatalSource,
    Problem,
    SourceError,
)
from sidecar.kafka.ways_out import way_out

# Left out on purpose: REQUEST_TIMED_OUT, COORDINATOR_NOT_AVAILABLE and NOT_COORDINATOR are also
# what a broker answers when it has appended the commit and could not confirm its replication.
_REFUSED: Final = frozenset(
    {
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.STALE_MEMBER_EPOCH,
        KafkaError.FENCED_MEMBER_EPOCH,
        KafkaError.FENCED_INSTANCE_ID,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.INVALID_GROUP_ID,
        KafkaError.GROUP_ID_NOT_FOUND,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.OFFSET_METADATA_TOO_LARGE,
        KafkaError.INVALID_COMMIT_OFFSET_SIZE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.UNSUPPORTED_VERSION,
        KafkaError._ASSIGNMENT_LOST,  # the underscored ones are librdkafka's own: never sent
        KafkaError._INVALID_ARG,
        KafkaError._NO_OFFSET,
        KafkaError._STATE,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._UNKNOWN_GROUP,
    }
)


def kafka_error(error: KafkaException) -> KafkaError:
    """The error that the exception carries."""
    carried = error.args[0]
    assert isinstance(carried, KafkaError)
    return carried


def refused_config(error: KafkaException) -> ConfigError:
    """A client that cannot be made: librdkafka alone could tell."""
    return ConfigError([Problem("kafka", describe(kafka_error(error)))])


def describe(error: KafkaError) -> str:
    """One line for people: the code's name, librdkafka's words, and the way out if there is one."""
    said = f"{error.name()}: {' '.join(error.str().split())}"
    hint = way_out(error)
    return f"{said}; {hint}" if hint else said


def is_fatal(error: KafkaError) -> bool:
    return error.fatal() or error.code() == KafkaError._FATAL


def source_error(error: KafkaError) -> SourceError:
    """For everything but commits."""
    return (FatalSource if is_fatal(error) else SourceError)(describe(error))


def commit_error(error: KafkaError) -> SourceError:
    """For a commit that failed as a whole."""
    if is_fatal(error):
        return FatalSource(describe(error))
    kind = CommitFailed if error.code() in _REFUSED else CommitUnknown
    return kind(describe(error))


def commit_answer(
    error: KafkaError | None, partitions: Sequence[TopicPartition]
) -> SourceError | None:
    """What the answer to a commit comes to: its own error, else those of its partitions.

    An answer that took some partitions and refused others is unknown as a whole.
    """
    if error is not None:
        return commit_error(error)
    errors = [commit_error(each.error) for each in partitions if each.error is not None]
    if not errors:
        return None
    for each in errors:
        if isinstance(each, FatalSource):
            return each
    text = "; ".join(dict.fromkeys(str(each) for each in errors))
    whole = len(errors) == len(partitions)
    if whole and all(isinstance(each, CommitFailed) for each in errors):
        return CommitFailed(text)
    return CommitUnknown(text)
