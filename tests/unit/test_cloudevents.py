"""Records as CloudEvents over HTTP, read back by a decoder that knows only the specification."""

from __future__ import annotations

import base64
import json
import re
from typing import Any, NamedTuple
from urllib.parse import unquote_to_bytes

import h11
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sidecar.delivery.cloudevents import CloudEventShape, Wrapping
from sidecar.delivery.request import RequestEncoder, Shape, Unsendable
from sidecar.model import Assignment, Header, Partition, Record

TIME = 1_700_000_000_123
EVENT: list[Header] = [
    ("ce_specversion", b"1.0"),
    ("ce_id", b"A-1"),
    ("ce_source", b"/orders"),
    ("ce_type", b"order.placed"),
]
STRUCTURED = ("content-type", b"application/cloudevents+json; charset=UTF-8")


class Request(NamedTuple):
    """What an application sees; names in lower case."""

    headers: list[tuple[str, bytes]]
    body: bytes

    def values(self, name: str) -> list[bytes]:
        return [value for each, value in self.headers if each == name]

    @property
    def attributes(self) -> dict[str, str]:
        """As a receiver reads them: percent-decoded once, then strictly UTF-8."""
        found = [(n[3:], v) for n, v in self.headers if n.startswith("ce-")]
        assert len({name for name, _ in found}) == len(found), "each attribute once"
        for name, value in found:
            assert re.fullmatch(r"[a-z0-9]+", name)
            assert re.fullmatch(rb"[!#-~]+", value)
        return {name: unquote_to_bytes(value).decode("utf-8", "strict") for name, value in found}

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def shape(structured: bool = False, unpack: bool = False, **given: Any) -> CloudEventShape:
    wrapping: dict[str, Any] = {
        "source": "/kafka/{topic}",
        "type": "kafka.record",
        "content_type": "application/octet-stream",
        **given,
    }
    return CloudEventShape(Wrapping(structured=structured, **wrapping), unpack=unpack)


def record(
    value: bytes | None = b"value",
    headers: list[Header] | None = None,
    key: bytes | None = None,
    timestamp_ms: int = TIME,
) -> Record:
    return Record(
        Assignment(Partition("orders", 3), 1), 42, timestamp_ms, key, value, headers, size=0
    )


def sent(record: Record, shape: Shape) -> Request:
    """Through the encoder and an HTTP parser: exactly one request, or none."""
    encoder = RequestEncoder("/e/{topic}", "app:80", "text/x-default", 1_000_000, shape=shape)
    head, body = encoder.encode(record, 2)
    app = h11.Connection(h11.SERVER, max_incomplete_event_size=2_000_000)
    app.receive_data(head + body)
    request = app.next_event()
    assert isinstance(request, h11.Request)
    assert (request.method, request.target) == (b"POST", b"/e/orders")
    assert [v for n, v in request.headers if n == b"host"] == [b"app:80"]
    received = b""
    while isinstance(event := app.next_event(), h11.Data):
        received += event.data
    assert isinstance(event, h11.EndOfMessage)
    assert app.trailing_data == (b"", False)
    return Request([(name.decode(), value) for name, value in request.headers], received)


def all_headers(request: Request) -> list[Header]:
    (whole,) = request.values("kafka-headers")
    return [
        (name, None if text is None else base64.b64decode(text))
        for name, text in json.loads(base64.b64decode(whole[1:-1]))
    ]


# --- events in binary mode ----------------------------------------------------------------------


def test_an_event_in_binary_mode_stays_one() -> None:
    headers = [
        *EVENT,
        ("ce_subject", 'Grüße "50 %" €'.encode()),
        ("ce_partitionkey", b"k"),
        ("content-type", b"application/avro"),
        ("trace", b"1"),
    ]
    request = sent(record(b"\x00\xff", headers, key=b"k"), shape())
    assert request.attributes == {
        "specversion": "1.0",
        "id": "A-1",
        "source": "/orders",
        "type": "order.placed",
        "subject": 'Grüße "50 %" €',
        "partitionkey": "k",
    }
    assert request.values("ce-subject") == [b"Gr%C3%BC%C3%9Fe%20%2250%20%25%22%20%E2%82%AC"]
    assert request.values("content-type") == [b"application/avro"]
    assert request.body == b"\x00\xff"
    assert request.values("kafka-header-trace") == [b"1"]
    assert not request.values("kafka-headers"), "what is an attribute needs no second way"
    assert request.values("idempotency-key") == [b'"orders/3/42/1700000000123"']


def test_an_event_without_content_type_gets_none() -> None:
    """A Content-Type would be read as an attribute that the event does not have."""
    assert not sent(record(headers=EVENT), shape()).values("content-type")


def test_an_event_without_data_is_a_tombstone() -> None:
    request = sent(record(None, EVENT), shape())
    assert request.body == b""
    assert request.values("kafka-tombstone") == [b"true"]
    assert request.attributes["id"] == "A-1"


