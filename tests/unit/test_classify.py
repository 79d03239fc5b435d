"""Classification: every status and failure has its line of the contract; Retry-After is tame."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.core.answers import Verdict
from sidecar.core.classify import classify, describe, retry_after_seconds
from sidecar.model import Answer, Failed, FailureKind, Outcome

NOW = 784_111_777.0  # Sun, 06 Nov 1994 08:49:37 GMT
LONGEST = 300.0

MISROUTED = {401, 403, 405, 501, *range(300, 400)}
DEFERRED = {429, 503}
RETRY = {408, 425, *range(500, 600)} - DEFERRED - MISROUTED
REJECTED = set(range(400, 500)) - MISROUTED - DEFERRED - RETRY
DELIVERED = set(range(200, 300))
OUTCOMES = {
    **dict.fromkeys(DELIVERED, Outcome.DELIVERED),
    **dict.fromkeys(MISROUTED, Outcome.APP_DOWN),
    **dict.fromkeys(DEFERRED, Outcome.DEFERRED),
    **dict.fromkeys(RETRY, Outcome.RETRY),
    **dict.fromkeys(REJECTED, Outcome.REJECTED),
}


def verdict(status: int, *, answered_before: bool = True) -> Verdict:
    return classify(Answer(status), answered_before=answered_before)


@pytest.mark.parametrize("answered_before", [False, True])
def test_every_status_from_200_to_599_has_its_line(answered_before: bool) -> None:
    for status in range(200, 600):
        if status == 404 and not answered_before:
            continue
        assert verdict(status, answered_before=answered_before).outcome is OUTCOMES[status], status


@pytest.mark.parametrize("status", [*range(100, 200), 0, -1, 99, 600, 799, 999, 10**9])
def test_a_status_that_http_does_not_have_is_tried_again(status: int) -> None:
    assert verdict(status).outcome is Outcome.RETRY


def test_not_found_is_a_mistake_in_deployment_until_the_application_has_answered_once() -> None:
    assert verdict(404, answered_before=False).outcome is Outcome.APP_DOWN
    assert verdict(404, answered_before=True).outcome is Outcome.REJECTED


def test_only_what_was_certainly_not_processed_may_be_sent_again_at_most_once() -> None:
    again = {status for status in range(100, 1000) if verdict(status).unprocessed}
    assert again == {425, 429, 503}
    failures = {
        (kind, sent)
        for kind in FailureKind
        for sent in (False, True)
        if classify(Failed(kind, "", sent), answered_before=True).unprocessed
    }
    assert failures == {
        (FailureKind.UNREACHABLE, False),
        (FailureKind.UNREACHABLE, True),
        (FailureKind.TIMEOUT, False),
    }


def test_every_failure_has_its_line() -> None:
    outcomes = {
        kind: classify(Failed(kind, ""), answered_before=True).outcome for kind in FailureKind
    }
    assert outcomes == {
        FailureKind.UNREACHABLE: Outcome.APP_DOWN,
        FailureKind.TIMEOUT: Outcome.RETRY,
        FailureKind.BROKEN: Outcome.RETRY,
        FailureKind.MALFORMED: Outcome.RETRY,
        FailureKind.UNSENDABLE: Outcome.REJECTED,
    }


def test_only_an_absent_application_is_held_at_once() -> None:
    """A status may be one record's own fault; a refused connection cannot."""
    assert classify(Failed(FailureKind.UNREACHABLE, ""), answered_before=True).opens_breaker
    assert not any(
        verdict(s, answered_before=b).opens_breaker for s in OUTCOMES for b in (False, True)
    )


def test_the_words_of_a_verdict_are_a_closed_set() -> None:
    """They become labels of metrics and headers of parked records."""
    words = {verdict(s, answered_before=b).reason for s in range(100, 700) for b in (False, True)}
    words |= {
        classify(Failed(kind, "whatever", sent), answered_before=True).reason
        for kind in FailureKind
        for sent in (False, True)
    }
    assert words == {
        "delivered",
        "status_retry",
        "status_deferred",
        "status_rejected",
        "status_app_down",
        "unreachable",
        "timeout",
        "broken",
        "malformed",
        "unsendable",
    }


