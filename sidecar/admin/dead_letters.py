"""Dead letters of a route: look, count, and send them back while the sidecar runs.

What they hold, keys included, is shown only to who may see it, and in base64. Nothing is answered
from memory here: each question is one to the brokers, in a thread, and one at a time.
"""

from __future__ import annotations

import base64
import time
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, HTTPException, Path, Query, Request, Response
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from sidecar.admin.access import Access
from sidecar.admin.changes import AskedChange, find_route
from sidecar.admin.letters import Letters
from sidecar.admin.routes import Name, whole
from sidecar.core.answers import parse_statuses
from sidecar.core.letter_filters import AGO, date_of, key_text, parse_key, parse_moment
from sidecar.core.letters import By, Letter, RedriveOrder, Selection
from sidecar.errors import NotFound
from sidecar.status import HeaderStatus, RedriveStatus

router = APIRouter(prefix="/v1/routes/{name}/dead-letters", tags=["dead letters"])

PART_BYTES: Final = 1024  # of each part of a letter, where several are listed
ONE_PART_BYTES: Final = 2**20  # where one is shown
MOST_WITH_PAYLOAD: Final = 100
HEADERS_SHOWN: Final = 100
GROUPS_SHOWN: Final = 1000
MOST_FILTERS: Final = 50


# --- what is asked ------------------------------------------------------------------------------


def _key(text: str) -> str:
    parse_key(text)
    return text


def _moment(text: str) -> str:
    parse_moment(text, time.time())
    return text


_MOMENT_SCHEMA: Final[dict[str, Any]] = {
    "anyOf": [{"type": "string", "format": "date-time"}, {"type": "string", "pattern": f"^{AGO}$"}]
}
Text = Annotated[str, Field(min_length=1, max_length=249)]
Statuses = Annotated[str, Field(pattern="^[1-5](xx|[0-9]{2})$")]
Key = Annotated[str, AfterValidator(_key)]
Moment = Annotated[str, AfterValidator(_moment), WithJsonSchema(_MOMENT_SCHEMA)]


class Filters(BaseModel):
    """Which letters are meant: those that fit everything that is given."""

    model_config = ConfigDict(extra="forbid")

    reason: list[Text] = Field(
        default=[], max_length=MOST_FILTERS, description="as count names it; any of these"
    )
    status: list[Statuses] = Field(
        default=[], max_length=MOST_FILTERS, description="422 or 5xx; any of these"
    )
    key: list[Key] = Field(
        default=[],
        max_length=MOST_FILTERS,
        description="text, or base64:… for any bytes; any of these; needs the token",
    )
    topic: list[Text] = Field(
        default=[], max_length=MOST_FILTERS, description="the original one; any of these"
    )
    since: Moment | None = Field(
        default=None, description="parked at or after: a time, or so long ago (2h)"
    )
    until: Moment | None = Field(
        default=None, description="parked before: a time, or so long ago (2h)"
    )

    def selection(self, *, redriven: bool = False) -> Selection:
        now = time.time()
        return Selection(
            reasons=frozenset(self.reason),
            statuses=tuple(map(parse_statuses, self.status)),
            keys=frozenset(map(parse_key, self.key)),
            topics=frozenset(self.topic),
            since_ms=None if self.since is None else parse_moment(self.since, now),
            until_ms=None if self.until is None else parse_moment(self.until, now),
            redriven=redriven,
        )


class Counted(Filters):
    """What is to be counted, and by what."""

    redriven: bool = Field(default=False, description="those that were redriven as well")
    by: By = Field(default=By.REASON, description="by key needs the token")


class Listed(Filters):
    """What is to be listed."""

    redriven: bool = Field(default=False, description="those that were redriven as well")
    limit: int = Field(default=20, ge=1, le=1000, description="at most so many")
    oldest: bool = Field(default=False, description="the oldest first")
    payload: bool = Field(
        default=False,
        description="with key, value, headers and the answer, cut to 1 024 bytes each, of 100"
        " letters at most; needs the token, or the Unix socket",
    )


