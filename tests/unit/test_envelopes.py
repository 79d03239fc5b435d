"""Requests for applications written for Dapr, Pub/Sub and Lambda, as those systems make them."""

from __future__ import annotations

import base64
import json
from typing import Any
from urllib.parse import unquote_plus

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.delivery.cloudevents import CloudEventShape
from sidecar.delivery.envelopes import DaprShape, LambdaShape, PubSubShape
from sidecar.delivery.request import RequestEncoder, Shape
from sidecar.delivery.shapes import shape_of
from sidecar.errors import ConfigError
from sidecar.model import Assignment, Header, Partition, Record
from sidecar.settings import RouteSettings, load_settings

TIME = 1_700_000_000_123
IDENTITY = "orders/3/42/1700000000123"


def record(
    value: bytes | None = b"value",
    headers: list[Header] | None = None,
    key: bytes | None = b"k1",
    timestamp_ms: int = TIME,
) -> Record:
    return Record(
        Assignment(Partition("orders", 3), 1), 42, timestamp_ms, key, value, headers, size=0
    )


def route(**given: Any) -> RouteSettings:
    tree = {
        "kafka": {"bootstrap.servers": "b1:9092,b2:9092", "group.id": "g"},
        "routes": [{"topics": ["orders"], "target": "http://app/events", **given}],
    }
    return load_settings(None, {}, tree).routes[0]


def shape(**given: Any) -> Shape:
    found = shape_of(route(**given), "b1:9092,b2:9092")
    assert found is not None
    return found


def sent(record: Record, shape: Shape, attempt: int = 1) -> tuple[list[tuple[str, str]], bytes]:
    """Through an HTTP parser; names in lower case."""
    encoder = RequestEncoder("/events", "app:80", "text/x-default", 1_000_000, shape=shape)
    head, body = encoder.encode(record, attempt)
    app = h11.Connection(h11.SERVER, max_incomplete_event_size=2_000_000)
    app.receive_data(head + body)
    request = app.next_event()
    assert isinstance(request, h11.Request)
    received = b""
    while isinstance(event := app.next_event(), h11.Data):
        received += event.data
    assert isinstance(event, h11.EndOfMessage)
    assert app.trailing_data == (b"", False)
    return [(name.decode(), value.decode()) for name, value in request.headers], received


def values(headers: list[tuple[str, str]], name: str) -> list[str]:
    return [value for each, value in headers if each == name]


# --- Dapr ---------------------------------------------------------------------------------------

DAPR_EVENT = (
    b'{"specversion":"1.0","id":"5","source":"checkout","type":"com.dapr.event.sent",'
    b'"topic":"orders","pubsubname":"pubsub","datacontenttype":"application/json","data":{"n":1}}'
)


def test_daprs_own_envelope_goes_out_as_it_is() -> None:
    headers, body = sent(record(DAPR_EVENT), shape(preset="dapr"))
    assert body == DAPR_EVENT
    assert values(headers, "content-type") == ["application/cloudevents+json"]


@pytest.mark.parametrize("value", [b"\x00\xff", b"{", b"{}", b"[1]", b'{"id":"1"}'])
def test_any_other_value_is_wrapped_as_dapr_wraps_a_raw_payload(value: bytes) -> None:
    headers, body = sent(record(value), shape(preset="dapr"))
    assert values(headers, "content-type") == ["application/cloudevents+json"]
    event = json.loads(body)
    assert base64.b64decode(event.pop("data_base64")) == value
    assert event == {
        "specversion": "1.0",
        "id": IDENTITY,
        "source": "Dapr",
        "type": "com.dapr.event.sent",
        "time": "2023-11-14T22:13:20.123Z",
        "partitionkey": "k1",
        "pubsubname": "orders",
        "topic": "orders",
        "datacontenttype": "application/octet-stream",
    }


def test_json_is_embedded_where_the_record_says_that_it_is_json() -> None:
    json_header: list[Header] = [("content-type", b"application/json")]
    _, body = sent(record(b'{"n":1}', json_header), shape(preset="dapr"))
    assert json.loads(body)["data"] == {"n": 1}


