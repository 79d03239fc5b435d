"""Records as CloudEvents 1.0 in the HTTP protocol binding (encoding `cloudevents`).

A record that is an event by the Kafka binding goes out in the same mode; any other is wrapped
with the attributes of the route. Invariants:

* A header that is no legal attribute (a name or a value the specification forbids, a name given
  twice) stays with the record's headers: it reaches the application in Kafka-Headers, and never
  as an attribute.
* Without the four required attributes a record is no event, whatever else it carries.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode
from binascii import b2a_base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote

from sidecar.core.target import TOPIC
from sidecar.delivery.request import Shaped, identity_of, is_plain, is_type, type_line_of
from sidecar.model import Header, Record

_PREFIX: Final = "ce_"
REQUIRED: Final = frozenset(("specversion", "id", "source", "type"))
_NAMES_KEPT: Final = 1024
_LONGEST_NAME_KEPT: Final = 64

STRUCTURED_TYPE: Final = b"application/cloudevents+json"
# How a receiver tells the structured mode from the binary one.
claims_an_event: Final = re.compile(rb"application/cloudevents", re.IGNORECASE).match
_is_structured: Final = re.compile(
    rb"application/cloudevents(?:\+[a-z0-9.+-]+)? *(?:;.*)?", re.IGNORECASE
).fullmatch
is_json_structured: Final = re.compile(
    rb"application/cloudevents\+json *(?:;.*)?", re.IGNORECASE
).fullmatch
_is_json_type: Final = re.compile(rb"[^/]+/(?:json|[^;]*\+json) *(?:;.*)?", re.IGNORECASE).fullmatch
_is_text_type: Final = re.compile(
    rb"text/[^;]*(?:; *charset=\"?(?:utf-8|us-ascii)\"?)?", re.IGNORECASE
).fullmatch
_is_attribute: Final = re.compile(r"[a-z0-9]{1,100}").fullmatch
_NO_ATTRIBUTES: Final = frozenset(("data", "datacontenttype"))  # they have places of their own
_is_version: Final = re.compile(rb"[0-9]+\.[0-9]+").fullmatch
# Visible ASCII travels as it is, but for the quote and the percent sign.
_is_unchanged: Final = re.compile(rb"[!#$&-~]+").fullmatch
_UNCHANGED: Final = "!#$&'()*+,/:;<=>?@[\\]^`{|}"
_forbidden: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\ufdd0-\ufdef\ud800-\udfff"
    + "".join(
        f"{chr(plane + 0xFFFE)}{chr(plane + 0xFFFF)}" for plane in range(0, 0x110000, 0x10000)
    )
    + "]"
).search


@dataclass(frozen=True, slots=True)
class Wrapping:
    """The attributes of a record that is no event. {topic} in source and type is its topic."""

    source: str
    type: str
    structured: bool
    content_type: str  # of records without one of their own
    extensions: Mapping[str, str] = field(default_factory=dict)


class CloudEventShape:
    """Implements request.Shape. unpack: JSON events in structured mode go out in binary mode."""

    __slots__ = ("_content_type", "_prefixes", "_unpack", "_wrapping")

    def __init__(self, wrapping: Wrapping, *, unpack: bool = False) -> None:
        self._wrapping: Final = wrapping
        self._unpack: Final = unpack
        self._content_type: Final = wrapping.content_type.encode()
        self._prefixes: Final[dict[str, bytes]] = {}

    def __call__(self, record: Record, attempt: int) -> Shaped:
        own_type = content_type_of(record.headers)
        if record.headers and not claims_an_event(own_type):
            event = self._binary(record, record.headers, own_type)
            if event is not None:
                return event
        content_type = own_type or self._content_type
        if claims_an_event(content_type):
            if record.value and _is_structured(content_type):
                return self._structured(record, record.value, content_type)
        elif not self._wrapping.structured:
            return self._wrapped(record)
        # Also what only claims to be one: in binary mode its content type would be believed.
        body = wrapped(self._wrapping, record, content_type)
        return Shaped(body, record.headers, type_line_of(STRUCTURED_TYPE))

    def _structured(self, record: Record, value: bytes, content_type: bytes) -> Shaped:
        if self._unpack and is_json_structured(content_type):
            unpacked = _unpacked(record.headers, value)
            if unpacked is not None:
                return unpacked
        return Shaped(value, record.headers, type_line_of(content_type))

    def _wrapped(self, record: Record) -> Shaped:
        lines = b"".join(
            [
                b"ce-%b: %b\r\n" % (name.encode(), quote(value, safe=_UNCHANGED).encode())
                for name, value in _given(self._wrapping, record).items()
            ]
        )
        return Shaped(record.value or b"", record.headers, None, lines)

    def _binary(self, record: Record, headers: list[Header], own_type: bytes) -> Shaped | None:
        """The event in binary mode, if the headers make one."""
        found = self.attributes(headers)
        if found is None:
            return None
        attributes, rest = found
        lines = b"".join([b"%b%b\r\n" % (name, each[0]) for name, each in attributes.items()])
        # No content type is said where the event has none: it would be an attribute.
        type_line = type_line_of(own_type) if own_type else b""
        return Shaped(record.value or b"", rest, type_line, lines)

    def attributes(
        self, headers: list[Header]
    ) -> tuple[dict[bytes, tuple[bytes, Header]], list[Header]] | None:
        """The attributes of an event in binary mode, and the other headers; None if it is none.

        An attribute is known by what its line begins with, and has its value there and its header.
        """
        attributes: dict[bytes, tuple[bytes, Header]] = {}
        rest: list[Header] = []
        for header in headers:
            name, value = header
            prefix = self._prefix(name) if name.startswith(_PREFIX) else b""
            text = attribute_value(value) if prefix and value else None
            if text is None:
                rest.append(header)
                continue
            if prefix in attributes:  # of repeated ones the last, as Kafka's clients do
                rest.append(attributes[prefix][1])
            attributes[prefix] = (text, header)
        version = attributes.get(b"ce-specversion: ")
        if version is None or not _is_version(version[0]):
            return None
        if not attributes.keys() >= _REQUIRED_PREFIXES:
            return None
        return attributes, rest

    def _prefix(self, name: str) -> bytes:
        """What the line of an attribute begins with; empty if it cannot be one."""
        prefix = self._prefixes.get(name)
        if prefix is None:
            attribute = name.removeprefix(_PREFIX)
            legal = _is_attribute(attribute) and attribute not in _NO_ATTRIBUTES
            prefix = b"ce-%b: " % attribute.encode() if legal else b""
            if len(name) <= _LONGEST_NAME_KEPT:
                if len(self._prefixes) >= _NAMES_KEPT:
                    self._prefixes.clear()
                self._prefixes[name] = prefix
        return prefix


_REQUIRED_PREFIXES: Final = frozenset(b"ce-%b: " % name.encode() for name in REQUIRED)


# --- attributes ---------------------------------------------------------------------------------


def text_of(value: bytes) -> str | None:
    """The value as a CloudEvents string; None for what none may hold."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return None
    return None if _forbidden(text) else text


