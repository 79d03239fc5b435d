"""What the statuses and bodies of answers mean: the table of the contract, and its variants.

A table belongs to a route: a preset (the rules of a system the application was written for),
and above it what the operator overrides by status or range. Tables are made at the start and
never changed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from sidecar.core.presets import Preset
from sidecar.model import Outcome


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


APP_DROP: Final = "app_drop"  # the application asked for it: the record failed nothing

DELIVERED: Final = Verdict(Outcome.DELIVERED, "delivered")
RETRY: Final = Verdict(Outcome.RETRY, "status_retry")
_TOO_EARLY: Final = Verdict(Outcome.RETRY, "status_retry", unprocessed=True)
_DEFERRED: Final = Verdict(Outcome.DEFERRED, "status_deferred", unprocessed=True)
_REJECTED: Final = Verdict(Outcome.REJECTED, "status_rejected")
MISROUTED: Final = Verdict(Outcome.APP_DOWN, "status_app_down")
TOLD_TO_RETRY: Final = Verdict(Outcome.RETRY, "answer_retry")
_TOLD_TO_DROP: Final = Verdict(Outcome.REJECTED, APP_DROP)

_BY_OUTCOME: Final[Mapping[Outcome, Verdict]] = {
    Outcome.DELIVERED: DELIVERED,
    Outcome.DEFERRED: _DEFERRED,
    Outcome.RETRY: RETRY,
    Outcome.REJECTED: _REJECTED,
    Outcome.APP_DOWN: MISROUTED,
}
SETTABLE: Final = tuple(_BY_OUTCOME)  # outcomes that an answer can be given

_EVERY_STATUS: Final = range(100, 600)
_BUSY: Final = {425: _TOO_EARLY, 429: _DEFERRED, 503: _DEFERRED}


class AnswerTable:
    """The meaning of every answer on one route.

    read looks into the body of what would be delivered by its status; None: bodies are not read.
    hold_unknown_path: a 404 before the first delivery may mean that the application is still
    registering its routes, and holds intake.
    """

    __slots__ = ("by_status", "hold_unknown_path", "read")

    def __init__(
        self,
        by_status: Mapping[int, Verdict],
        read: Callable[[bytes], Verdict] | None = None,
        *,
        hold_unknown_path: bool = False,
    ) -> None:
        self.by_status: Final = dict(by_status)
        self.read: Final = read
        self.hold_unknown_path: Final = hold_unknown_path


# --- bodies -------------------------------------------------------------------------------------


def _read_dapr(body: bytes) -> Verdict:
    """{"status": "SUCCESS" | "RETRY" | "DROP"}; what is not that says nothing."""
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return DELIVERED
    if not isinstance(answer, dict):
        return DELIVERED
    # Dapr compares the member's name without case.
    said = next((text for name, text in answer.items() if name.lower() == "status"), "")
    if not isinstance(said, str) or said in ("", "SUCCESS"):
        return DELIVERED
    return _TOLD_TO_DROP if said == "DROP" else TOLD_TO_RETRY


def _read_lambda(body: bytes) -> Verdict:
    """{"batchItemFailures": [...]} of a batch of one.

    Naming the record means that it failed, naming anything else that the whole batch did: so
    whatever is named is tried again, and so is what cannot be read.
    """
    if not body.strip():
        return DELIVERED
    try:
        answer: Any = json.loads(body)
    except (ValueError, RecursionError):
        return TOLD_TO_RETRY
    if answer is None:
        return DELIVERED
    if not isinstance(answer, dict) or answer.get("batchItemFailures"):
        return TOLD_TO_RETRY
    return DELIVERED


# --- presets ------------------------------------------------------------------------------------


def _statuses(*parts: tuple[range | tuple[int, ...], Verdict]) -> dict[int, Verdict]:
    """A line for every status; later parts are above earlier ones."""
    return {status: verdict for statuses, verdict in parts for status in statuses}


_DEFAULT: Final = _statuses(
    (range(100, 200), RETRY),
    (range(200, 300), DELIVERED),
    (range(300, 400), MISROUTED),
    (range(400, 500), _REJECTED),
    (range(500, 600), RETRY),
    ((401, 403, 405, 501), MISROUTED),
    ((408,), RETRY),
)
# 429 and 503 are tries again to all of them; waiting as the application asks does them no harm.
_PRESETS: Final[Mapping[Preset, AnswerTable]] = {
    Preset.DEFAULT: AnswerTable(_DEFAULT | _BUSY, hold_unknown_path=True),
    Preset.DAPR: AnswerTable(
        _statuses((_EVERY_STATUS, RETRY), (range(200, 300), DELIVERED), ((404,), _TOLD_TO_DROP))
        | _BUSY,
        _read_dapr,
        hold_unknown_path=True,
    ),
    Preset.KNATIVE: AnswerTable(
        _statuses(
            (_EVERY_STATUS, _REJECTED),
            (range(200, 300), DELIVERED),
            (range(500, 600), RETRY),
            ((404, 408, 409), RETRY),
            ((429, 503), _DEFERRED),
        )
    ),
    Preset.PUBSUB: AnswerTable(
        _statuses((_EVERY_STATUS, RETRY), ((102, 200, 201, 202, 204), DELIVERED)) | _BUSY
    ),
    Preset.LAMBDA: AnswerTable(
        _statuses((_EVERY_STATUS, RETRY), (range(200, 300), DELIVERED)) | _BUSY, _read_lambda
    ),
}
DEFAULT_ANSWERS: Final = _PRESETS[Preset.DEFAULT]


# --- overrides ----------------------------------------------------------------------------------

_STATUSES: Final = re.compile(r"([1-5])xx|([1-5][0-9]{2})(?:-([1-5][0-9]{2}))?")


def parse_statuses(text: str) -> range:
    """409, 5xx or 300-399 as a range. Raises ValueError."""
    found = _STATUSES.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not a status (409), a class (5xx) or a range (300-399)")
    hundreds, first, last = found.groups()
    if hundreds:
        return range(int(hundreds) * 100, int(hundreds) * 100 + 100)
    statuses = range(int(first), int(last or first) + 1)
    if not statuses:
        raise ValueError(f"{text!r} ends before it begins")
    return statuses


def clash(one: range, other: range) -> bool:
    """True if two ranges share statuses, and neither is an exception to the other."""
    inside = one[0] >= other[0] and one[-1] <= other[-1]
    around = one[0] <= other[0] and one[-1] >= other[-1]
    shared = one[0] <= other[-1] and other[0] <= one[-1]
    return one == other or (shared and not (inside or around))


def answer_table(
    preset: Preset, overrides: Mapping[str, Outcome], *, reads: bool = True
) -> AnswerTable:
    """The preset's table below the overrides, of which the narrower is above the wider.

    reads=False leaves out what the preset reads of bodies.
    """
    base = _PRESETS[preset]
    if not overrides and reads:
        return base
    by_status = dict(base.by_status)
    hold = base.hold_unknown_path
    lines = [(parse_statuses(text), outcome) for text, outcome in overrides.items()]
    for statuses, outcome in sorted(lines, key=lambda line: -len(line[0])):
        by_status.update(dict.fromkeys(statuses, _BY_OUTCOME[outcome]))
        hold = hold and 404 not in statuses
        if outcome is Outcome.RETRY and 425 in statuses:
            by_status[425] = _TOO_EARLY
    return AnswerTable(by_status, base.read if reads else None, hold_unknown_path=hold)
