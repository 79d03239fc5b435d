"""openapi/delivery.yaml describes the requests that are sent and the answers as they are taken."""

from __future__ import annotations

import json
import re
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from openapi_spec_validator import validate

from sidecar.core.answers import DEFAULT_ANSWERS
from sidecar.core.batch_answers import BatchAnswerError, failures_of
from sidecar.core.classify import classify
from sidecar.core.credentials import signing_keys
from sidecar.delivery.batches import RecordsBatch
from sidecar.delivery.cloudevents import CloudEventShape, Wrapping
from sidecar.delivery.request import RequestEncoder, split_head
from sidecar.delivery.signature import Signer
from sidecar.model import Answer, Assignment, Header, Partition, Record

FILE = Path(__file__).parents[2] / "openapi" / "delivery.yaml"
DOCUMENT = yaml.safe_load(FILE.read_text(encoding="utf-8"))
POST, EVENT, BATCH = (
    DOCUMENT["webhooks"][name]["post"] for name in ("record", "cloudevent", "batch")
)


def resolved(part: dict[str, Any]) -> dict[str, Any]:
    """What it is, or refers to."""
    if "$ref" not in part:
        return part
    found: dict[str, Any] = reduce(getitem, part["$ref"].split("/")[1:], DOCUMENT)
    return found


