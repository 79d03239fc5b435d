"""Requests as other systems make them, for applications that were written for those.

Implementations of request.Shape. What a convention has no place for travels in the head, as in
every encoding. Nothing of a record takes the name of a header that something else may trust.
"""

from __future__ import annotations

import json
from binascii import b2a_base64
from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import quote_plus

from sidecar.delivery.cloudevents import (
    STRUCTURED_TYPE,
    Wrapping,
    content_type_of,
    parse_json,
    time_of,
    wrapped,
)
from sidecar.delivery.request import (
    TRACE_NAMES,
    Shaped,
    identity_of,
    is_plain,
    is_token,
    type_line_of,
)
from sidecar.model import Record

_JSON_LINE: Final = type_line_of(b"application/json")
_ENVELOPE: Final = frozenset(("specversion", "id", "source", "type"))

# Names that a record header does not get: of the message's framing and its way (RFC 9110), of
# who sent it, and what the sidecar says itself.
_RESERVED: Final = frozenset(
    (
        "accept-encoding",
        "authorization",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "cookie",
        "expect",
        "forwarded",
        "host",
        "idempotency-key",
        "keep-alive",
        "pubsubname",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        *TRACE_NAMES,
    )
)
_RESERVED_BEGINNINGS: Final = (
    "__",
    "ce-",
    "dapr-",
    "kafka-",
    "proxy-",
    "sidecar-",
    "webhook-",
    "x-forwarded-",
)


def _base64(value: bytes) -> str:
    return b2a_base64(value, newline=False).decode()


def _dumped(tree: object) -> bytes:
    return json.dumps(tree, separators=(",", ":")).encode()


class DaprShape:
    """The envelope Dapr makes of a message, and the message's metadata as headers.

    A value that is such an envelope already goes out as it is. own_names are those of headers
    that are the same for every record. wrapping is None for Dapr's rawPayload: the value itself.
    """

    __slots__ = ("_fixed", "_reserved", "_wrapping")

    def __init__(
        self, wrapping: Wrapping | None, pubsub_name: str, own_names: Iterable[str] = ()
    ) -> None:
        self._wrapping: Final = wrapping
        self._fixed: Final = b"pubsubName: %b\r\n" % quote_plus(pubsub_name).encode()
        self._reserved: Final = _RESERVED | {name.lower() for name in own_names}

    def __call__(self, record: Record, attempt: int) -> Shaped:
        lines = self._lines(record)
        if self._wrapping is None:
            return Shaped(record.value or b"", record.headers, None, lines)
        body = record.value
        if body is None or not _is_envelope(body):
            content_type = content_type_of(record.headers) or self._wrapping.content_type.encode()
            body = wrapped(self._wrapping, record, content_type, {"topic": record.topic})
        return Shaped(body, record.headers, type_line_of(STRUCTURED_TYPE), lines)

    def _lines(self, record: Record) -> bytes:
        lines = {
            "__topic": _escaped(record.topic.encode()),
            "__partition": b"%d" % record.partition,
            "__offset": b"%d" % record.offset,
        }
        if record.timestamp_ms >= 0:
            lines["__timestamp"] = b"%d" % record.timestamp_ms
        if record.key is not None:
            lines["__key"] = _escaped(record.key)
        for name, value in record.headers or ():
            if value is not None and self._is_free(name):
                lines[name.lower()] = _escaped(value)  # of repeated ones the last
        return self._fixed + b"".join(
            [b"%b: %b\r\n" % (name.encode(), value) for name, value in lines.items()]
        )

    def _is_free(self, name: str) -> bool:
        lowered = name.lower()
        return (
            name.isascii()
            and is_token(name.encode()) is not None
            and lowered not in self._reserved
            and not lowered.startswith(_RESERVED_BEGINNINGS)
        )


def _escaped(value: bytes) -> bytes:
    """As Dapr's escapeHeaders does, where the value is not legal by itself."""
    return value if is_plain(value) else quote_plus(value).encode()


def _is_envelope(value: bytes) -> bool:
    if not value.lstrip().startswith(b"{"):
        return False
    try:
        event = parse_json(value)
    except ValueError:
        return False
    return isinstance(event, dict) and event.keys() >= _ENVELOPE


class PubSubShape:
    """The body of a Pub/Sub push. tells_attempt: as Pub/Sub does with a dead-letter policy."""

    __slots__ = ("_subscription", "_tells_attempt")

    def __init__(self, subscription: str, *, tells_attempt: bool) -> None:
        self._subscription: Final = subscription
        self._tells_attempt: Final = tells_attempt

    def __call__(self, record: Record, attempt: int) -> Shaped:
        identity = identity_of(record)
        message: dict[str, Any] = {
            "attributes": _attributes(record),
            "messageId": identity,
            "message_id": identity,
        }
        if record.value is not None:
            message["data"] = _base64(record.value)
        if time := time_of(record):
            message["publishTime"] = message["publish_time"] = time
        if record.key and (key := _text(record.key)) is not None:
            message["orderingKey"] = key
        push: dict[str, Any] = {"message": message, "subscription": self._subscription}
        if self._tells_attempt:
            push["deliveryAttempt"] = attempt
        return Shaped(_dumped(push), record.headers, _JSON_LINE)


def _attributes(record: Record) -> dict[str, str]:
    """The headers that are text; of repeated ones the last."""
    return {
        name: text
        for name, value in record.headers or ()
        if value is not None and (text := _text(value)) is not None
    }


def _text(value: bytes) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


class LambdaShape:
    """The event of a self-managed Kafka source, with a batch of one."""

    __slots__ = ("_servers",)

    def __init__(self, bootstrap_servers: str) -> None:
        self._servers: Final = bootstrap_servers

    def __call__(self, record: Record, attempt: int) -> Shaped:
        return Shaped(lambda_event(self._servers, [record]), record.headers, _JSON_LINE)


def lambda_event(bootstrap_servers: str, records: Iterable[Record]) -> bytes:
    """The event with these records, each under its partition."""
    by_partition: dict[str, list[dict[str, Any]]] = {}
    for record in records:
        told: dict[str, Any] = {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": record.timestamp_ms,
            "timestampType": "CREATE_TIME",
            "headers": [
                {name: None if value is None else list(value)}
                for name, value in record.headers or ()
            ],
        }
        if record.key is not None:
            told["key"] = _base64(record.key)
        if record.value is not None:
            told["value"] = _base64(record.value)
        by_partition.setdefault(f"{record.topic}-{record.partition}", []).append(told)
    return _dumped(
        {
            "eventSource": "SelfManagedKafka",
            "bootstrapServers": bootstrap_servers,
            "records": by_partition,
        }
    )
