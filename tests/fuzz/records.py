"""Records that no producer should write, through every shape, to the bytes of the request.

What must hold: a request or Unsendable, nothing else; an independent parser (h11) finds exactly one
request and nothing behind it; host, path, length and whatever else is ours is what it would be for
any other record; and what is JSON is JSON.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from functools import cache
from random import Random
from typing import Any, Final, NamedTuple

import h11

from sidecar.delivery.request import RequestEncoder, Unsendable, identity_of
from sidecar.delivery.shapes import batch_shape_of, shape_of
from sidecar.model import Assignment, Header, Partition, Record, ReturnedRecord
from sidecar.settings import RouteSettings, Secret
from tests.fuzz.corpus import kept
from tests.fuzz.spoiling import several

HOST: Final = "127.0.0.1:8080"
LIMIT: Final = 16_384
# Besides those under a prefix.
OWN: Final = {
    *("host", "content-type", "content-length", "idempotency-key"),
    *("traceparent", "tracestate", "baggage"),
}
PREFIXES: Final = ("kafka-", "sidecar-", "ce-")
# With Dapr a record's headers go out under their own names, but for these.
NOT_WITH_DAPR: Final = {"authorization", "cookie", "transfer-encoding", "expect", "connection"}
WAYS: Final[Sequence[dict[str, Any]]] = (
    {},
    {"headers_always": True},
    {"encoding": "cloudevents"},
    {"encoding": "cloudevents", "cloudevents": {"mode": "structured", "source": "/{topic}"}},
    {"preset": "dapr"},
    {"preset": "dapr", "encoding": "raw"},
    {"preset": "knative"},
    {"preset": "pubsub"},
    {"preset": "lambda"},
    {"batch": {}},
    {"batch": {}, "encoding": "cloudevents"},
    {"batch": {}, "preset": "lambda"},
)
NAMES: Final = (
    b"content-type",
    b"Content-Length",
    b"Host",
    b"Transfer-Encoding",
    b"traceparent",
    b"baggage",
    b"ce_id",
    b"ce_source",
    b"ce_type",
    b"ce_specversion",
    b"ce_time",
    b"ce_datacontenttype",
    b"ce_partitionkey",
    b"ce_comexampleext",
    b"x",
    b"Authorization",
    b"cookie",
    b"X-Own",
    b"dapr-api-token",
    b"Expect",
)
PIECES: Final = (
    b"\r\n",
    b"\r\nX-Injected: 1",
    b"\x00",
    b"\xff",
    b"\xf0\x9f\x98\x80",
    b"\xed\xa0\x80",
    b":",
    b" ",
    b'"',
    b"\\u0000",
    b"%",
    b"{",
    b"}",
    b"[" * 2000,
    b"application/cloudevents+json",
    b"1.0",
    b"NaN",
    b"1e999",
    b"9" * 5000,
    b"a" * 20_000,
)


class Case(NamedTuple):
    """Records of one partition, and how they are sent."""

    way: dict[str, Any]
    topic: str
    records: list[Record]
    attempt: int


def case(number: int) -> Case:
    random = Random(number)
    topic = random.choice(("orders", "a.b-c_D", "%s", "ünï", "a/../b?c#d"))
    assignment = Assignment(Partition(topic, random.choice((0, 7, 2**31 - 1))), 1)
    count = random.choice((1, 1, 1, 3))
    records = [_record(random, assignment) for _ in range(count)]
    return Case(random.choice(WAYS), topic, records, random.choice((1, 2, 2**31)))


def read(data: bytes) -> dict[str, Any]:
    """An input of the corpus: key, value and headers, in base64."""
    told = json.loads(data)
    return {
        "key": _bytes(told["key"]),
        "value": _bytes(told["value"]),
        "headers": [(name, _bytes(value)) for name, value in told["headers"]],
    }


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


@cache
def _seeds() -> list[dict[str, Any]]:
    return [read(data) for data in kept("records").values()]


@cache
def _contents() -> tuple[bytes, ...]:
    every = [[each["key"], each["value"], *(v for _, v in each["headers"])] for each in _seeds()]
    return tuple(content for contents in every for content in contents if content)


def _record(random: Random, assignment: Assignment) -> Record:
    seed = random.choice(_seeds())

    def content(of: bytes | None) -> bytes | None:
        if random.random() < 0.1:
            return random.choice((None, b""))
        return several(random, of or b"", PIECES, _contents())

    headers: list[Header] = [
        (_name(random, name), content(value) if random.random() < 0.3 else value)
        for name, value in seed["headers"]
        if random.random() < 0.95
    ]
    for _ in range(random.choice((0, 0, 1, 4))):
        name = _name(random, random.choice(NAMES).decode())
        headers.insert(random.randrange(len(headers) + 1), (name, content(b"x")))
    offset, time_ms = random.choice(((0, -1), (42, 1_700_000_000_000), (2**63 - 1, 2**63 - 1)))
    key, value = content(seed["key"]), content(seed["value"])
    record = Record(assignment, offset, time_ms, key, value, headers or None, 1)
    if random.random() < 0.2:
        return _returned(record, random.choice((1, 5, 2**31)))
    return record


def _name(random: Random, name: str) -> str:
    if random.random() < 0.85:
        return name
    return several(random, name.encode(), PIECES, NAMES).decode("utf-8", "replace")


def _returned(original: Record, attempts: int) -> Record:
    returned = ReturnedRecord(Assignment(Partition("r", 0), 1), 1, 1, None, None, None, 1)
    returned.original, returned.attempts = original, attempts
    returned.first_attempt_ms, returned.tier = 0, 0
    return returned


@cache
def _encoder(number: int) -> tuple[RequestEncoder, bool]:
    """Of the way with this number; whether it sends batches."""
    way = WAYS[number]
    target, headers = f"http://{HOST}/e/{{topic}}?t=1", {"X-Own": Secret.parse("1")}
    route = RouteSettings(topics=("a",), target=target, headers=headers, **way)
    encoder = RequestEncoder(
        route.parsed_target.path,
        route.parsed_target.authority,
        route.content_type,
        LIMIT,
        route.headers_always,
        b"X-Own: 1\r\n",
        shape_of(route, "b"),
        batch_shape_of(route, "b"),
    )
    return encoder, route.batch is not None


def judge(case: Case) -> None:
    """Raises Wrong, or what the encoder raises."""
    encoder, batches = _encoder(WAYS.index(case.way))
    try:
        if batches:
            head, body = encoder.encode_batch([(each, case.attempt) for each in case.records])
        else:
            head, body = encoder.encode(case.records[0], case.attempt)
    except Unsendable:
        return
    request, data = _only_request(head, body)
    headers = [(name.decode(), value) for name, value in request.headers]
    assert request.target == encoder.path(case.topic).encode(), "the path is ours"
    assert data == body
    assert batches or len(head) <= LIMIT, "as large as it may be"
    _names_are_ours([name for name, _ in headers], dapr=case.way.get("preset") == "dapr")
    told = dict(headers)
    assert told["host"] == HOST.encode()
    assert told["content-length"] == b"%d" % len(body)
    assert told["x-own"] == b"1"
    if batches:
        told_of = json.loads(body, parse_int=str)  # of any length: it goes out as it came
        assert told_of, "each record is in it"
        return
    first = case.records[0].original
    assert told["kafka-offset"] == b"%d" % first.offset
    assert told["idempotency-key"] == f'"{identity_of(first)}"'.encode()
    if case.way.get("preset") in ("pubsub", "lambda"):
        json.loads(body, parse_int=str)
    if "encoding" not in case.way and "preset" not in case.way:
        _can_be_rebuilt(first, headers, body)


def _only_request(head: bytes, body: bytes) -> tuple[h11.Request, bytes]:
    app = h11.Connection(h11.SERVER, max_incomplete_event_size=2 * LIMIT + 200_000)
    app.receive_data(head + body)
    request = app.next_event()
    assert isinstance(request, h11.Request), request
    data = b""
    while isinstance(event := app.next_event(), h11.Data):
        data += event.data
    assert isinstance(event, h11.EndOfMessage), event
    assert app.trailing_data == (b"", False), "there is something behind the request"
    return request, data


def _names_are_ours(names: list[str], *, dapr: bool) -> None:
    known = OWN | {"x-own"}
    others = [each for each in names if each not in known and not each.startswith(PREFIXES)]
    if dapr:
        others = [each for each in others if each in NOT_WITH_DAPR or each.startswith("dapr-")]
    assert others == []
    once = [each for each in names if each in known]
    assert len(once) == len(set(once)), "each own header once"


def _can_be_rebuilt(record: Record, headers: list[tuple[str, bytes]], body: bytes) -> None:
    told = dict(headers)
    key = told.get("kafka-key")
    assert (None if key is None else _decoded(key)) == record.key
    assert (None if "kafka-tombstone" in told else body) == record.value
    if (whole := told.get("kafka-headers")) is not None:
        pairs = json.loads(_decoded(whole))
        assert [(name, _bytes(value)) for name, value in pairs] == (record.headers or [])
        return
    prefix = "kafka-header-"
    found = [(n.removeprefix(prefix), _decoded(v)) for n, v in headers if n.startswith(prefix)]
    assert found == [(name.lower(), value) for name, value in record.headers or []]


def _decoded(value: bytes) -> bytes:
    return base64.b64decode(value[1:-1]) if value.startswith(b":") else value