def attribute_value(value: bytes) -> bytes | None:
    """An attribute's value as it stands in an HTTP header; None if it is not legal."""
    if _is_unchanged(value):
        return value
    text = text_of(value)
    return None if text is None else quote(text, safe=_UNCHANGED).encode()


def content_type_of(headers: list[Header] | None) -> bytes:
    """The record's own content type if it is legal, else nothing; of several the last."""
    found = b""
    for name, value in headers or ():
        if value and name.lower() == "content-type" and is_plain(value):
            found = value
    return found if is_type(found) else b""


def time_of(record: Record) -> str | None:
    """The record's timestamp by RFC 3339, in UTC."""
    if record.timestamp_ms < 0:
        return None
    try:
        moment = datetime.fromtimestamp(record.timestamp_ms // 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return None
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{record.timestamp_ms % 1000:03d}Z"


_JSON: Final = json.JSONDecoder(parse_int=str, parse_float=str)

# --- structured ---------------------------------------------------------------------------------


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def parse_json(value: bytes) -> Any:
    """The value as strict JSON in UTF-8, its numbers as text. Raises ValueError."""
    try:
        return json.loads(value.decode(), parse_constant=_refuse, parse_int=str, parse_float=str)
    except RecursionError:
        raise ValueError("too deep") from None


def _given(wrapping: Wrapping, record: Record) -> dict[str, str]:
    """The attributes of a record that is no event."""
    topic = quote(record.topic, safe="")
    attributes = {
        "specversion": "1.0",
        "id": identity_of(record),
        "source": wrapping.source.replace(TOPIC, topic),
        "type": wrapping.type.replace(TOPIC, topic),
    }
    if time := time_of(record):
        attributes["time"] = time
    if record.key and (key := text_of(record.key)):
        attributes["partitionkey"] = key
    return {**attributes, **wrapping.extensions}


def wrapped(
    wrapping: Wrapping, record: Record, content_type: bytes, more: Mapping[str, str] | None = None
) -> bytes:
    """The event in JSON. JSON data are embedded byte for byte, text as text, the rest in base64."""
    attributes = {**_given(wrapping, record), **(more or {})}
    attributes["datacontenttype"] = content_type.decode()
    head = json.dumps(attributes, separators=(",", ":")).encode()
    value = record.value
    if value is None:
        return head  # an event without data
    return b'%b,"%b":%b}' % (head[:-1], *data_member(value, content_type))


def data_member(value: bytes, content_type: bytes) -> tuple[bytes, bytes]:
    try:
        if _is_json_type(content_type):
            parse_json(value)
            return b"data", value
        if _is_text_type(content_type):
            return b"data", json.dumps(value.decode()).encode()
    except ValueError:
        pass
    return b"data_base64", b'"%b"' % b2a_base64(value, newline=False)


def _unpacked(headers: list[Header] | None, value: bytes) -> Shaped | None:
    """A JSON event in structured mode as one in binary mode; None if it is not well-formed."""
    try:
        event = parse_json(value)
        if not isinstance(event, dict) or not event.keys() >= REQUIRED:
            return None
        content_type = event.pop("datacontenttype", None) or ""
        raw_type = content_type.encode()
        if raw_type and not (is_plain(raw_type) and is_type(raw_type)):
            return None
        body = b""
        if event.get("data_base64") is not None:
            body = b64decode(event.pop("data_base64"), validate=True)
        elif event.get("data") is not None:
            data = event.pop("data")
            raw_type = raw_type or b"application/json"
            text = isinstance(data, str) and not _is_json_type(raw_type)
            body = data.encode() if text else members(value.decode())["data"].encode()
        lines = b"".join(
            [
                _line_of(name, content)
                for name, content in event.items()
                if content is not None or name in REQUIRED
            ]
        )
    except (ValueError, TypeError, AttributeError):
        return None
    return Shaped(body, headers, type_line_of(raw_type) if raw_type else b"", lines)


def _line_of(name: str, content: object) -> bytes:
    """An attribute's line. Raises ValueError."""
    if isinstance(content, bool):
        content = str(content).lower()
    if not _is_attribute(name) or not isinstance(content, str) or not content:
        raise ValueError(f"{name} is no attribute")
    value = attribute_value(content.encode())
    if value is None:
        raise ValueError(f"{name} holds what no attribute may")
    return b"ce-%b: %b\r\n" % (name.encode(), value)


def members(text: str) -> dict[str, str]:
    """The members of a JSON object that is not empty, as they are written; of equals the last."""
    found: dict[str, str] = {}
    at = text.index("{") + 1
    while True:
        key, at = _JSON.raw_decode(text, _ink(text, at))
        at = _ink(text, _ink(text, at) + 1)  # behind the colon
        start = at
        _, at = _JSON.raw_decode(text, at)
        found[key] = text[start:at]
        at = _ink(text, at)
        if text[at] == "}":
            return found
        at += 1


def _ink(text: str, at: int) -> int:
    """Where the next character that is no blank stands."""
    while text[at] in " \t\r\n":
        at += 1
    return at