@pytest.mark.parametrize(
    "hostile",
    [
        pytest.param(("ce_subject", b"\xc3\x28"), id="not UTF-8"),
        pytest.param(("ce_subject", b"a\r\nce-admin: 1"), id="line break"),
        pytest.param(("ce_subject", b"\x00"), id="zero"),
        pytest.param(("ce_subject", "\x85".encode()), id="control character of Latin-1"),
        pytest.param(("ce_subject", "\ufdd0".encode()), id="no character"),
        pytest.param(("ce_subject", b"\xed\xa0\x80"), id="surrogate"),
        pytest.param(("ce_subject", b""), id="empty"),
        pytest.param(("ce_subject", None), id="null"),
        pytest.param(("ce_", b"1"), id="no name"),
        pytest.param(("ce_x-y", b"1"), id="hyphen"),
        pytest.param(("ce_X", b"1"), id="capital"),
        pytest.param(("ce_a\r\nb", b"1"), id="line break in the name"),
        pytest.param(("ce_ünï", b"1"), id="not ASCII"),
        pytest.param(("ce_" + "n" * 10_000, b"1"), id="endless name"),
        pytest.param(("ce_data", b"1"), id="reserved"),
        pytest.param(("ce_datacontenttype", b"text/plain"), id="has a header of its own"),
    ],
)
def test_what_is_no_attribute_does_not_become_one_and_is_not_lost(hostile: Header) -> None:
    headers = [*EVENT, hostile]
    request = sent(record(headers=headers), shape())
    assert request.attributes == {
        "specversion": "1.0",
        "id": "A-1",
        "source": "/orders",
        "type": "order.placed",
    }
    assert all_headers(request) == headers


def test_of_repeated_attributes_the_last_counts_and_none_is_lost() -> None:
    headers = [("ce_id", b"first"), *EVENT]
    request = sent(record(headers=headers), shape())
    assert request.attributes["id"] == "A-1"
    assert all_headers(request) == headers


@pytest.mark.parametrize("missing", range(4))
def test_without_a_required_attribute_it_is_no_event(missing: int) -> None:
    headers = [*EVENT[:missing], *EVENT[missing + 1 :]]
    request = sent(record(headers=headers), shape())
    assert request.attributes["source"] == "/kafka/orders"
    assert all_headers(request) == headers


def test_a_version_that_is_none_makes_no_event() -> None:
    request = sent(record(headers=[("ce_specversion", b"latest"), *EVENT[1:]]), shape())
    assert request.attributes["specversion"] == "1.0"
    assert request.attributes["type"] == "kafka.record"


# --- events in structured mode ------------------------------------------------------------------


@pytest.mark.parametrize("value", [b'{"specversion":"1.0","id":"1"}', b"whatever it is"])
def test_an_event_in_structured_mode_goes_out_byte_for_byte(value: bytes) -> None:
    """Without data as well: that is no tombstone."""
    request = sent(record(value, [STRUCTURED]), shape())
    assert request.body == value
    assert request.values("content-type") == [STRUCTURED[1]]
    assert not request.attributes
    assert not request.values("kafka-tombstone")


@pytest.mark.parametrize(
    ("value", "content_type"),
    [
        (None, b"application/cloudevents+json"),
        (b"", b"application/cloudevents+json"),
        (b"[]", b"application/cloudevents-batch+json"),
        (b"{}", b"application/cloudeventsx"),
    ],
)
def test_what_only_claims_to_be_an_event_is_wrapped(
    value: bytes | None, content_type: bytes
) -> None:
    """In an envelope: in binary mode the application would believe the content type."""
    request = sent(record(value, [*EVENT, ("content-type", content_type)]), shape())
    assert request.json["type"] == "kafka.record"
    assert request.json["datacontenttype"] == content_type.decode()
    assert ("data_base64" in request.json or "data" in request.json) is (value is not None)
    assert bool(request.values("kafka-tombstone")) is (value is None)


def test_the_routes_content_type_can_make_every_value_an_event() -> None:
    structured = shape(content_type="application/cloudevents+json")
    request = sent(record(b"{}"), structured)
    assert request.values("content-type") == [b"application/cloudevents+json"]
    assert (request.body, request.attributes) == (b"{}", {})
    assert sent(record(b"v", EVENT), structured).attributes["id"] == "A-1"


# --- other records ------------------------------------------------------------------------------


def test_another_record_is_wrapped_in_binary_mode() -> None:
    wrapping = shape(source="urn:x:{topic}", type="a b", extensions={"tenant": "Zürich"})
    request = sent(record(b"v", [("content-type", b"text/csv")], key=b"customer 1"), wrapping)
    assert request.attributes == {
        "specversion": "1.0",
        "id": "orders/3/42/1700000000123",
        "source": "urn:x:orders",
        "type": "a b",
        "time": "2023-11-14T22:13:20.123Z",
        "partitionkey": "customer 1",
        "tenant": "Zürich",
    }
    assert request.values("content-type") == [b"text/csv"]
    assert request.body == b"v"


