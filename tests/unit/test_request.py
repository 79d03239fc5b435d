"""One record is one well-formed request, whatever bytes it holds, and can be rebuilt."""

from __future__ import annotations

import base64
import json
import re

import h11
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar.delivery.batches import RecordsBatch
from sidecar.delivery.request import RequestEncoder, Unsendable, split_head
from sidecar.model import Assignment, Header, Partition, Record, ReturnedRecord, TracedRecord

TRACE = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def encoder(path: str = "/events/{topic}", **options: object) -> RequestEncoder:
    settings_: dict[str, object] = {"max_header_bytes": 1_000_000, **options}
    return RequestEncoder(path, "127.0.0.1:8080", "application/octet-stream", **settings_)  # type: ignore[arg-type]


def head_of(encoder: RequestEncoder, record: Record, attempt: int = 1) -> bytes:
    head, body = encoder.encode(record, attempt)
    assert body == (record.value or b"")
    return head


def record(
    value: bytes | None = b"value",
    key: bytes | None = None,
    headers: list[Header] | None = None,
    topic: str = "orders",
    timestamp_ms: int = 1_700_000_000_000,
) -> Record:
    assignment = Assignment(Partition(topic, 3), epoch=1)
    return Record(assignment, 42, timestamp_ms, key, value, headers, size=0)


def lines(head: bytes) -> list[tuple[str, bytes]]:
    return [(name.decode(), value) for name, value in split_head(head)]


def values(head: bytes, name: str) -> list[bytes]:
    return [value for each, value in lines(head) if each.lower() == name.lower()]


# --- what the documentation shows: a decoder of a few lines ------------------------------------


def decode(value: bytes) -> bytes:
    return base64.b64decode(value[1:-1]) if value.startswith(b":") else value


def decode_record(head: list[tuple[bytes, bytes]], body: bytes) -> tuple[object, object, object]:
    key = next((decode(value) for name, value in head if name == b"kafka-key"), None)
    tombstone = (b"kafka-tombstone", b"true") in head
    prefix = b"kafka-header-"
    headers: list[tuple[str, bytes | None]] = [
        (name[len(prefix) :].decode(), decode(value))
        for name, value in head
        if name.startswith(prefix)
    ]
    for name, value in head:
        if name == b"kafka-headers":
            headers = [
                (each, None if text is None else base64.b64decode(text))
                for each, text in json.loads(decode(value))
            ]
    return key, None if tombstone else body, headers


# --- properties -------------------------------------------------------------------------------

NAMES = st.one_of(
    st.text(max_size=8),
    st.text("abcXYZ019-", min_size=1, max_size=8),
    st.sampled_from(
        [
            "content-type",
            "Content-Length",
            "Host",
            "Transfer-Encoding",
            "Connection",
            "traceparent",
            "tracestate",
            "baggage",
            "s",
            "urn:x:claims/name",
            "with space",
            "x\r\nInjected: 1",
        ]
    ),
)
BYTES = st.one_of(
    st.binary(max_size=40),
    st.text("abc :;,\"' ", max_size=12).map(str.encode),
    st.sampled_from([b"a\r\nX-Injected: 1", b"\x00", b" lead", b"trail ", b":x:", b"\xc3\x28"]),
)
HEADERS = st.lists(st.tuples(NAMES, st.none() | BYTES), max_size=6)
OWN = {
    "host",
    "content-type",
    "content-length",
    "idempotency-key",
    "sidecar-attempt",
    "traceparent",
    "tracestate",
    "baggage",
}


@settings(max_examples=400, deadline=None)
@given(
    key=st.none() | BYTES,
    value=st.none() | st.binary(max_size=200),
    headers=HEADERS,
    always=st.booleans(),
)
def test_any_record_is_one_valid_request_and_can_be_rebuilt(
    key: bytes | None, value: bytes | None, headers: list[Header], always: bool
) -> None:
    """ENC-3, ENC-4, ENC-5, ENC-6."""
    head = head_of(encoder(headers_always=always), record(value, key, headers))
    app = h11.Connection(h11.SERVER, max_incomplete_event_size=1_000_000)
    app.receive_data(head + (value or b""))
    request = app.next_event()
    assert isinstance(request, h11.Request)
    body = b""
    while isinstance(event := app.next_event(), h11.Data):
        body += event.data
    assert isinstance(event, h11.EndOfMessage)
    assert app.trailing_data == (b"", False)

    got_key, got_value, got_headers = decode_record(list(request.headers), body)
    assert (got_key, got_value) == (key, value)
    if any(name == b"kafka-headers" for name, _ in request.headers):
        assert got_headers == headers
    else:
        expected = [(name.lower(), content) for name, content in headers]
        assert got_headers == expected
    names = [name.decode() for name, _ in request.headers]
    assert not [name for name in names if not name.startswith("kafka-") and name not in OWN]
    assert [name for name in names if name in OWN] == list(
        dict.fromkeys(name for name in names if name in OWN)
    ), "each own header once"
    assert request.target == b"/events/orders"
    assert dict(request.headers)[b"host"] == b"127.0.0.1:8080"


