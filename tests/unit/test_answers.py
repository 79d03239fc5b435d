"""What answers mean: each preset as its system decides, overrides above it, bodies where read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.core.answers import SETTABLE, answer_table, parse_statuses
from sidecar.core.classify import classify
from sidecar.core.presets import Preset
from sidecar.delivery.connection import ANSWER_LIMIT, Reading, reading_of
from sidecar.errors import ConfigError
from sidecar.model import Answer, Outcome
from sidecar.settings import load_settings

STATUSES = range(100, 600)
NAMES = "delivered, deferred, retry, rejected, app_down"
SUCCESSES = set(range(200, 300))


def outcomes(preset: Preset, overrides: dict[str, Outcome] | None = None) -> dict[int, Outcome]:
    table = answer_table(preset, overrides or {})
    return {
        status: classify(Answer(status), table, answered_before=True).outcome for status in STATUSES
    }


def those(preset: Preset, outcome: Outcome) -> set[int]:
    return {status for status, each in outcomes(preset).items() if each is outcome}


def read(preset: Preset, body: bytes, status: int = 200) -> tuple[Outcome, str]:
    table = answer_table(preset, {})
    verdict = classify(Answer(status, body=body), table, answered_before=True)
    return verdict.outcome, verdict.reason


# --- presets ------------------------------------------------------------------------------------


def test_dapr_takes_2xx_drops_404_and_tries_everything_else_again() -> None:
    assert those(Preset.DAPR, Outcome.DELIVERED) == SUCCESSES
    assert those(Preset.DAPR, Outcome.REJECTED) == {404}
    assert those(Preset.DAPR, Outcome.DEFERRED) == {429, 503}
    assert those(Preset.DAPR, Outcome.RETRY) == set(STATUSES) - SUCCESSES - {404, 429, 503}


def test_knative_tries_again_what_its_dispatcher_does_and_dead_letters_the_rest() -> None:
    assert those(Preset.KNATIVE, Outcome.DELIVERED) == SUCCESSES
    assert those(Preset.KNATIVE, Outcome.DEFERRED) == {429, 503}
    again = {404, 408, 409, *range(500, 600)} - {503}
    assert those(Preset.KNATIVE, Outcome.RETRY) == again
    assert those(Preset.KNATIVE, Outcome.REJECTED) == (
        set(STATUSES) - SUCCESSES - again - {429, 503}
    )


def test_pubsub_takes_five_statuses_and_nothing_else() -> None:
    assert those(Preset.PUBSUB, Outcome.DELIVERED) == {102, 200, 201, 202, 204}
    assert those(Preset.PUBSUB, Outcome.DEFERRED) == {429, 503}
    assert not those(Preset.PUBSUB, Outcome.REJECTED) | those(Preset.PUBSUB, Outcome.APP_DOWN)


def test_lambda_takes_2xx_and_tries_the_rest_again() -> None:
    assert those(Preset.LAMBDA, Outcome.DELIVERED) == SUCCESSES
    assert not those(Preset.LAMBDA, Outcome.REJECTED) | those(Preset.LAMBDA, Outcome.APP_DOWN)


@pytest.mark.parametrize("preset", [Preset.DEFAULT, Preset.DAPR])
def test_an_unknown_path_holds_intake_until_the_first_delivery(preset: Preset) -> None:
    table = answer_table(preset, {})
    assert classify(Answer(404), table, answered_before=False).outcome is Outcome.APP_DOWN
    assert classify(Answer(404), table, answered_before=True).outcome is Outcome.REJECTED


@pytest.mark.parametrize(
    ("preset", "reading"),
    [
        (Preset.DEFAULT, Reading(0, False)),
        (Preset.DAPR, Reading(ANSWER_LIMIT, False)),
        (Preset.KNATIVE, Reading(0, False)),
        (Preset.PUBSUB, Reading(0, True)),
        (Preset.LAMBDA, Reading(ANSWER_LIMIT, False)),
    ],
)
def test_only_presets_that_look_into_answers_have_them_read(
    preset: Preset, reading: Reading
) -> None:
    assert reading_of(answer_table(preset, {})) == reading


# --- bodies -------------------------------------------------------------------------------------

DELIVERED = (Outcome.DELIVERED, "delivered")
AGAIN = (Outcome.RETRY, "answer_retry")
DROPPED = (Outcome.REJECTED, "app_drop")


@pytest.mark.parametrize(
    ("body", "verdict"),
    [
        (b"", DELIVERED),
        (b"OK", DELIVERED),
        (b"null", DELIVERED),
        (b"[]", DELIVERED),
        (b"{}", DELIVERED),
        (b"\xff", DELIVERED),
        (b'{"status": 5}', DELIVERED),
        (b'{"status": ""}', DELIVERED),
        (b'{"status": "SUCCESS"}', DELIVERED),
        (b'{"status": "RETRY", "message": "busy"}', AGAIN),
        (b'{"Status": "RETRY"}', AGAIN),
        (b'{"status": "success"}', AGAIN),
        (b'{"status": "whatever"}', AGAIN),
        (b'{"status": "DROP"}', DROPPED),
        (b"[" * 60_000, DELIVERED),
    ],
)
def test_dapr_reads_the_status_of_the_body(body: bytes, verdict: tuple[Outcome, str]) -> None:
    assert read(Preset.DAPR, body) == verdict


def test_what_the_application_drops_is_told_from_what_it_refuses() -> None:
    assert read(Preset.DAPR, b"", status=404) == DROPPED
    assert read(Preset.DEFAULT, b"", status=404) == (Outcome.REJECTED, "status_rejected")


def failures(*identifiers: object) -> bytes:
    return json.dumps(
        {"batchItemFailures": [{"itemIdentifier": each} for each in identifiers]}
    ).encode()


@pytest.mark.parametrize(
    ("body", "verdict"),
    [
        (b"", DELIVERED),
        (b" \n", DELIVERED),
        (b"null", DELIVERED),
        (b"{}", DELIVERED),
        (failures(), DELIVERED),
        (b'{"batchItemFailures": null}', DELIVERED),
        (failures({"partition": "orders-3", "offset": 42}), AGAIN),
        (failures("orders-3-42"), AGAIN),
        (failures("another-0-1"), AGAIN),
        (failures(""), AGAIN),
        (failures(None), AGAIN),
        (b'{"batchItemFailures": "all"}', AGAIN),
        (b'{"batchItemFailures": [{"id": 1}]}', AGAIN),
        (b'{"batchItemFail', AGAIN),
        (b"[" * 60_000, AGAIN),
    ],
)
def test_lambda_reads_which_of_the_batch_failed(body: bytes, verdict: tuple[Outcome, str]) -> None:
    assert read(Preset.LAMBDA, body) == verdict


@given(body=st.binary(max_size=40) | st.text('{}[]":,status', max_size=30).map(str.encode))
def test_no_body_breaks_the_reading(body: bytes) -> None:
    for preset in Preset:
        read(preset, body)


@pytest.mark.parametrize("preset", [Preset.DEFAULT, Preset.KNATIVE, Preset.PUBSUB])
def test_other_presets_take_any_body(preset: Preset) -> None:
    assert read(preset, b'{"status": "RETRY", "batchItemFailures": [1]}') == DELIVERED


def test_a_status_that_is_no_success_is_not_read() -> None:
    assert read(Preset.DAPR, b'{"status": "SUCCESS"}', status=500)[0] is Outcome.RETRY


# --- overrides ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [("409", 409, 409), ("5xx", 500, 599), ("300-399", 300, 399), ("100-599", 100, 599)],
)
def test_statuses_are_a_number_a_class_or_a_range(text: str, first: int, last: int) -> None:
    statuses = parse_statuses(text)
    assert (statuses[0], statuses[-1]) == (first, last)


@pytest.mark.parametrize(
    "text", ["", "6xx", "xx", "99", "600", "5XX", "4 xx", "409,410", "500-400"]
)
def test_what_is_no_status_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a status|ends before"):
        parse_statuses(text)


def test_the_narrower_is_above_the_wider_whatever_the_order() -> None:
    lines = [("4xx", Outcome.RETRY), ("409", Outcome.DELIVERED), ("400-410", Outcome.DEFERRED)]
    for overrides in (lines, lines[::-1]):
        result = outcomes(Preset.DEFAULT, dict(overrides))
        assert result[409] is Outcome.DELIVERED
        assert {result[400], result[410]} == {Outcome.DEFERRED}
        assert {result[status] for status in range(411, 500)} == {Outcome.RETRY}
        assert {result[status] for status in range(200, 300)} == {Outcome.DELIVERED}


@given(status=st.integers(100, 599), outcome=st.sampled_from(SETTABLE))
def test_one_status_changes_alone(status: int, outcome: Outcome) -> None:
    for preset in Preset:
        assert outcomes(preset, {str(status): outcome}) == (outcomes(preset) | {status: outcome})


def test_what_is_said_of_an_unknown_path_holds_from_the_start() -> None:
    table = answer_table(Preset.DEFAULT, {"404": Outcome.REJECTED})
    assert classify(Answer(404), table, answered_before=False).outcome is Outcome.REJECTED


def test_a_success_that_is_to_be_tried_again_is_not_read() -> None:
    table = answer_table(Preset.DAPR, {"202": Outcome.RETRY})
    answer = Answer(202, body=b'{"status": "SUCCESS"}')
    assert classify(answer, table, answered_before=True).outcome is Outcome.RETRY


# --- the way from the file ----------------------------------------------------------------------


def problems(answers: object) -> list[str]:
    tree = {
        "kafka": {"bootstrap.servers": "x:1", "group.id": "g"},
        "routes": [{"topics": ["t"], "target": "http://localhost/", "answers": answers}],
    }
    try:
        load_settings(None, {}, tree)
    except ConfigError as error:
        return [str(each).removeprefix("routes[0].") for each in error.problems]
    return []


def test_answers_come_from_the_file_or_as_json_from_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "sidecar.yaml"
    file.write_text(
        """
        kafka: {bootstrap.servers: "x:1", group.id: g}
        routes:
          - {topics: [t], target: "http://localhost/", preset: knative, answers: {"5xx": retry}}
        """
    )
    by_file = load_settings(file, {}).routes[0]
    assert dict(by_file.answers) == {"5xx": Outcome.RETRY}
    env = {"SIDECAR_ROUTES__0__ANSWERS": '{"409": "delivered", "300-399": "rejected"}'}
    settings = load_settings(file, env)
    table = settings.routes[0].answer_table
    assert classify(Answer(409), table, answered_before=True).outcome is Outcome.DELIVERED
    assert classify(Answer(408), table, answered_before=True).outcome is Outcome.RETRY
    assert settings.model_dump(mode="json")["routes"][0]["answers"] == {
        "5xx": "retry",
        "409": "delivered",
        "300-399": "rejected",
    }


REFUSED: list[tuple[object, str]] = [
    (
        {"409": "cancelled"},
        f"answers.409: must be one of {NAMES}, not 'cancelled'",
    ),
    (
        {"409": "deliverd"},
        f"answers.409: must be one of {NAMES}, not 'deliverd'; did you mean delivered?",
    ),
    (
        {"4x": "retry"},
        "answers: '4x' is not a status (409), a class (5xx) or a range (300-399)",
    ),
    (
        {"400-450": "retry", "440-460": "rejected"},
        "answers.440-460: overlaps '400-450': which of them is meant?",
    ),
    (
        {"5xx": "retry", "500-599": "rejected"},
        "answers.500-599: overlaps '5xx': which of them is meant?",
    ),
    (["409"], 'answers: must be a mapping of statuses to outcomes: {"409": delivered}'),
]


@pytest.mark.parametrize(("answers", "told"), REFUSED)
def test_answers_that_make_no_sense_are_refused(answers: object, told: str) -> None:
    assert problems(answers) == [told]
