"""What an answer or a failure means: the whole table of the contract, in one place."""

from __future__ import annotations

import email.utils
from datetime import UTC
from typing import Final, NamedTuple

from sidecar.model import Answer, Failed, FailureKind, Outcome, Result


class Verdict(NamedTuple):
    """An outcome, why (a word of a closed set), and what it allows.

    opens_breaker: with app_down, hold intake at once instead of after a few in a row.
    unprocessed: the application certainly did not process the record, so that even
    at_most_once may send it again.
    """

    outcome: Outcome
    reason: str
    opens_breaker: bool = False
    unprocessed: bool = False


_DELIVERED: Final = Verdict(Outcome.DELIVERED, "delivered")
_RETRY: Final = Verdict(Outcome.RETRY, "status_retry")
_TOO_EARLY: Final = Verdict(Outcome.RETRY, "status_retry", unprocessed=True)
_DEFERRED: Final = Verdict(Outcome.DEFERRED, "status_deferred", unprocessed=True)
_REJECTED: Final = Verdict(Outcome.REJECTED, "status_rejected")
_MISROUTED: Final = Verdict(Outcome.APP_DOWN, "status_app_down")

_BY_STATUS: Final[dict[int, Verdict]] = {
    **dict.fromkeys(range(200, 300), _DELIVERED),
    **dict.fromkeys(range(300, 400), _MISROUTED),
    **dict.fromkeys(range(400, 500), _REJECTED),
    **dict.fromkeys(range(500, 600), _RETRY),
    **dict.fromkeys((401, 403, 405, 501), _MISROUTED),
    **dict.fromkeys((429, 503), _DEFERRED),
    408: _RETRY,
    425: _TOO_EARLY,
}
_UNKNOWN_STATUS: Final = _RETRY

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


def classify(result: Result, *, answered_before: bool) -> Verdict:
    """The verdict on one attempt.

    answered_before: this route was once answered 2xx. Until then a 404 may mean that the
    application is still registering its routes.
    """
    if isinstance(result, Answer):
        if result.status == 404 and not answered_before:
            return _MISROUTED
        return _BY_STATUS.get(result.status, _UNKNOWN_STATUS)
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