class WantedRedrive(Filters):
    """Which letters to send back, each at most once, and how. Nothing given: all."""

    model_config = ConfigDict(extra="forbid", strict=True)

    limit: Annotated[int, Field(ge=1, le=10**12), BeforeValidator(whole)] | None = Field(
        default=None, description="so many at most"
    )
    rate: float | None = Field(
        default=None, ge=0.01, le=1_000_000, allow_inf_nan=False, description="letters per second"
    )
    to_origin: bool = Field(
        default=False,
        description="to the original topics, as new records: other consumer groups get them too",
    )
    old: bool = Field(
        default=False,
        description="also what is older than the brokers would remember a redrive of it",
    )
    dry_run: bool = Field(default=False, description="only count what would be sent")

    def order(self) -> RedriveOrder:
        return RedriveOrder(
            self.selection(),
            to_origin=self.to_origin,
            rate=self.rate,
            limit=self.limit,
            old=self.old,
            dry_run=self.dry_run,
        )

    def words(self) -> dict[str, object]:
        """For the audit log; a key is a payload."""
        told = self.model_dump(exclude_defaults=True, exclude={"key"})
        return {**told, **({"keys": len(self.key)} if self.key else {})} or {"all": True}


def _check_access(request: Request) -> None:
    access: Access = request.app.state.access
    access.check(request)


async def _letters(request: Request) -> Letters:
    letters: Letters = request.app.state.letters
    return letters


AskedLetters = Annotated[Letters, Depends(_letters)]


# --- what is told -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LetterOrigin:
    """Where a letter came from, and when the record was made."""

    topic: str
    partition: int
    offset: int
    timestamp: datetime | None