def parameters(operation: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """By name in lower case."""
    found = map(resolved, operation["parameters"])
    return {each["name"].lower(): each for each in found}


PARAMETERS = parameters(POST)
KEYS = signing_keys("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
EVENT_HEADERS: list[Header] = [
    (f"ce_{name}", b"1.0") for name in ("specversion", "id", "source", "type")
]
TRACE = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
OF_HTTP = {"host", "content-type", "content-length"}

RECORDS: list[tuple[bytes | None, bytes | None, int, list[Header] | None]] = [
    (b"value", None, -1, None),
    (None, b"", 0, [("a", b"1"), ("odd name", None)]),
    (
        b"",
        b"\x00",
        1_700_000_000_000,
        [("traceparent", TRACE), ("tracestate", b"a=1"), ("baggage", b"b=1")],
    ),
]


@pytest.mark.parametrize("index", range(len(RECORDS)))
def test_every_header_that_is_sent_is_described(index: int) -> None:
    value, key, timestamp_ms, headers = RECORDS[index]
    record = Record(Assignment(Partition("a b", 0), 1), 7, timestamp_ms, key, value, headers, 0)
    encoder = RequestEncoder("/", "app", "a/b", 16_384, sign=Signer(KEYS, lambda: 1.0))
    sent = {
        name.decode().lower(): text.decode()
        for name, text in split_head(encoder.encode(record, 1)[0])
        if not name.startswith(b"Kafka-Header-")
    }
    described = {name: PARAMETERS[name] for name in sent.keys() - OF_HTTP}
    for name, parameter in described.items():
        schema = parameter["schema"]
        number = schema.get("type") == "integer"
        Draft202012Validator(schema).validate(int(sent[name]) if number else sent[name])
    assert {name for name, each in PARAMETERS.items() if each.get("required")} <= sent.keys()


def test_everything_that_is_described_is_sent_by_some_record() -> None:
    encoder = RequestEncoder("/", "app", "a/b", 16_384, sign=Signer(KEYS, lambda: 1.0))
    seen: set[str] = set()
    for value, key, timestamp_ms, headers in RECORDS:
        record = Record(Assignment(Partition("t", 0), 1), 7, timestamp_ms, key, value, headers, 0)
        seen |= {name.decode().lower() for name, _ in split_head(encoder.encode(record, 1)[0])}
    assert PARAMETERS.keys() <= seen


@pytest.mark.parametrize("structured", [False, True])
def test_a_cloud_event_is_described_as_it_is_sent(structured: bool) -> None:
    """Wrapped ones and those that are events already."""
    shape = CloudEventShape(Wrapping("/kafka/{topic}", "t", structured, "text/plain"))
    encoder = RequestEncoder("/", "app", "a/b", 16_384, shape=shape, sign=Signer(KEYS, lambda: 1.0))
    described = parameters(EVENT)
    schema = EVENT["requestBody"]["content"]["application/cloudevents+json"]["schema"]
    validator = Draft202012Validator({**schema, "components": DOCUMENT["components"]})
    for value, key, timestamp_ms, headers in [*RECORDS, (b"{}", None, 0, EVENT_HEADERS)]:
        record = Record(Assignment(Partition("t", 0), 1), 7, timestamp_ms, key, value, headers, 0)
        head, body = encoder.encode(record, 1)
        sent = {
            name.decode().lower(): text.decode()
            for name, text in split_head(head)
            if not name.startswith(b"Kafka-Header-")
        }
        assert sent.keys() - OF_HTTP <= described.keys()
        if sent.get("content-type") == "application/cloudevents+json":
            validator.validate(json.loads(body))
        else:
            required = {"ce-specversion", "ce-id", "ce-source", "ce-type"}
            assert required <= sent.keys()


@pytest.mark.parametrize("file", ["admin.json", "delivery.yaml"])
def test_descriptions_are_valid(file: str) -> None:
    text = FILE.with_name(file).read_text(encoding="utf-8")
    validate(yaml.safe_load(text))


def test_every_answer_of_a_batch_is_described() -> None:
    assert BATCH["responses"].keys() == EVENT["responses"].keys() == POST["responses"].keys()


def test_every_status_has_the_outcome_that_is_described() -> None:
    responses = POST["responses"]
    assert all(re.fullmatch("[2-5]XX|[2-5][0-9]{2}", status) for status in responses)
    for status in range(200, 600):
        described = resolved(responses.get(str(status)) or responses[f"{status // 100}XX"])
        verdict = classify(Answer(status), DEFAULT_ANSWERS, answered_before=True)
        assert verdict.outcome.value == described["x-outcome"], status


@given(
    key=st.none() | st.binary(),
    value=st.none() | st.binary() | st.text().map(str.encode),
    headers=st.none() | st.lists(st.tuples(st.text(), st.none() | st.binary())),
    timestamp_ms=st.integers(-1, 2**53),
)
def test_every_batch_that_is_sent_is_described(
    key: bytes | None, value: bytes | None, headers: list[Header] | None, timestamp_ms: int
) -> None:
    record = Record(Assignment(Partition("a b", 0), 1), 7, timestamp_ms, key, value, headers, 0)
    encoder = RequestEncoder("/", "app", "a/b", 16_384, batch_shape=RecordsBatch())
    head, body = encoder.encode_batch([(record, 1)])
    body_schema = BATCH["requestBody"]["content"]["application/json"]["schema"]
    Draft202012Validator({**body_schema, "components": DOCUMENT["components"]}).validate(
        json.loads(body)
    )
    sent = {name.decode().lower() for name, _ in split_head(head)}
    described = parameters(BATCH)
    assert sent - OF_HTTP <= described.keys()
    assert {name for name, each in described.items() if each.get("required")} <= sent


@pytest.mark.parametrize(
    ("answer", "fits"),
    [
        ({"failures": [0, {"index": 0, "status": 422, "retry_after": 3}]}, True),
        ({"batchItemFailures": [{"itemIdentifier": "a b-0-7"}]}, True),
        ({"batchItemFailures": [{"itemIdentifier": {"partition": "a b-0", "offset": 7}}]}, True),
        ({"failures": None}, True),
        ({"failures": [-1]}, False),
        ({"failures": [{"index": 0, "status": 200}]}, False),
        ({"batchItemFailures": [{}]}, False),
    ],
)
def test_an_answer_to_a_batch_is_described_as_it_is_taken(answer: object, fits: bool) -> None:
    schema = {**DOCUMENT["components"]["schemas"]["Failures"], "components": DOCUMENT["components"]}
    record = Record(Assignment(Partition("a b", 0), 1), 7, 0, None, None, None, 0)
    taken = True
    try:
        failures_of(json.dumps(answer).encode(), [record])
    except BatchAnswerError:
        taken = False
    assert (Draft202012Validator(schema).is_valid(answer), taken) == (fits, fits)