def test_dapr_sends_metadata_and_headers_under_their_own_names() -> None:
    headers, _ = sent(
        record(headers=[("Tenant", b"a"), ("tenant", b"b"), ("x.y", "é +%".encode())]),
        shape(preset="dapr", name="shop"),
    )
    told = {name: value for name, value in headers if not name.startswith("kafka-")}
    assert (
        told.items()
        >= {
            "__key": "k1",
            "__topic": "orders",
            "__partition": "3",
            "__offset": "42",
            "__timestamp": "1700000000123",
            "pubsubname": "shop",
            "tenant": "b",
            "x.y": "%C3%A9+%2B%25",
        }.items()
    )
    assert unquote_plus(told["x.y"]) == "é +%"


def test_daprs_raw_payload_is_the_value() -> None:
    headers, body = sent(record(), shape(preset="dapr", encoding="raw"))
    assert body == b"value"
    assert values(headers, "content-type") == ["text/x-default"]
    assert values(headers, "__key") == ["k1"]


def test_attributes_of_daprs_envelope_can_be_chosen() -> None:
    cloudevents = {"source": "x", "type": "y", "extensions": {"pubsubname": "bus", "tenant": "t"}}
    headers, body = sent(record(), shape(preset="dapr", cloudevents=cloudevents))
    event = json.loads(body)
    assert (event["source"], event["type"], event["tenant"]) == ("x", "y", "t")
    assert event["pubsubname"] == "bus"
    assert values(headers, "pubsubname") == ["bus"]


TRUSTED = [
    "Host",
    "Content-Length",
    "Transfer-Encoding",
    "Connection",
    "TE",
    "Upgrade",
    "Expect",
    "Trailer",
    "Proxy-Authorization",
    "Authorization",
    "Cookie",
    "dapr-api-token",
    "X-Forwarded-For",
    "Idempotency-Key",
    "Sidecar-Attempt",
    "Kafka-Topic",
    "webhook-signature",
    "__topic",
    "pubsubName",
    "Content-Type",
    "Content-Encoding",
    "ce-id",
    "X-Api-Key",
]


@pytest.mark.parametrize("name", [*TRUSTED, *map(str.upper, TRUSTED)])
def test_no_record_takes_a_name_that_is_trusted(name: str) -> None:
    dapr = DaprShape(None, "shop", ["X-Api-Key"])
    plain, _ = sent(record(), dapr)
    headers, _ = sent(record(headers=[(name, b"forged")]), dapr)
    assert values(headers, name.lower()) == values(plain, name.lower())


NAMES = st.one_of(st.sampled_from(TRUSTED), st.text(max_size=8), st.text("ab-_.!", max_size=4))


@given(
    headers=st.lists(st.tuples(NAMES, st.none() | st.binary(max_size=12)), max_size=4),
    value=st.none() | st.binary(max_size=20),
    key=st.none() | st.binary(max_size=6),
    timestamp_ms=st.sampled_from([-1, 0, TIME, 2**62]),
)
def test_any_record_is_one_request_by_every_convention(
    headers: list[Header], value: bytes | None, key: bytes | None, timestamp_ms: int
) -> None:
    given = record(value, headers, key, timestamp_ms)
    for each in SHAPES:
        got, body = sent(given, each)
        assert values(got, "host") == ["app:80"]
        assert values(got, "content-length") == [str(len(body))]
        assert values(got, "idempotency-key") == [f'"orders/3/42/{timestamp_ms}"']
        assert values(got, "kafka-tombstone") == (["true"] if value is None else [])


# --- Pub/Sub ------------------------------------------------------------------------------------


def test_a_push_is_that_of_pubsub() -> None:
    headers, body = sent(
        record(b"\x00\xff", [("a", b"1"), ("b", b"\xff"), ("c", None), ("a", b"2")]),
        shape(preset="pubsub", name="shop"),
    )
    assert values(headers, "content-type") == ["application/json"]
    assert json.loads(body) == {
        "message": {
            "data": "AP8=",
            "attributes": {"a": "2"},
            "messageId": IDENTITY,
            "message_id": IDENTITY,
            "publishTime": "2023-11-14T22:13:20.123Z",
            "publish_time": "2023-11-14T22:13:20.123Z",
            "orderingKey": "k1",
        },
        "subscription": "projects/kafka/subscriptions/shop",
    }
    assert values(headers, "kafka-headers"), "what is no text is not lost"


def test_a_push_tells_the_attempt_only_where_there_are_dead_letters() -> None:
    with_dead_letters = shape(preset="pubsub", dead_letter={"topic": "dead"})
    assert json.loads(sent(record(), with_dead_letters, 3)[1])["deliveryAttempt"] == 3