@dataclass(frozen=True, slots=True)
class LetterPayload:
    """What a letter holds, and the beginning of the app's answer, in base64.

    truncated: each part is cut.
    """

    key: str | None
    value: str | None
    headers: list[HeaderStatus]
    answer: str | None
    truncated: bool


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One letter. origin is null, and reason unknown, where no sidecar wrote it."""

    topic: str
    partition: int
    offset: int
    parked: datetime | None
    redriven: bool
    origin: LetterOrigin | None
    group: str | None
    reason: str
    detail: str | None
    status: int | None
    attempts: int | None
    first_attempt: datetime | None
    last_attempt: datetime | None
    payload: LetterPayload | None


@dataclass(frozen=True, slots=True)
class LetterGroup:
    """So many letters with the same value; null: they have none. Keys as the filter takes them."""

    value: str | int | None
    letters: int


@dataclass(frozen=True, slots=True)
class LetterCount:
    """How many letters there are, and by what; of the groups the 1 000 largest."""

    by: By
    letters: int
    groups: list[LetterGroup]


@router.get("", summary="Dead letters, the newest first")
async def dead_letters(
    letters: AskedLetters, request: Request, name: Name, asked: Annotated[Listed, Query()]
) -> list[DeadLetter]:
    """429 while somebody else reads, 503 where the brokers do not tell in time."""
    size, limit = 0, asked.limit
    if asked.payload:
        size, limit = PART_BYTES, min(limit, MOST_WITH_PAYLOAD)
    if asked.payload or asked.key:
        _check_access(request)
    found = await letters.list(
        name,
        asked.selection(redriven=asked.redriven),
        limit,
        oldest=asked.oldest,
        payload_bytes=size,
    )
    return [_shown(each, size) for each in found]


@router.get("/count", summary="How many dead letters there are, and why")
async def count_dead_letters(
    letters: AskedLetters, request: Request, name: Name, asked: Annotated[Counted, Query()]
) -> LetterCount:
    """Reads all of them: on a topic of millions use sidecar dead-letters count."""
    if asked.by is By.KEY or asked.key:
        _check_access(request)
    counted = await letters.count(name, asked.selection(redriven=asked.redriven), asked.by)
    groups = [
        LetterGroup(key_text(value) if isinstance(value, bytes) else value, number)
        for value, number in counted.most_common(GROUPS_SHOWN)
    ]
    return LetterCount(asked.by, counted.total(), groups)


@router.get("/redrive", summary="The last redrive, its progress and result")
async def last_redrive(letters: AskedLetters, name: Name) -> RedriveStatus:
    """404 if none was begun since the start of the process."""
    found = letters.redriven(name)
    if found is None:
        raise NotFound(f"no redrive of route {name} was begun since the start")
    return found


@router.post("/redrive", status_code=202, summary="Send dead letters back, each at most once")
async def redrive(
    letters: AskedLetters,
    change: AskedChange,
    name: Name,
    wanted: WantedRedrive,
    request: Request,
    response: Response,
) -> RedriveStatus:
    """Goes on by itself; ask for its progress by GET. 409 while another one of the route runs."""
    change.check_match(find_route(change.view, name))
    begun = letters.redrive(name, wanted.order())
    change.tell(f"redrive of route {name}", None, wanted.words())
    response.headers["location"] = request.url.path
    return begun


@router.delete("/redrive", summary="End the redrive that runs")
async def stop_redrive(letters: AskedLetters, change: AskedChange, name: Name) -> RedriveStatus:
    """After the transaction that runs; a further redrive goes on there. 409 if none runs."""
    change.check_match(find_route(change.view, name))
    stopping = letters.stop_redrive(name)
    change.tell(f"redrive of route {name}", "running", stopping.state)
    return stopping


@router.get("/{partition}/{offset}", summary="One dead letter")
async def dead_letter(
    letters: AskedLetters,
    request: Request,
    name: Name,
    partition: Annotated[int, Path(ge=0, le=2**31 - 1, examples=[0])],
    offset: Annotated[int, Path(ge=0, le=2**63 - 1, examples=[17])],
    payload: Annotated[
        bool,
        Query(
            description="with key, value, headers and the answer, cut to 1 MiB each; needs the"
            " token, or the Unix socket"
        ),
    ] = False,
) -> DeadLetter:
    """Also one that was redriven. partition and offset are those in the dead-letter topic."""
    if payload:
        _check_access(request)
    size = ONE_PART_BYTES if payload else 0
    found = await letters.letter(name, partition, offset, payload_bytes=size)
    if found is None:
        raise HTTPException(404, f"the topic holds nothing at {partition}/{offset}")
    return _shown(found, size)


def _shown(letter: Letter, size: int) -> DeadLetter:
    """size: bytes of each part of what it holds; 0: nothing of that."""
    origin = letter.origin
    return DeadLetter(
        topic=letter.topic,
        partition=letter.partition,
        offset=letter.offset,
        parked=date_of(letter.parked_ms),
        redriven=letter.redriven,
        origin=None
        if origin is None
        else LetterOrigin(
            origin.topic, origin.partition, origin.offset, date_of(origin.timestamp_ms)
        ),
        group=letter.group or None,
        reason=letter.reason,
        detail=letter.detail or None,
        status=letter.status,
        attempts=letter.attempts or None,
        first_attempt=date_of(letter.first_attempt_ms),
        last_attempt=date_of(letter.last_attempt_ms),
        payload=_payload(letter, size) if size else None,
    )


def _payload(letter: Letter, size: int) -> LetterPayload:
    shown = letter.headers[:HEADERS_SHOWN]
    parts = (letter.key, letter.value, letter.answer, *(value for _, value in shown))
    return LetterPayload(
        key=_base64(letter.key, size),
        value=_base64(letter.value, size),
        headers=[HeaderStatus(name[:size], _base64(value, size)) for name, value in shown],
        answer=_base64(letter.answer or None, size),
        truncated=len(shown) < len(letter.headers)
        or any(part is not None and len(part) > size for part in parts),
    )


def _base64(part: bytes | None, size: int) -> str | None:
    return None if part is None else base64.b64encode(part[:size]).decode("ascii")