@pytest.mark.parametrize("key", [None, b"", b"\x00", b"\xff"])
def test_a_key_that_is_no_text_is_no_partition_key(key: bytes | None) -> None:
    assert "partitionkey" not in sent(record(key=key), shape()).attributes


@pytest.mark.parametrize("timestamp_ms", [-1, 10**15, 2**62])
def test_a_time_that_nobody_can_write_is_left_out(timestamp_ms: int) -> None:
    assert "time" not in sent(record(timestamp_ms=timestamp_ms), shape()).attributes


@pytest.mark.parametrize(
    ("content_type", "value", "data"),
    [
        (b"application/json", b'{"n": 1e400, "big": 123456789012345678901234567890}', None),
        (b"application/vnd.x+json; v=1", b'[1, "\\ud800"]', None),
        (b"application/json", b" null ", None),
        (b"text/plain", "Grüße\n".encode(), "Grüße\n"),
        (b'text/plain; charset="utf-8"', b"x", "x"),
        (b"text/plain; charset=latin-1", b"x", b"x"),
        (b"text/plain", b"\xff", b"\xff"),
        (b"application/json", b"{", b"{"),
        (b"application/json", b"NaN", b"NaN"),
        (b"application/json", b"\xef\xbb\xbf{}", b"\xef\xbb\xbf{}"),
        (b"application/json", b'"\xff"', b'"\xff"'),
        (b"application/json", b"[" * 100_000, b"[" * 100_000),
        (b"application/json", b"1" * 10_000, None),
        (b"application/avro", b"{}", b"{}"),
        (b"application/avro", b"", b""),
    ],
)
def test_data_in_an_envelope_are_json_text_or_base64(
    content_type: bytes, value: bytes, data: str | bytes | None
) -> None:
    """None: embedded as it is, byte for byte."""
    request = sent(record(value, [("content-type", content_type)]), shape(structured=True))
    assert request.values("content-type") == [b"application/cloudevents+json"]
    if data is None:
        assert request.body.endswith(b',"data":' + value + b"}")
    elif isinstance(data, bytes):
        assert base64.b64decode(request.json["data_base64"]) == data
    else:
        assert request.json["data"] == data
    if len(value) < 5_000:
        assert request.json["datacontenttype"] == content_type.decode()
        assert request.json["id"] == "orders/3/42/1700000000123"


def test_a_null_value_makes_an_envelope_without_data() -> None:
    request = sent(record(None), shape(structured=True))
    assert not request.json.keys() & {"data", "data_base64"}
    assert request.values("kafka-tombstone") == [b"true"]
    assert not sent(record(b""), shape(structured=True)).values("kafka-tombstone")


# --- structured to binary (knative) -------------------------------------------------------------


def unpacked(event: dict[str, Any] | bytes) -> Request:
    value = event if isinstance(event, bytes) else json.dumps(event).encode()
    return sent(record(value, [STRUCTURED]), shape(unpack=True))


REQUIRED = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t"}


@pytest.mark.parametrize(
    ("more", "content_type", "body"),
    [
        ({"data": {"a": [1, 2.50]}}, b"application/json", b'{"a": [1, 2.5]}'),
        ({"data": "x"}, b"application/json", b'"x"'),
        ({"data": "é", "datacontenttype": "text/plain"}, b"text/plain", "é".encode()),
        ({"data_base64": "AP8=", "datacontenttype": "a/b"}, b"a/b", b"\x00\xff"),
        ({}, None, b""),
        ({"data": None}, None, b""),
    ],
)
def test_a_json_event_can_be_unpacked(
    more: dict[str, Any], content_type: bytes | None, body: bytes
) -> None:
    request = unpacked({**REQUIRED, **more, "flag": True, "count": 5, "none": None})
    assert request.attributes == {**REQUIRED, "flag": "true", "count": "5"}
    assert request.values("content-type") == ([] if content_type is None else [content_type])
    assert request.body == body


def test_data_are_unpacked_as_they_were_written() -> None:
    raw = b'{"n" : 1.10, "big":12345678901234567890.12345}'
    head = json.dumps(REQUIRED)[:-1].encode()
    request = unpacked(head + b' , "data" :\t' + raw + b' , "extra" : "}" }')
    assert request.body == raw
    assert request.attributes["extra"] == "}"


