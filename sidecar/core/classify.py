"""What an answer or a failure means. The table of the answers themselves is in answers."""

from __future__ import annotations

import email.utils
from datetime import UTC
from typing import Final

from sidecar.core.answers import DEFAULT_ANSWERS, MISROUTED, RETRY, AnswerTable, Verdict
from sidecar.model import Answer, Failed, FailureKind, Outcome, Result

_NEVER_SENT: Final = Verdict(Outcome.RETRY, "timeout", unprocessed=True)
_BY_FAILURE: Final[dict[FailureKind, Verdict]] = {
    FailureKind.UNREACHABLE: Verdict(
        Outcome.APP_DOWN, "unreachable", opens_breaker=True, unprocessed=True
    ),
    FailureKind.TIMEOUT: Verdict(Outcome.RETRY, "timeout"),
    FailureKind.BROKEN: Verdict(Outcome.RETRY, "broken"),
    FailureKind.MALFORMED: Verdict(Outcome.RETRY, "malformed"),
    FailureKind.UNSENDABLE: Verdict(Outcome.REJECTED, "unsendable"),
}


def classify(
    result: Result, answers: AnswerTable = DEFAULT_ANSWERS, *, answered_before: bool
) -> Verdict:
    """The verdict on one attempt, by the route's table.

    answered_before: this route was once answered 2xx. Until then a 404 may mean that the
    application is still registering its routes.
    """
    if isinstance(result, Answer):
        if result.status == 404 and answers.hold_unknown_path and not answered_before:
            return MISROUTED
        verdict = answers.by_status.get(result.status, RETRY)
        if answers.read is not None and verdict.outcome is Outcome.DELIVERED:
            return answers.read(result.body)
        return verdict
    if result.kind is FailureKind.TIMEOUT and not result.sent:
        return _NEVER_SENT
    return _BY_FAILURE[result.kind]


def describe(result: Result) -> str:
    """One line for logs and dead-letter headers; no payload."""
    if isinstance(result, Answer):
        return f"the application answered {result.status}"
    assert isinstance(result, Failed)
    return f"{result.kind.value}: {result.detail}"


def retry_after_seconds(value: str | None, now_unix: float, maximum: float) -> float:
    """The wait that a Retry-After header asks for, within [0, maximum]; 0 for nonsense.

    Delay in whole seconds, or a date in any of the three formats of RFC 9110, 10.2.3. Where a
    server sent several, the longest counts.
    """
    if value is None:
        return 0.0
    # Before its comma a date has only the name of the day, which says nothing.
    return max(_one_retry_after(part.strip(), now_unix, maximum) for part in value.split(","))


def _one_retry_after(value: str, now_unix: float, maximum: float) -> float:
    if value.isascii() and value.isdigit():
        seconds = float(value)
    else:
        try:
            date = email.utils.parsedate_to_datetime(value)
            # A date without a zone (asctime's form has none) is in UTC.
            date = date if date.tzinfo else date.replace(tzinfo=UTC)
            seconds = date.timestamp() - now_unix
        except (ValueError, TypeError, OverflowError):
            return 0.0
    return min(max(seconds, 0.0), maximum)
