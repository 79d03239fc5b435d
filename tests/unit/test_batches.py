"""The bodies of batches: what an application can rebuild of them."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.core.presets import BATCH_ATTRIBUTES
from sidecar.delivery.batches import CloudEventsBatch, LambdaBatch, RecordsBatch
from sidecar.delivery.cloudevents import Wrapping
from sidecar.delivery.request import RequestEncoder, Unsendable, identity_of_batch
from sidecar.delivery.signature import Signer
from sidecar.model import UNREADABLE_HEADERS, Assignment, Header, Partition, Record

ASSIGNMENT = Assignment(Partition("orders", 3), 1)
WRAPPING = Wrapping("/kafka/{topic}", "kafka.record", structured=False, content_type="text/plain")
EVENT: list[Header] = [
    ("ce_specversion", b"1.0"),
    ("ce_id", b"7"),
    ("ce_source", b"/shop"),
    ("ce_type", b"order"),
    ("ce_tenant", "blå".encode()),
]


def a_record(
    value: bytes | None = b"v",
    key: bytes | None = None,
    headers: list[Header] | None = None,
    offset: int = 42,
    timestamp: int = 1_700_000_000_000,
) -> Record:
    return Record(ASSIGNMENT, offset, timestamp, key, value, headers, 0)


def records_of(*records: Record) -> list[dict[str, Any]]:
    content_type, body = RecordsBatch()([(record, 1) for record in records])
    assert content_type == b"application/json"
    elements: list[dict[str, Any]] = json.loads(body)
    return elements


def events_of(*records: Record) -> list[dict[str, Any]]:
    content_type, body = CloudEventsBatch(WRAPPING)([(record, 1) for record in records])
    assert content_type == b"application/cloudevents-batch+json"
    events: list[dict[str, Any]] = json.loads(body)
    return events


def rebuilt(element: dict[str, Any], name: str) -> bytes | None:
    """The few lines that an application needs."""
    if name + "_base64" in element:
        return b64decode(element[name + "_base64"])
    return None if element[name] is None else element[name].encode()


some_bytes = st.none() | st.binary() | st.text().map(str.encode)
some_headers = st.none() | st.lists(st.tuples(st.text(), some_bytes), min_size=1)


@given(some_bytes, some_bytes, some_headers)
def test_every_byte_of_a_record_is_rebuilt(
    key: bytes | None, value: bytes | None, headers: list[Header] | None
) -> None:
    (element,) = records_of(a_record(value, key, headers))
    assert (rebuilt(element, "key"), rebuilt(element, "value")) == (key, value)
    told = [(each["name"], rebuilt(each, "value")) for each in element.get("headers", ())]
    assert told == (headers or [])


def test_an_element_says_where_its_record_is_from_and_how_often_it_was_tried() -> None:
    _, body = RecordsBatch()([(a_record(b"1"), 1), (a_record(b"2", offset=43, timestamp=-1), 3)])
    assert json.loads(body) == [
        {
            "topic": "orders",
            "partition": 3,
            "offset": 42,
            "timestamp": 1_700_000_000_000,
            "key": None,
            "value": "1",
            "idempotency_key": "orders/3/42/1700000000000",
            "attempt": 1,
        },
        {
            "topic": "orders",
            "partition": 3,
            "offset": 43,
            "key": None,
            "value": "2",
            "idempotency_key": "orders/3/43/-1",
            "attempt": 3,
        },
    ]


def test_an_event_in_binary_mode_becomes_one_in_json() -> None:
    headers = [*EVENT, ("content-type", b"application/json"), ("trace", b"\xff")]
    (event,) = events_of(a_record(b'{"n": 1.50}', b"k", headers))
    own = {"specversion": "1.0", "id": "7", "source": "/shop", "type": "order", "tenant": "blå"}
    assert event.items() >= own.items()
    assert event["data"] == {"n": 1.5}
    assert event["datacontenttype"] == "application/json"
    assert (event["kafkaoffset"], event["kafkakey"]) == ("42", "k")
    assert json.loads(event["kafkaheaders"])[-1] == ["trace", "/w=="]


def test_an_event_in_structured_mode_stays_as_it_is() -> None:
    text = b'{"specversion":"1.0","id":"7","source":"/s","type":"t","data":{"n":1.50}} '
    headers: list[Header] = [("content-type", b"application/cloudevents+json")]
    _, body = CloudEventsBatch(WRAPPING)([(a_record(text, headers=headers), 1)])
    assert body.startswith(b"[" + text.strip()[:-1])
    assert json.loads(body)[0]["kafkatopic"] == "orders"


def test_an_event_that_comes_back_as_it_was_sent_is_told_as_the_record_that_it_is_now() -> None:
    """An application may publish what it was given, and another know records by their keys."""
    headers: list[Header] = [("content-type", b"application/cloudevents+json")]
    text = b'{"specversion":"1.0","id":"7","source":"/s","type":"t","data":{"n":1.50}}'
    batch = CloudEventsBatch(WRAPPING)
    _, sent = batch([(a_record(text, b"k", headers), 1)])
    _, again = batch([(a_record(sent[1:-1] + b"\n", None, headers, offset=43), 2)])
    assert again.count(b'"kafkaoffset"') == 1
    assert b'"data":{"n":1.50}' in again
    (event,) = json.loads(again)
    assert event["idempotencykey"] == "orders/3/43/1700000000000"
    assert (event["kafkaoffset"], event["sidecarattempt"]) == ("43", "2")
    assert "kafkakey" not in event


def test_an_event_of_ours_alone_is_one_of_its_own_attributes_again() -> None:
    text = b'{"specversion":"1.0","id":"7","source":"/s","type":"t","kafkatombstone":"true"}'
    headers: list[Header] = [("content-type", b"application/cloudevents+json")]
    (event,) = events_of(a_record(text, headers=headers))
    assert (event["id"], event["kafkatopic"]) == ("7", "orders")
    assert "kafkatombstone" not in event


def test_attributes_of_ours_replace_those_of_an_event_in_binary_mode() -> None:
    """What the record had there is found with its headers."""
    mine: list[Header] = [("ce_idempotencykey", b"mine"), ("ce_kafkatombstone", b"true")]
    (event,) = events_of(a_record(headers=[*EVENT, *mine]))
    assert event["idempotencykey"] == "orders/3/42/1700000000000"
    assert event["kafkaoffset"] == "42"
    assert "kafkatombstone" not in event
    assert ["ce_idempotencykey", b64encode(b"mine").decode()] in json.loads(event["kafkaheaders"])


def test_every_attribute_of_ours_is_known_as_one() -> None:
    """So that no event and no operator can bring one of the name."""
    (some,) = events_of(a_record(b"", b"k", [("a", b"1")]))
    (other,) = events_of(a_record(None))
    told = {name for name in (some | other) if name.startswith(("kafka", "sidecar", "idem"))}
    assert told == BATCH_ATTRIBUTES


def test_an_event_in_binary_mode_is_one_whatever_the_route_takes_values_for() -> None:
    wrapping = replace(WRAPPING, content_type="application/cloudevents+json")
    _, body = CloudEventsBatch(wrapping)([(a_record(b"hello", headers=EVENT), 1)])
    (event,) = json.loads(body)
    assert (event["id"], event["data_base64"]) == ("7", "aGVsbG8=")
    assert "datacontenttype" not in event


@pytest.mark.parametrize("value", [b"{}", b"[]", b"nonsense", b"\xff", b"", None])
def test_what_only_claims_to_be_an_event_is_wrapped(value: bytes | None) -> None:
    headers: list[Header] = [("content-type", b"application/cloudevents+json")]
    (event,) = events_of(a_record(value, headers=headers))
    assert event["id"] == "orders/3/42/1700000000000"
    assert (event.get("kafkatombstone") == "true") is (value is None)


@given(some_bytes, some_bytes, some_headers)
def test_an_event_holds_every_byte_of_its_record(
    key: bytes | None, value: bytes | None, headers: list[Header] | None
) -> None:
    (event,) = events_of(a_record(value, key, headers))
    data = event.get("data")
    held = b64decode(event["data_base64"]) if "data_base64" in event else data and data.encode()
    if event["datacontenttype"] == "text/plain":
        assert (held or b"") == (value or b"")
    if key is None:
        assert "kafkakey" not in event
    else:
        told = event["kafkakey"]
        assert (b64decode(told[1:-1]) if told.startswith(":") else told.encode()) == key
    told_headers = json.loads(event.get("kafkaheaders", "[]"))
    assert [(n, None if v is None else b64decode(v)) for n, v in told_headers] == (headers or [])


def test_lambda_groups_records_by_partition() -> None:
    other = Record(Assignment(Partition("orders", 4), 1), 9, 0, None, b"w", None, 0)
    _, body = LambdaBatch("b:9092")([(a_record(), 1), (other, 1), (a_record(offset=43), 1)])
    grouped = json.loads(body)["records"]
    offsets = {name: [each["offset"] for each in told] for name, told in grouped.items()}
    assert offsets == {"orders-3": [42, 43], "orders-4": [9]}


# --- the head -----------------------------------------------------------------------------------


def encoder(**more: Any) -> RequestEncoder:
    return RequestEncoder("/in/{topic}", "app", "a/b", 16_384, batch_shape=RecordsBatch(), **more)


def test_the_head_of_a_batch_tells_its_topic_and_its_size() -> None:
    head, body = encoder().encode_batch([(a_record(), 1), (a_record(offset=43), 2)])
    assert head == (
        b"POST /in/orders HTTP/1.1\r\nHost: app\r\nKafka-Topic: orders\r\n"
        b"Content-Type: application/json\r\nSidecar-Batch: 2\r\nContent-Length: %d\r\n\r\n"
        % len(body)
    )


def test_a_batch_is_signed_under_an_identity_of_its_own() -> None:
    signing = encoder(sign=Signer((b"k",), lambda: 1.0))
    one, two = (a_record(), 1), (a_record(offset=43), 1)
    ids = [
        head.partition(b"webhook-id: ")[2].partition(b"\r\n")[0]
        for head, _ in map(signing.encode_batch, ([one, two], [one, two], [one], [two, one]))
    ]
    assert ids[0] == ids[1]
    assert len(set(ids)) == 3


def test_the_identity_of_a_batch_does_not_confuse_topics_that_look_alike() -> None:
    assert identity_of_batch([a_record()]).startswith("orders/3/42/1700000000000+1+")


def test_a_batch_with_unreadable_headers_is_not_sent() -> None:
    with pytest.raises(Unsendable, match="is not UTF-8"):
        encoder().encode_batch([(a_record(), 1), (a_record(headers=UNREADABLE_HEADERS), 1)])


def test_a_record_with_unreadable_headers_is_not_sent() -> None:
    with pytest.raises(Unsendable, match="is not UTF-8"):
        encoder().encode(a_record(headers=UNREADABLE_HEADERS), 1)
