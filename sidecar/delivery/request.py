"""A record becomes one HTTP/1.1 request: its head, and its body.

By itself (encoding `raw`) the body is the value; a shape makes another body of the record, and
says what of it need not travel in the head any more.

Owned by a delivery, used on the event loop only. Invariants:

* Nothing in a record adds a header line, changes the framing or chooses the host: names go out
  under a prefix and only if they match `[A-Za-z0-9-]+`, values only if they are plain visible
  ASCII, else as an RFC 9651 byte sequence.
* Every byte of key, value and headers can be rebuilt by the application.

What does not change is built once: per route, and per topic for the path and the topic's name.
"""

from __future__ import annotations

import hashlib
import json
import re
from binascii import b2a_base64
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol
from urllib.parse import quote

from sidecar.core.credentials import header_line
from sidecar.core.target import TOPIC
from sidecar.errors import SidecarError
from sidecar.model import UNREADABLE_HEADERS, Header, Record

_TOPICS_KEPT: Final = 1024
_NAMES_KEPT: Final = 1024
_LONGEST_NAME_KEPT: Final = 64

# An empty value is plain as well; a leading colon would be taken for a byte sequence.
is_plain: Final = re.compile(rb"(?:[!-9;-~](?:[ -~]*[!-~])?)?").fullmatch
_is_plain_name: Final = re.compile(r"[A-Za-z0-9-]+").fullmatch
_TOKEN: Final = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
is_token: Final = re.compile(_TOKEN).fullmatch
is_type: Final = re.compile(_TOKEN + rb"/" + _TOKEN + rb"(?: *;[ -~]*)?").fullmatch

_UNREADABLE: Final = "a header's name is not UTF-8, so the client library cannot read the headers"

TRACE_NAMES: Final = ("traceparent", "tracestate", "baggage")
_OWN_NAMES: Final = frozenset(("content-type", *TRACE_NAMES))


class Unsendable(SidecarError):
    """The record cannot be put into a request; the message says why."""


class Shaped(NamedTuple):
    """What a shape makes of a record."""

    body: bytes
    headers: list[Header] | None  # of the record: those that the head has to carry
    type_line: bytes | None = None  # None: the record's own content type, or the default
    lines: bytes = b""  # further lines of the head


class Shape(Protocol):
    def __call__(self, record: Record, attempt: int) -> Shaped: ...


class BatchShape(Protocol):
    def __call__(self, batch: Sequence[tuple[Record, int]]) -> tuple[bytes, bytes]:
        """The content type and the body of a request about these records, with their attempts.

        Raises Unsendable.
        """


class _Name(NamedTuple):
    """How a record header of one name travels."""

    prefix: bytes  # what its line begins with; empty if it cannot have a line
    own: str  # the name it is sent under besides; empty if none