@given(topic=st.text(min_size=1, max_size=20))
def test_no_topic_leaves_its_place_in_the_path(topic: str) -> None:
    head = head_of(encoder("/a/{topic}/b?t={topic}"), record(topic=topic))
    start, _, rest = head.partition(b"\r\n")
    assert re.fullmatch(rb"POST /a/[A-Za-z0-9_.~%-]+/b\?t=[A-Za-z0-9_.~%-]+ HTTP/1\.1", start)
    assert rest.startswith(b"Host: ")
    assert decode(values(head, "Kafka-Topic")[0]) == topic.encode()


# --- examples ---------------------------------------------------------------------------------


def test_the_head_of_a_plain_record() -> None:
    assert head_of(encoder(), record(b"v" * 7, b"k1"), 2) == (
        b"POST /events/orders HTTP/1.1\r\n"
        b"Host: 127.0.0.1:8080\r\n"
        b"Kafka-Topic: orders\r\n"
        b"Kafka-Partition: 3\r\n"
        b"Kafka-Offset: 42\r\n"
        b'Idempotency-Key: "orders/3/42/1700000000000"\r\n'
        b"Sidecar-Attempt: 2\r\n"
        b"Content-Length: 7\r\n"
        b"Kafka-Timestamp: 1700000000000\r\n"
        b"Content-Type: application/octet-stream\r\n"
        b"Kafka-Key: k1\r\n"
        b"\r\n"
    )


@pytest.mark.parametrize("key", [None, b""])
@pytest.mark.parametrize("value", [None, b""])
def test_null_is_not_empty(key: bytes | None, value: bytes | None) -> None:
    """ENC-2."""
    head = head_of(encoder(), record(value, key))
    assert values(head, "Kafka-Key") == ([] if key is None else [b""])
    assert values(head, "Kafka-Tombstone") == ([b"true"] if value is None else [])
    assert values(head, "Content-Length") == [b"0"]


def test_a_tombstone_keeps_its_trace() -> None:
    """ENC-1."""
    head = head_of(encoder(), record(None, b"k1", [("traceparent", TRACE)]))
    assert values(head, "traceparent") == values(head, "Kafka-Header-traceparent") == [TRACE]


@pytest.mark.parametrize(
    ("key", "carried"),
    [
        (b"customer 1", b"customer 1"),
        (b":colon", b":OmNvbG9u:"),
        (b" lead", b":IGxlYWQ=:"),
        (b"\x00\x00\x01\x86\xa0H5", b":AAABhqBINQ==:"),
        (b"\x83\xff", b":g/8=:"),
        (b"tab\there", b":dGFiCWhlcmU=:"),
        ("Кириллица".encode(), b":0JrQuNGA0LjQu9C70LjRhtCw:"),
    ],
)
def test_what_is_not_plain_is_a_byte_sequence(key: bytes, carried: bytes) -> None:
    """ENC-3, ENC-4, ENC-6."""
    assert values(head_of(encoder(), record(key=key)), "Kafka-Key") == [carried]


@pytest.mark.parametrize(
    ("own", "sent"),
    [
        (b"application/json", b"application/json"),
        (b'text/plain; charset="utf-8"', b'text/plain; charset="utf-8"'),
        (b"application/cloudevents+json", b"application/cloudevents+json"),
        (b"json", b"application/octet-stream"),
        (b"", b"application/octet-stream"),
        (b"text/plain\r\nX: 1", b"application/octet-stream"),
        (b"text/plain ", b"application/octet-stream"),
        (None, b"application/octet-stream"),
    ],
)
@pytest.mark.parametrize("name", ["content-type", "Content-Type"])
def test_the_content_type_is_the_records_own_if_it_is_legal(
    name: str, own: bytes | None, sent: bytes
) -> None:
    assert values(head_of(encoder(), record(headers=[(name, own)])), "Content-Type") == [sent]


def test_repeated_headers_keep_their_order() -> None:
    head = head_of(encoder(), record(headers=[("a", b"1"), ("b", b"2"), ("a", b"3")]))
    assert values(head, "Kafka-Header-a") == [b"1", b"3"]
    assert not values(head, "Kafka-Headers")


@pytest.mark.parametrize("odd", [("urn:x/y", b"1"), ("", b"1"), ("Ünï", b"1"), ("null", None)])
def test_a_list_that_lines_cannot_carry_is_sent_whole(odd: Header) -> None:
    """ENC-5."""
    headers: list[Header] = [("a", b"1"), odd]
    head = head_of(encoder(), record(headers=headers))
    assert values(head, "Kafka-Header-a") == [b"1"]
    assert decode_record([(name.lower(), value) for name, value in split_head(head)], b"")[2] == (
        headers
    )