@pytest.mark.parametrize(
    "value",
    [
        b"{",
        b"[]",
        b"\xff",
        b"[" * 100_000,
        json.dumps({**REQUIRED, "id": None}).encode(),
        json.dumps({**REQUIRED, "x-y": "1"}).encode(),
        json.dumps({**REQUIRED, "x": {}}).encode(),
        json.dumps({**REQUIRED, "x": "a\r\nb"}).encode(),
        json.dumps({**REQUIRED, "x": "\ud800"}).encode(),
        json.dumps({**REQUIRED, "data_base64": "?"}).encode(),
        json.dumps({**REQUIRED, "data_base64": 5}).encode(),
        json.dumps({**REQUIRED, "datacontenttype": "a/b\r\nX: 1"}).encode(),
        json.dumps({**REQUIRED, "datacontenttype": 5}).encode(),
    ],
)
def test_what_cannot_be_unpacked_goes_out_as_it_is(value: bytes) -> None:
    request = unpacked(value)
    assert request.body == value
    assert request.values("content-type") == [STRUCTURED[1]]


# --- any record ---------------------------------------------------------------------------------

NAMES = st.one_of(
    st.sampled_from([name for name, _ in EVENT]),
    st.sampled_from(["ce_subject", "ce_x", "ce_X-Y", "ce_", "ce-id", "content-type", "Host", "a"]),
    st.text(max_size=6).map("ce_".__add__),
    st.text(max_size=6),
)
VALUES = st.one_of(
    st.none(),
    st.binary(max_size=12),
    st.text(max_size=8).map(str.encode),
    st.sampled_from([b"1.0", b"a\r\nX-Injected: 1", STRUCTURED[1], b"application/json", b"%41"]),
)


def expected(headers: list[Header]) -> dict[str, str] | None:
    """The attributes of an event in binary mode, by the letter of the specification."""
    found: dict[str, str] = {}
    for name, value in headers:
        if not re.fullmatch(r"ce_[a-z0-9]{1,100}", name) or not value:
            continue
        if name in ("ce_data", "ce_datacontenttype"):
            continue
        try:
            text = value.decode()
        except UnicodeDecodeError:
            continue
        numbers = [ord(char) for char in text]
        if not any(
            n < 0x20 or 0x7F <= n < 0xA0 or 0xFDD0 <= n < 0xFDF0 or n & 0xFFFE == 0xFFFE
            for n in numbers
        ):
            found[name[3:]] = text
    whole = {"specversion", "id", "source", "type"} <= found.keys()
    return found if whole and re.fullmatch("[0-9]+[.][0-9]+", found["specversion"]) else None


@settings(max_examples=400, deadline=None)
@given(
    base=st.sampled_from([[], EVENT]),
    headers=st.lists(st.tuples(NAMES, VALUES), max_size=5),
    value=st.none() | st.binary(max_size=30),
    key=st.none() | st.binary(max_size=6),
    structured=st.booleans(),
    unpack=st.booleans(),
)
@example(base=EVENT, headers=[("ce_id", "٣%".encode())], value=b"", key=None, structured=False,
         unpack=False)  # fmt: skip
def test_any_record_is_one_request_whose_event_says_what_the_record_says(
    base: list[Header],
    headers: list[Header],
    value: bytes | None,
    key: bytes | None,
    structured: bool,
    unpack: bool,
) -> None:
    headers = [*base, *headers]
    request = sent(record(value, headers, key), shape(structured, unpack))
    assert not request.values("x-injected")
    if request.values("kafka-headers"):
        assert all_headers(request) == headers
    types = request.values("content-type")
    claims = bool(types) and types[0].startswith(b"application/cloudevents")
    if claims and request.body == value:
        assert types == [STRUCTURED[1]]
        assert not request.attributes
    elif claims:
        assert request.json["id"] == "orders/3/42/1700000000123"
        assert ("data_base64" in request.json or "data" in request.json) is (value is not None)
        assert not request.attributes
    elif (event := expected(headers)) is not None:
        assert request.attributes == event
        assert request.body == (value or b"")
    else:
        assert not structured
        assert request.attributes["id"] == "orders/3/42/1700000000123"
        assert request.body == (value or b"")
    assert bool(request.values("kafka-tombstone")) is (value is None)


def test_attributes_count_for_the_size_of_the_head() -> None:
    encoder = RequestEncoder("/", "app:80", "text/plain", 16_384, shape=shape())
    with pytest.raises(Unsendable):
        encoder.encode(record(headers=[*EVENT, ("ce_subject", b"x" * 20_000)]), 1)


def test_what_producers_name_their_headers_fills_no_memory() -> None:
    """Names are remembered, for most records have the same; but no long ones, and not for ever."""
    wrapping = shape()
    for number in range(1100):
        names = (f"ce_{number}", f"ce_{number}" + "x" * 1000)
        wrapping(record(headers=[(name, b"x") for name in names]), 1)
    assert len(wrapping._prefixes) <= 1024
    assert max(map(len, wrapping._prefixes)) <= 64