def test_a_push_tells_null_from_empty() -> None:
    pubsub = PubSubShape("s", tells_attempt=False)
    assert json.loads(sent(record(b""), pubsub)[1])["message"]["data"] == ""
    assert "data" not in json.loads(sent(record(None), pubsub)[1])["message"]


def test_an_unwrapped_push_is_the_value() -> None:
    assert shape_of(route(preset="pubsub", encoding="raw"), "") is None


# --- Lambda -------------------------------------------------------------------------------------


def test_an_event_is_that_of_lambda_with_a_batch_of_one() -> None:
    headers, body = sent(record(b"\x00", [("a", b"1"), ("b", None)]), shape(preset="lambda"))
    assert values(headers, "content-type") == ["application/json"]
    assert json.loads(body) == {
        "eventSource": "SelfManagedKafka",
        "bootstrapServers": "b1:9092,b2:9092",
        "records": {
            "orders-3": [
                {
                    "topic": "orders",
                    "partition": 3,
                    "offset": 42,
                    "timestamp": TIME,
                    "timestampType": "CREATE_TIME",
                    "key": "azE=",
                    "value": "AA==",
                    "headers": [{"a": [49]}, {"b": None}],
                }
            ]
        },
    }


def test_a_lambda_event_leaves_out_what_is_null() -> None:
    (told,) = json.loads(sent(record(None, key=None), LambdaShape("b:1"))[1])["records"]["orders-3"]
    assert not told.keys() & {"key", "value"}


# --- which route gets which ---------------------------------------------------------------------


def test_a_plain_route_has_no_shape() -> None:
    """Its hot path stays what it was."""
    assert shape_of(route(), "") is None


def test_knative_unpacks_events() -> None:
    event: list[Header] = [("content-type", b"application/cloudevents+json")]
    headers, body = sent(
        record(b'{"specversion":"1.0","id":"1","source":"s","type":"t","data":{}}', event),
        shape(preset="knative"),
    )
    assert values(headers, "ce-id") == ["1"]
    assert body == b"{}"


def test_cloudevents_are_an_encoding_of_their_own() -> None:
    given = shape(encoding="cloudevents", cloudevents={"mode": "structured", "source": "x"})
    assert isinstance(given, CloudEventShape)
    assert json.loads(sent(record(), given)[1])["source"] == "x"


SHAPES = [
    shape(preset="dapr"),
    shape(preset="dapr", encoding="raw"),
    shape(preset="knative"),
    shape(preset="pubsub"),
    shape(preset="lambda"),
    shape(encoding="cloudevents"),
]


UNFIT: list[tuple[dict[str, Any], str]] = [
    (
        {"preset": "lambda", "encoding": "raw"},
        "encoding: raw is not what lambda sends: lambda",
    ),
    (
        {"encoding": "pubsub"},
        "encoding: pubsub is not what default sends: raw or cloudevents",
    ),
    ({"cloudevents": {}}, "cloudevents: needs encoding: cloudevents"),
    (
        {"preset": "dapr", "cloudevents": {"mode": "binary"}},
        "cloudevents.mode: is structured with preset: dapr",
    ),
    (
        {"preset": "knative", "cloudevents": {"mode": "structured"}},
        "cloudevents.mode: is binary with preset: knative",
    ),
    (
        {"encoding": "cloudevents", "cloudevents": {"extensions": {"id": "1"}}},
        "cloudevents.extensions.id: is made by the sidecar: choose another name",
    ),
]


@pytest.mark.parametrize(("given", "told"), UNFIT)
def test_what_does_not_fit_together_is_refused(given: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        route(**given)
    assert str(caught.value) == f"routes[0].{told}"


ILLEGAL: list[dict[str, Any]] = [
    {"source": ""},
    {"source": "a b"},
    {"type": "a\nb"},
    {"extensions": {"a-b": "1"}},
    {"extensions": {"a": ""}},
    {"extensions": {"a": "1\r\n"}},
]


@pytest.mark.parametrize("cloudevents", ILLEGAL)
def test_attributes_that_are_not_legal_are_refused(cloudevents: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"routes\[0\]\.cloudevents"):
        route(encoding="cloudevents", cloudevents=cloudevents)