class RequestEncoder:
    """Encodes the records of one route for one target."""

    __slots__ = (
        "_batch_shape",
        "_fixed_lines",
        "_headers_always",
        "_host_line",
        "_max_header_bytes",
        "_names",
        "_path_template",
        "_shape",
        "_sign",
        "_topics",
        "_type_line",
    )

    def __init__(
        self,
        path_template: str,
        host: str,
        default_content_type: str,
        max_header_bytes: int,
        headers_always: bool = False,
        fixed_lines: bytes = b"",
        shape: Shape | None = None,
        batch_shape: BatchShape | None = None,
        sign: Callable[[str, bytes], bytes] | None = None,
    ) -> None:
        """fixed_lines go out with every request. Raises ValueError for what cannot be sent."""
        self._sign = sign
        self._shape = shape
        self._batch_shape = batch_shape
        self._path_template = path_template
        self._host_line = header_line("Host", host)
        self._fixed_lines = fixed_lines
        self._type_line = header_line("Content-Type", default_content_type)
        self._max_header_bytes = max_header_bytes
        self._headers_always = headers_always
        self._topics: dict[str, bytes] = {}
        self._names: dict[str, _Name] = {}

    def set_fixed_lines(self, lines: bytes) -> bool:
        """Send these from now on. False if they are what is sent already."""
        changed = lines != self._fixed_lines
        if changed:
            self._fixed_lines = lines
            self._topics.clear()
        return changed

    def path(self, topic: str) -> str:
        return self._path_template.replace(TOPIC, quote(topic, safe=""))

    def encode(self, record: Record, attempt: int) -> tuple[bytes, bytes]:
        """The request: its head up to and with the empty line, and its body. Raises Unsendable."""
        topic = record.assignment.topic
        partition = record.assignment.number
        offset = record.offset
        timestamp = record.timestamp_ms
        key = record.key
        value = record.value
        template = self._topics.get(topic) or self._start(topic)
        if self._shape is None:
            body = b"" if value is None else value
            headers = record.headers
            type_line = None
            lines = b""
        else:
            body, headers, type_line, lines = self._shape(record, attempt)
        head = template % (
            partition,
            offset,
            partition,
            offset,
            timestamp,
            attempt,
            len(body),
            timestamp,
        )
        if timestamp < 0:
            head = head.removesuffix(b"Kafka-Timestamp: -1\r\n")
        if headers or self._headers_always:
            head += self._record_headers(headers or [], record.headers or [], type_line)
        else:
            head += self._type_line if type_line is None else type_line
        if key is not None:
            head += b"Kafka-Key: %b\r\n" % (key if is_plain(key) else byte_sequence(key))
        if lines:
            head += lines
        if self._sign is not None:
            head += self._sign(identity_of(record), body)
        head += b"Kafka-Tombstone: true\r\n\r\n" if value is None else b"\r\n"
        if len(head) > self._max_header_bytes:
            raise Unsendable(
                f"the request's head has {len(head)} bytes,"
                f" max_header_bytes is {self._max_header_bytes}"
            )
        return head, body

    def encode_batch(self, batch: Sequence[tuple[Record, int]]) -> tuple[bytes, bytes]:
        """As encode, of records of one topic with their attempts. Raises Unsendable."""
        assert self._batch_shape is not None, "no batches on this route"
        if any(record.headers is UNREADABLE_HEADERS for record, _ in batch):
            raise Unsendable(_UNREADABLE)
        content_type, body = self._batch_shape(batch)
        head = self._opening(batch[0][0].topic) + type_line_of(content_type)
        head += b"Sidecar-Batch: %d\r\nContent-Length: %d\r\n" % (len(batch), len(body))
        if self._sign is not None:
            head += self._sign(identity_of_batch([record for record, _ in batch]), body)
        return head + b"\r\n", body

    def _opening(self, topic: str) -> bytes:
        """The lines that are the same for every request about a topic."""
        raw = topic.encode()
        return b"POST %b HTTP/1.1\r\n%bKafka-Topic: %b\r\n" % (
            self.path(topic).encode("ascii"),
            self._host_line + self._fixed_lines,
            raw if is_plain(raw) else byte_sequence(raw),
        )

    def _start(self, topic: str) -> bytes:
        """The part of the head that is the same for all records of a topic, as a template."""
        template = (
            self._opening(topic).replace(b"%", b"%%")
            + b"Kafka-Partition: %d\r\nKafka-Offset: %d\r\n"
            + b'Idempotency-Key: "%b/%%d/%%d/%%d"\r\n'
            % quote(topic, safe="").replace("%", "%%").encode("ascii")
            + b"Sidecar-Attempt: %d\r\nContent-Length: %d\r\nKafka-Timestamp: %d\r\n"
        )
        if len(self._topics) >= _TOPICS_KEPT:
            self._topics.clear()
        self._topics[topic] = template
        return template

    def _record_headers(
        self, headers: list[Header], every: list[Header], type_line: bytes | None
    ) -> bytes:
        """The lines made from these of the record's headers, with the content type among them."""
        if every is UNREADABLE_HEADERS:
            raise Unsendable(_UNREADABLE)
        names = self._names
        whole = self._headers_always
        own: dict[str, bytes] = {}
        lines = []
        for name, value in headers:
            kept = names.get(name) or self._name(name)
            if value is None or not kept.prefix:
                whole = True
                continue
            plain = is_plain(value)
            lines.append(kept.prefix + (value if plain else byte_sequence(value)))
            if kept.own and plain and value:
                own[kept.own] = value  # of repeated ones the last, as Kafka's clients do
        if whole:
            lines.append(b"Kafka-Headers: " + byte_sequence(headers_as_json(every)))
        lines += [b"%b: %b" % (name.encode(), own[name]) for name in TRACE_NAMES if name in own]
        lines.append(b"")
        if type_line is None:
            own_type = own.get("content-type", b"")
            type_line = type_line_of(own_type) if is_type(own_type) else self._type_line
        return type_line + b"\r\n".join(lines)

    def _name(self, name: str) -> _Name:
        legal = _is_plain_name(name) is not None
        lowered = name.lower()
        kept = _Name(
            b"Kafka-Header-%b: " % name.encode("ascii") if legal else b"",
            lowered if legal and lowered in _OWN_NAMES else "",
        )
        if len(name) <= _LONGEST_NAME_KEPT:
            if len(self._names) >= _NAMES_KEPT:
                self._names.clear()
            self._names[name] = kept
        return kept


def split_head(head: bytes) -> list[tuple[bytes, bytes]]:
    """The header lines of an encoded head as pairs, for clients that write heads themselves."""
    lines = head[:-4].split(b"\r\n")[1:]
    return [(name, value) for name, _, value in (line.partition(b": ") for line in lines)]


def identity_of(record: Record) -> str:
    """What Idempotency-Key says, without its quotes."""
    topic = quote(record.topic, safe="")
    return f"{topic}/{record.partition}/{record.offset}/{record.timestamp_ms}"


def identity_of_batch(records: Sequence[Record]) -> str:
    """The same for the same records in the same order, and for no others."""
    identities = [identity_of(record) for record in records]
    digest = hashlib.sha256("\n".join(identities).encode()).hexdigest()
    return f"{identities[0]}+{len(records)}+{digest[:16]}"


def type_line_of(content_type: bytes) -> bytes:
    return b"Content-Type: %b\r\n" % content_type


def byte_sequence(value: bytes) -> bytes:
    return b":%b:" % b2a_base64(value, newline=False)


def headers_as_json(headers: list[Header]) -> bytes:
    pairs = [
        (name, None if value is None else b2a_base64(value, newline=False).decode())
        for name, value in headers
    ]
    return json.dumps(pairs, separators=(",", ":")).encode("ascii")
