"""Many records in one request: the bodies of batches.

Implementations of request.BatchShape. Invariants:

* Every byte of a record's key, value and headers can be rebuilt by the application, but for what
  an event in JSON holds under the names of our attributes.
* These tell of the record that is sent. An event that was published as it was received brings
  those of the record that it was, and whoever knows a record by them would take it for that one.
"""

from __future__ import annotations

import json
from binascii import b2a_base64
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from sidecar.core.presets import BATCH_ATTRIBUTES
from sidecar.delivery.cloudevents import (
    REQUIRED,
    CloudEventShape,
    Wrapping,
    claims_an_event,
    content_type_of,
    data_member,
    is_json_structured,
    members,
    parse_json,
    text_of,
    wrapped,
)
from sidecar.delivery.envelopes import lambda_event
from sidecar.delivery.request import byte_sequence, headers_as_json, identity_of, is_plain
from sidecar.model import Header, Record

_JSON: Final = b"application/json"
_EVENTS: Final = b"application/cloudevents-batch+json"


class RecordsBatch:
    """A JSON array of objects, one for each record (encoding `raw`).

    Bytes that are UTF-8 are text, others stand in base64 under the name with `_base64` behind it.
    A null key or value is null, so that it is told from an empty one.
    """

    __slots__ = ()

    def __call__(self, batch: Sequence[tuple[Record, int]]) -> tuple[bytes, bytes]:
        return _JSON, _dumped([_told(record, attempt) for record, attempt in batch])


def _told(record: Record, attempt: int) -> dict[str, Any]:
    told: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
    }
    if record.timestamp_ms >= 0:
        told["timestamp"] = record.timestamp_ms
    told.update(_bytes("key", record.key))
    told.update(_bytes("value", record.value))
    if record.headers:
        told["headers"] = [
            {"name": name, **_bytes("value", content)} for name, content in record.headers
        ]
    told["idempotency_key"] = identity_of(record)
    told["attempt"] = attempt
    return told


def _bytes(name: str, value: bytes | None) -> Mapping[str, str | None]:
    if value is None:
        return {name: None}
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {name + "_base64": b2a_base64(value, newline=False).decode()}


class CloudEventsBatch:
    """The batch format of CloudEvents: a JSON array of events (encoding `cloudevents`).

    What travels in the head of a single record are extension attributes here.
    """

    __slots__ = ("_content_type", "_shape", "_wrapping")

    def __init__(self, wrapping: Wrapping) -> None:
        self._wrapping: Final = wrapping
        self._shape: Final = CloudEventShape(wrapping)
        self._content_type: Final = wrapping.content_type.encode()

    def __call__(self, batch: Sequence[tuple[Record, int]]) -> tuple[bytes, bytes]:
        return _EVENTS, b"[%b]" % b",".join([self._event(*each) for each in batch])

    def _event(self, record: Record, attempt: int) -> bytes:
        own_type = content_type_of(record.headers)
        content_type = own_type or self._content_type
        event = None
        if record.headers and not claims_an_event(own_type):
            event = self._binary(record, record.headers, own_type, attempt)
        if event is None and claims_an_event(content_type):
            event = _structured(record, content_type, attempt)
        if event is None:
            more = _extensions(record, record.headers, attempt)
            event = wrapped(self._wrapping, record, content_type, more)
        return event

    def _binary(
        self, record: Record, headers: list[Header], own_type: bytes, attempt: int
    ) -> bytes | None:
        found = self._shape.attributes(headers)
        if found is None:
            return None
        attributes, rest = found
        event = {
            prefix[len("ce-") : -len(": ")].decode(): text_of(value or b"")
            for prefix, (_, (_, value)) in attributes.items()
        }
        if own_type:
            event["datacontenttype"] = own_type.decode()
        replaced = event.keys() & BATCH_ATTRIBUTES
        for name in replaced:
            del event[name]
        event.update(_extensions(record, headers if replaced else rest, attempt))
        if not record.value:
            return _dumped(event)
        return b'%b,"%b":%b}' % (_dumped(event)[:-1], *data_member(record.value, own_type))


def _structured(record: Record, content_type: bytes, attempt: int) -> bytes | None:
    """An event in JSON as it is, with our attributes behind its own."""
    value = record.value
    if not value or not is_json_structured(content_type):
        return None
    try:
        event = parse_json(value)
    except ValueError:
        return None
    if not isinstance(event, dict) or not event.keys() >= REQUIRED:
        return None
    added = _dumped(_extensions(record, record.headers, attempt))[1:]
    if event.keys() & BATCH_ATTRIBUTES:  # it was sent by a sidecar before
        kept = [
            f"{json.dumps(name)}:{written}"
            for name, written in members(value.decode()).items()
            if name not in BATCH_ATTRIBUTES
        ]
        return b"{%b,%b" % (",".join(kept).encode(), added)
    return b"%b,%b" % (value.rstrip()[:-1], added)


def _extensions(record: Record, headers: Iterable[Header] | None, attempt: int) -> dict[str, str]:
    extensions = {
        "kafkatopic": record.topic,
        "kafkapartition": str(record.partition),
        "kafkaoffset": str(record.offset),
        "idempotencykey": identity_of(record),
        "sidecarattempt": str(attempt),
    }
    if record.timestamp_ms >= 0:
        extensions["kafkatimestamp"] = str(record.timestamp_ms)
    if record.key is not None:
        key = record.key if is_plain(record.key) else byte_sequence(record.key)
        extensions["kafkakey"] = key.decode("ascii")
    if headers:
        extensions["kafkaheaders"] = headers_as_json(record.headers or []).decode("ascii")
    if record.value is None:
        extensions["kafkatombstone"] = "true"
    return extensions


class LambdaBatch:
    """The event of a self-managed Kafka source (encoding `lambda`)."""

    __slots__ = ("_servers",)

    def __init__(self, bootstrap_servers: str) -> None:
        self._servers: Final = bootstrap_servers

    def __call__(self, batch: Sequence[tuple[Record, int]]) -> tuple[bytes, bytes]:
        return _JSON, lambda_event(self._servers, [record for record, _ in batch])


def _dumped(tree: object) -> bytes:
    return json.dumps(tree, ensure_ascii=False, separators=(",", ":")).encode()
