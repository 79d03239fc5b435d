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
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol
from urllib.parse import quote

from sidecar.core.credentials import header_line
from sidecar.core.target import TOPIC
from sidecar.errors import SidecarError
from sidecar.model import UNREADABLE_HEADERS, Assignment, Header, Record, TracedRecord

_STARTS_KEPT: Final = 1024
_NAMES_KEPT: Final = 1024
_LONGEST_NAME_KEPT: Final = 64

_is_plain_name: Final = re.compile(r"[A-Za-z0-9-]+").fullmatch
_TOKEN: Final = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
is_token: Final = re.compile(_TOKEN).fullmatch
is_type: Final = re.compile(_TOKEN + rb"/" + _TOKEN + rb"(?: *;[ -~]*)?").fullmatch

_UNREADABLE: Final = "a header's name is not UTF-8, so the client library cannot read the headers"

TRACE_NAMES: Final = ("traceparent", "tracestate", "baggage")
_OWN_NAMES: Final = frozenset(("content-type", *TRACE_NAMES))
# W3C Trace Context: ids that are not all zero, and a version of which more may follow but for 00.
is_traceparent: Final = re.compile(
    rb"(?!ff|00.{54})[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?:-.*)?"
).fullmatch
_trace_lines: Final = re.compile(rb"\r\n(?:traceparent|tracestate): [^\r]*")


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
        "_only_types",
        "_path_template",
        "_shape",
        "_sign",
        "_starts",
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
        # What a record without headers is sent with is a type and no more.
        self._only_types = shape is None and sign is None and not headers_always
        self._starts: dict[Assignment, tuple[bytes, bytes]] = {}
        self._names: dict[str, _Name] = {}

    def set_fixed_lines(self, lines: bytes) -> bool:
        """Send these from now on. False if they are what is sent already."""
        changed = lines != self._fixed_lines
        if changed:
            self._fixed_lines = lines
            self._starts.clear()
        return changed

    def path(self, topic: str) -> str:
        return self._path_template.replace(TOPIC, quote(topic, safe=""))

    def encode(self, record: Record, attempt: int) -> tuple[bytes, bytes]:
        """The request: its head up to and with the empty line, and its body. Raises Unsendable."""
        if record.__class__ is not Record:  # it came back by a retry topic, or is traced
            if isinstance(record, TracedRecord):
                return self._encode_traced(record, attempt)
            attempt += record.attempts
            record = record.original
        assignment = record.assignment
        offset = record.offset
        timestamp = record.timestamp_ms
        key = record.key
        value = record.value
        keyed, keyless = self._starts.get(assignment) or self._start(assignment)
        if self._only_types and not record.headers:
            body, own, rest = value or b"", self._type_line, b""
        else:
            body, own, rest = self._shaped(record, attempt)
        if value is None:
            rest += b"Kafka-Tombstone: true\r\n"
        size = len(body)
        # One formatting and no more: this runs for every record.
        if key is None:
            head = keyless % (offset, offset, timestamp, attempt, size, timestamp, own, rest)
        else:
            told = key if is_plain(key) else byte_sequence(key)
            head = keyed % (offset, offset, timestamp, attempt, size, timestamp, own, told, rest)
        if timestamp < 0:
            head = head.replace(b"Kafka-Timestamp: -1\r\n", b"", 1)
        if len(head) > self._max_header_bytes:
            raise Unsendable(
                f"the request's head has {len(head)} bytes,"
                f" max_header_bytes is {self._max_header_bytes}"
            )
        return head, body

    def _shaped(self, record: Record, attempt: int) -> tuple[bytes, bytes, bytes]:
        """The body, the lines of its type and of the record's headers, and further lines."""
        if self._shape is None:
            body, headers, type_line, rest = record.value or b"", record.headers, None, b""
        else:
            body, headers, type_line, rest = self._shape(record, attempt)
        if headers or self._headers_always:
            own = self._record_headers(headers or [], record.headers or [], type_line)
        else:
            own = self._type_line if type_line is None else type_line
        if self._sign is not None:
            rest += self._sign(identity_of(record), body)
        return body, own, rest

    def _encode_traced(self, record: TracedRecord, attempt: int) -> tuple[bytes, bytes]:
        head, body = self.encode(record.original, attempt + record.attempts)
        if b"\r\ntraceparent: " in head:
            head = _trace_lines.sub(b"", head)
        return self._in_trace(head, record.trace), body

    def _in_trace(self, head: bytes, trace: Mapping[str, str]) -> bytes:
        """The head with this trace, if it is not too large for it: a trace rejects no record."""
        lines = b"".join([header_line(name, value) for name, value in trace.items()])
        if len(head) + len(lines) > self._max_header_bytes:
            return head
        return head[:-2] + lines + b"\r\n"

    def encode_batch(self, batch: Sequence[tuple[Record, int]]) -> tuple[bytes, bytes]:
        """As encode, of records of one topic with their attempts. Raises Unsendable."""
        assert self._batch_shape is not None, "no batches on this route"
        first = batch[0][0]
        batch = [
            each if each[0].__class__ is Record else (each[0].original, each[1] + each[0].attempts)
            for each in batch
        ]
        if any(record.headers is UNREADABLE_HEADERS for record, _ in batch):
            raise Unsendable(_UNREADABLE)
        content_type, body = self._batch_shape(batch)
        head = self._opening(batch[0][0].topic) + type_line_of(content_type)
        head += b"Sidecar-Batch: %d\r\nContent-Length: %d\r\n" % (len(batch), len(body))
        if self._sign is not None:
            head += self._sign(identity_of_batch([record for record, _ in batch]), body)
        head += b"\r\n"
        return (
            self._in_trace(head, first.trace) if isinstance(first, TracedRecord) else head
        ), body

    def _opening(self, topic: str) -> bytes:
        """The lines that are the same for every request about a topic."""
        raw = topic.encode()
        return b"POST %b HTTP/1.1\r\n%bKafka-Topic: %b\r\n" % (
            self.path(topic).encode("ascii"),
            self._host_line + self._fixed_lines,
            raw if is_plain(raw) else byte_sequence(raw),
        )

    def _start(self, assignment: Assignment) -> tuple[bytes, bytes]:
        """What is the same for all records of a partition, as templates: with a key, without."""
        quoted = quote(assignment.topic, safe="").replace("%", "%%").encode("ascii")
        start = (
            self._opening(assignment.topic).replace(b"%", b"%%")
            + b"Kafka-Partition: %d\r\nKafka-Offset: %%d\r\n" % assignment.number
            + b'Idempotency-Key: "%b/%d/%%d/%%d"\r\n' % (quoted, assignment.number)
            + b"Sidecar-Attempt: %d\r\nContent-Length: %d\r\nKafka-Timestamp: %d\r\n%b"
        )
        templates = start + b"Kafka-Key: %b\r\n%b\r\n", start + b"%b\r\n"
        if len(self._starts) >= _STARTS_KEPT:
            self._starts.clear()
        self._starts[assignment] = templates
        return templates

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
        if not is_traceparent(own.get("traceparent", b"")):  # the state of none says nothing
            own.pop("traceparent", None)
            own.pop("tracestate", None)
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


def is_plain(value: bytes) -> bool:
    """Whether a value can travel as it is: visible ASCII, with spaces inside.

    An empty value is plain as well; a leading colon would be taken for a byte sequence.
    """
    if not value.isascii():
        return False
    text = value.decode()
    return not text or (text.isprintable() and text[0] not in " :" and text[-1] != " ")


def byte_sequence(value: bytes) -> bytes:
    return b":%b:" % b2a_base64(value, newline=False)


def headers_as_json(headers: list[Header]) -> bytes:
    pairs = [
        (name, None if value is None else b2a_base64(value, newline=False).decode())
        for name, value in headers
    ]
    return json.dumps(pairs, separators=(",", ":")).encode("ascii")
