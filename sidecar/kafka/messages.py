"""From the binding's messages to the port's."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from confluent_kafka import KafkaError
from confluent_kafka import Message as RawMessage

from sidecar.model import UNREADABLE_HEADERS, Partition
from sidecar.ports import Message

MessageError = tuple[RawMessage, KafkaError]

_new_tuple: Final[Any] = tuple.__new__  # makes a Message without a call of Python code


def read_messages(
    taken: Iterable[RawMessage],
    partitions: dict[tuple[str, int], Partition],
    errors: list[MessageError],
) -> list[Message]:
    """What is a message; errors gets what is none. Runs for every record: plain and flat.

    partitions keeps those that were seen, so that equal ones are one object.
    """
    messages: list[Message] = []
    append = messages.append
    for raw in taken:
        error = raw.error()
        if error is not None:
            errors.append((raw, error))
            continue
        where: Any = (raw.topic(), raw.partition())
        partition = partitions.get(where)
        if partition is None:
            partition = partitions[where] = Partition(*where)
        kind, timestamp = raw.timestamp()
        try:
            headers: Any = raw.headers()
        except (SystemError, UnicodeDecodeError):
            # The binding gives header names as text and fails on what is not UTF-8.
            headers = UNREADABLE_HEADERS
        offset: Any = raw.offset()
        fields = (
            partition,
            offset,
            timestamp if kind else -1,
            raw.key(),
            raw.value(),
            headers,
        )
        append(_new_tuple(Message, fields))
    return messages