def test_a_result_is_described_in_one_line_without_payload() -> None:
    assert describe(Answer(500, body=b"secret")) == "the application answered 500"
    assert describe(Failed(FailureKind.BROKEN, "reset by peer")) == "broken: reset by peer"


# --- Retry-After ------------------------------------------------------------------------------


@pytest.fixture(params=["UTC", "America/New_York", "Asia/Kolkata"])
def _time_zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("_time_zone")
@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        pytest.param("3", 3.0, id="seconds"),
        pytest.param(" 3 ", 3.0, id="blanks around"),
        pytest.param("0", 0.0, id="at once"),
        pytest.param("007", 7.0, id="leading zeros"),
        pytest.param("Sun, 06 Nov 1994 08:49:47 GMT", 10.0, id="date of today's form"),
        pytest.param("Sunday, 06-Nov-94 08:49:47 GMT", 10.0, id="date of RFC 850"),
        pytest.param("Sun Nov  6 08:49:47 1994", 10.0, id="date of asctime, which is UTC"),
        pytest.param("Sun, 06 Nov 1994 03:49:47 -0500", 10.0, id="date with a zone"),
        pytest.param("Sun, 06 Nov 1994 08:49:47 -0000", 10.0, id="date with no known zone"),
        pytest.param("Sun, 06 Nov 1994 08:49:27 GMT", 0.0, id="past"),
        pytest.param("Sun Nov  6 08:49:27 1994", 0.0, id="past, without a comma"),
        pytest.param("Sun, 06 Nov 1994 08:49:47 +99999999999999999", 0.0, id="a zone beyond all"),
        pytest.param("Fri, 31 Dec 1999 23:59:59 GMT", LONGEST, id="far future"),
        pytest.param("3, 5", 5.0, id="several seconds"),
        pytest.param("5,3", 5.0, id="several, the longest first"),
        pytest.param("3, Sun, 06 Nov 1994 08:49:47 GMT", 10.0, id="seconds and a date"),
        pytest.param("Sun, 06 Nov 1994 08:49:47 GMT, 20", 20.0, id="a date and seconds"),
        pytest.param(
            "Sun, 06 Nov 1994 08:49:42 GMT, Sun, 06 Nov 1994 08:49:47 GMT", 10.0, id="two dates"
        ),
        pytest.param("soon, 3", 3.0, id="nonsense and seconds"),
        pytest.param("9999999999", LONGEST, id="huge"),
        pytest.param("9" * 5000, LONGEST, id="a number of five thousand digits"),
        pytest.param("-1", 0.0, id="negative"),
        pytest.param("1.5", 0.0, id="fraction"),
        pytest.param("1e3", 0.0, id="exponent"),
        pytest.param("inf", 0.0, id="infinite"),
        pytest.param("nan", 0.0, id="no number"),
        pytest.param("soon", 0.0, id="word"),
        pytest.param("", 0.0, id="empty"),
        pytest.param(",", 0.0, id="nothing twice"),
        pytest.param("٣", 0.0, id="digits of another script"),
        pytest.param("²", 0.0, id="a digit that is no number"),
        pytest.param("Sun, 99 Nov 1994 08:49:47 GMT", 0.0, id="a day that does not exist"),
        pytest.param("Sun, 06 Nov 99999 08:49:47 GMT", 0.0, id="a year that does not exist"),
    ],
)
def test_retry_after_takes_seconds_and_dates_and_nothing_else(value: str, seconds: float) -> None:
    """RSP-4."""
    assert retry_after_seconds(value, NOW, LONGEST) == pytest.approx(seconds)


def test_no_header_asks_for_nothing() -> None:
    assert retry_after_seconds(None, NOW, LONGEST) == 0.0


_DATE_WORDS = st.sampled_from(
    ["Sun", "Sunday,", ",", "06", "Nov", "06-Nov-94", "1994", "08:49:37", "GMT", "+9999", "-1", ":"]
)


@given(
    value=st.one_of(st.text(max_size=40), st.lists(_DATE_WORDS, max_size=9).map(" ".join)),
    maximum=st.floats(0, 1e6),
)
def test_retry_after_never_leaves_its_bounds_and_never_raises(value: str, maximum: float) -> None:
    """RSP-5."""
    assert 0.0 <= retry_after_seconds(value, NOW, maximum) <= maximum