def test_no_timestamp_is_no_header() -> None:
    head = head_of(encoder(), record(timestamp_ms=-1))
    assert not values(head, "Kafka-Timestamp")
    assert values(head, "Idempotency-Key") == [b'"orders/3/42/-1"']


def test_only_legal_trace_headers_go_under_their_own_names() -> None:
    headers: list[Header] = [("traceparent", b"bad\r\n"), ("tracestate", None), ("baggage", b"a=1")]
    head = head_of(encoder(), record(headers=headers))
    assert not values(head, "traceparent")
    assert not values(head, "tracestate")
    assert values(head, "baggage") == [b"a=1"]


def test_fixed_lines_are_sent_with_every_request_and_can_change() -> None:
    encoder_ = encoder(fixed_lines=b"Authorization: Bearer 50%d\r\n")
    assert values(head_of(encoder_, record()), "authorization") == [b"Bearer 50%d"]
    assert not encoder_.set_fixed_lines(b"Authorization: Bearer 50%d\r\n")
    assert encoder_.set_fixed_lines(b"X: 1\r\n")
    head = head_of(encoder_, record())
    assert values(head, "x") == [b"1"]
    assert not values(head, "authorization")


def test_a_head_above_the_limit_is_unsendable() -> None:
    exact = len(head_of(encoder(), record(key=b"k")))
    assert len(head_of(encoder(max_header_bytes=exact), record(key=b"k"))) == exact
    with pytest.raises(Unsendable, match=f"has {exact + 1} bytes, max_header_bytes is {exact}"):
        head_of(encoder(max_header_bytes=exact), record(key=b"kk"))


def test_many_topics_and_names_are_not_kept_for_ever() -> None:
    many = encoder()
    for number in range(3_000):
        many.encode(record(topic=f"t{number}", headers=[(f"n{number}", b"")]), 1)
    assert len(many._starts) <= 1_024
    assert len(many._names) <= 1_024


def test_a_record_that_came_back_is_sent_as_its_original() -> None:
    """By itself and in a batch; the requests before are counted."""
    orders = Assignment(Partition("orders", 3), 0)
    original = Record(orders, 42, 7, b"k", b"v", [("a", b"1")], 3)
    lies: list[Header] = [("a", b"1"), ("sidecar-retry", b"{}")]
    returned = ReturnedRecord(Assignment(Partition("later", 0), 1), 9, 99, b"k", b"v", lies, 20)
    returned.original, returned.attempts = original, 4
    returned.first_attempt_ms, returned.tier = 1, 1
    made = RequestEncoder("/{topic}", "a", "t/t", 16_384, batch_shape=RecordsBatch())
    assert made.encode(returned, 1) == made.encode(original, 5)
    assert made.encode_batch([(returned, 2), (original, 1)]) == made.encode_batch(
        [(original, 6), (original, 1)]
    )


# --- traces ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("traceparent", "carried"),
    [
        (TRACE, True),
        (TRACE.replace(b"00-", b"cc-", 1) + b"-what-comes", True),
        (TRACE.upper(), False),
        (TRACE + b"-more", False),
        (TRACE.replace(b"00-", b"ff-", 1), False),
        (b"00-" + b"0" * 32 + b"-00f067aa0ba902b7-01", False),
        (b"00-4bf92f3577b34da6a3ce929d0e0e4736-" + b"0" * 16 + b"-01", False),
        (b"4bf92f3577b34da6", False),
        (b"", False),
    ],
)
def test_only_a_legal_context_goes_under_its_own_names(traceparent: bytes, carried: bool) -> None:
    """The state of none says nothing, so it goes with it; what the record has goes in any case."""
    headers: list[Header] = [("traceparent", traceparent), ("tracestate", b"a=1")]
    head = head_of(encoder(), record(headers=headers))
    assert bool(values(head, "traceparent")) is carried
    assert bool(values(head, "tracestate")) is carried
    assert values(head, "Kafka-Header-traceparent") == [traceparent]
    assert values(head, "Kafka-Header-tracestate") == [b"a=1"]


OURS = {"traceparent": f"00-{'1' * 32}-{'2' * 16}-01"}


@pytest.mark.parametrize("headers", [None, [("tracestate", b"a=1"), ("traceparent", TRACE)]])
def test_a_trace_of_ours_stands_in_place_of_the_records_own(headers: list[Header] | None) -> None:
    plain = record(headers=headers)
    head = head_of(encoder(), TracedRecord(plain, OURS), 3)
    assert values(head, "traceparent") == [OURS["traceparent"].encode()]
    assert not values(head, "tracestate")
    assert values(head, "Sidecar-Attempt") == [b"3"]
    if headers:
        assert values(head, "Kafka-Header-traceparent") == [TRACE]
        assert values(head, "Kafka-Header-tracestate") == [b"a=1"]


def test_a_trace_that_does_not_fit_rejects_no_record() -> None:
    head = head_of(encoder(), record())
    exactly = encoder(max_header_bytes=len(head))
    assert head_of(exactly, TracedRecord(record(), OURS)) == head
