"""What an application may say of the records of a batch, and what it may not."""

from __future__ import annotations

import json
import sys
from contextlib import suppress

import pytest

from sidecar.core.batch_answers import BatchAnswerError, failures_of
from sidecar.model import Answer, Record
from tests.fakes.records import assignment
from tests.fakes.records import record as a_record

RECORDS: list[Record] = [a_record(assignment(), offset) for offset in (10, 11, 13)]
TOPIC = RECORDS[0].topic
PARTITION = f"{TOPIC}-{RECORDS[0].partition}"


def told(answer: Answer | None) -> tuple[int, str | None] | None:
    return None if answer is None else (answer.status, answer.retry_after)


def named(body: object, *, strict: bool = False) -> dict[int, tuple[int, str | None] | None]:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return {index: told(each) for index, each in failures_of(raw, RECORDS, strict=strict).items()}


@pytest.mark.parametrize(
    "body", [b"", b" \n", None, {}, {"failures": []}, {"failures": None}, {"batchItemFailures": []}]
)
@pytest.mark.parametrize("strict", [False, True])
def test_an_answer_that_names_nothing_means_that_all_were_delivered(
    body: object, strict: bool
) -> None:
    assert named(body, strict=strict) == {}


@pytest.mark.parametrize("body", [b"OK", b"[1]", b'"done"', b"\xff", b"[" * 100_000])
def test_what_is_no_json_object_says_nothing_unless_lambdas_rules_hold(body: bytes) -> None:
    assert named(body) == {}
    with pytest.raises(BatchAnswerError, match="is no JSON object"):
        named(body, strict=True)


@pytest.mark.parametrize("body", [b"{", b' {"failures":[3', b"{'failures': [3]}", b'{"a":' * 5000])
@pytest.mark.parametrize("strict", [False, True])
def test_an_object_that_is_cut_off_or_not_json_is_refused(body: bytes, strict: bool) -> None:
    """It may have named somebody."""
    with pytest.raises(BatchAnswerError, match="is an object that is not JSON"):
        named(body, strict=strict)


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        (2, {2: None}),
        ({"index": 0}, {0: None}),
        ({"index": 0, "status": 422}, {0: (422, None)}),
        ({"index": 1, "status": 429, "retry_after": 30}, {1: (429, "30")}),
        ({"index": 1, "retry_after": 0.2}, {1: (503, "1")}),
        ({"index": 1, "retry_after": 1e999}, {1: (503, "")}),
        (
            {"index": 1, "status": 503, "retry_after": "Wed, 21 Oct 2015 07:28:00 GMT"},
            {1: (503, "Wed, 21 Oct 2015 07:28:00 GMT")},
        ),
    ],
)
def test_a_failure_is_named_by_its_place(item: object, expected: object) -> None:
    assert named({"failures": [item]}) == expected


@pytest.mark.parametrize("identifier", [{"partition": PARTITION, "offset": 13}, f"{PARTITION}-13"])
def test_a_failure_is_named_by_its_coordinates_as_lambda_does(identifier: object) -> None:
    body = {"batchItemFailures": [{"itemIdentifier": identifier}]}
    assert named(body) == named(body, strict=True) == {2: None}


def test_both_lists_are_read() -> None:
    body = {
        "failures": [{"index": 0, "status": 400}],
        "batchItemFailures": [{"itemIdentifier": f"{PARTITION}-11"}],
    }
    assert named(body) == {1: None, 0: (400, None)}


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"failures": 3}, "failures is 3, not a list"),
        ({"failure": [0]}, "failure is nothing, did it mean failures\\?"),
        ({"Failures": [0]}, "did it mean failures"),
        ({"failed": [{"index": 0}]}, "did it mean failures"),
        ({"batch_item_failures": [1]}, "did it mean batchItemFailures"),
        ({"batchItemFailures": {}}, "batchItemFailures is an object of 0 fields, not a list"),
        ({"failures": [3]}, "failures names 3: no place in a batch of 3"),
        ({"failures": [-1]}, "names -1"),
        ({"failures": [True]}, "names true"),
        ({"failures": ["0"]}, "names a text of 1 characters"),
        ({"failures": [{"status": 400}]}, "no place in a batch"),
        ({"failures": [{"index": 0, "status": 200}]}, "a status of 200"),
        ({"failures": [{"index": 0, "status": "500"}]}, "a status of a text"),
        ({"failures": [{"index": 0, "status": 503, "retry_after": [1]}]}, "a retry_after of"),
        ({"failures": [{"index": 0, "status": 503, "retry_after": True}]}, "a retry_after of true"),
        ({"batchItemFailures": [{"itemIdentifier": f"{PARTITION}-12"}]}, "not of the batch"),
        ({"batchItemFailures": [{"itemIdentifier": None}]}, "not of the batch"),
        ({"batchItemFailures": [{}]}, "not of the batch"),
        ({"batchItemFailures": [7]}, "not of the batch"),
        (
            {"batchItemFailures": [{"itemIdentifier": {"partition": PARTITION, "offset": "13"}}]},
            "not of the batch",
        ),
        (
            {"batchItemFailures": [{"itemIdentifier": {"partition": [], "offset": 13}}]},
            "not of the batch",
        ),
    ],
)
def test_an_answer_that_names_something_else_is_refused_whole(body: object, reason: str) -> None:
    with pytest.raises(BatchAnswerError, match=reason):
        named(body)


@pytest.mark.parametrize(
    "body",
    [
        {"failures": ["SECRET"]},
        {"failures": [{"value": "SECRET"}]},
        {"failures": [{"index": 0, "status": "SECRET"}]},
        {"batchItemFailures": "SECRET"},
        {"batchItemFailures": [{"itemIdentifier": {"SECRET": 1}}]},
    ],
)
def test_what_the_application_said_is_not_repeated(body: object) -> None:
    """The reason goes to logs, and an application may answer with what it was sent."""
    with pytest.raises(BatchAnswerError) as refused:
        named(body)
    assert "SECRET" not in str(refused.value)


def test_no_depth_of_nesting_is_too_deep_to_be_refused() -> None:
    """The deepest answer that can be read is deeper than what can be written into the reason."""
    for depth in range(1, sys.getrecursionlimit()):
        nested = b'{"failures":[' + b"[" * depth + b"]" * depth + b"]}"
        with suppress(BatchAnswerError):
            assert named(nested) == {}  # too deep to be read, so no JSON
