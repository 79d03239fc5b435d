"""Everything at a glance, again every second: a stream of server-sent events for the dashboard.

Owner: the application has one Feed; the streams belong to their requests.

Invariants:
* While nobody listens nothing is made; what is made is made once, for all streams.
* Nothing is kept for a slow reader: it gets the newest snapshot or none, and is cut off by its
  connection when it takes nothing at all.
* No more than MOST_STREAMS at once. They end with the server, which waits for none of them.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Annotated, Final

from fastapi import APIRouter, Depends, HTTPException, Request
from fastapi.responses import StreamingResponse
from pydantic import TypeAdapter
from starlette.types import Receive, Scope, Send

from sidecar.admin.view import View
from sidecar.status import ExecutingRecord, PartitionStatus, Status

router = APIRouter(prefix="/v1/events", tags=["state"])

MEDIA_TYPE: Final = "text/event-stream"
EVERY_SECONDS: Final = 1.0
MOST_STREAMS: Final = 16
# What a person looks at; a snapshot of thousands would cost the dispatch, which has the same loop.
PARTITIONS_SHOWN: Final = 100
EXECUTING_SHOWN: Final = 20


@dataclass(frozen=True, slots=True)
class Behind:
    """Of one route, in records; without what is not due yet in retry topics.

    lag: ends of the partitions minus watermarks, so done records behind a slow one count;
    unfetched: what is not fetched yet. That and in_flight are the backlog.
    """

    lag: int
    unfetched: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One event. partitions: those furthest behind, of so many; executing: the oldest requests.

    behind: by route, over all of its partitions whose end is known.
    """

    status: Status
    behind: dict[str, Behind]
    partitions: list[PartitionStatus]
    partition_count: int
    executing: list[ExecutingRecord]


_SNAPSHOT: Final = TypeAdapter(Snapshot)


class Feed:
    """The newest snapshot as an event, for as many streams as there are."""

    def __init__(self, view: View) -> None:
        self.streams = 0
        self._view = view
        self._event = b""
        self._made_in = -1  # which interval of the loop's clock

    async def events(self) -> AsyncIterator[bytes]:
        """The first at once, then one an interval, all streams at the same moments."""
        loop = asyncio.get_running_loop()
        while True:
            now = loop.time()
            # A timer may end a little early.
            interval = math.floor(now / EVERY_SECONDS + 0.05)
            if interval != self._made_in:
                self._event = event(self._view)
                self._made_in = interval
            yield self._event
            await asyncio.sleep((interval + 1) * EVERY_SECONDS - now)


class Stream(StreamingResponse):
    """A response that counts for as long as it lasts."""

    def __init__(self, feed: Feed) -> None:
        super().__init__(feed.events(), media_type=MEDIA_TYPE)
        self._feed = feed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._feed.streams += 1
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._feed.streams -= 1


async def _feed(request: Request) -> Feed:
    feed: Feed = request.app.state.feed
    return feed


@router.get(
    "",
    summary="Everything at a glance, again every second",
    response_class=StreamingResponse,
    responses={
        200: {
            "description": "One event a second, without a name; its data is a Snapshot as JSON",
            "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Snapshot"}}},
        }
    },
)
async def events(feed: Annotated[Feed, Depends(_feed)]) -> Stream:
    """Server-sent events, until one of both sides ends it. 503 where too many listen already."""
    if feed.streams >= MOST_STREAMS:
        raise HTTPException(
            503,
            f"{MOST_STREAMS} streams are open, more are not served; close a dashboard",
            headers={"retry-after": "10"},
        )
    return Stream(feed)


def snapshot(view: View) -> Snapshot:
    partitions = view.partitions()
    behind: dict[str, Behind] = {}
    for each in partitions:
        if each.lag is not None and each.unfetched is not None:
            so_far = behind.get(each.route, Behind(0, 0))
            behind[each.route] = Behind(so_far.lag + each.lag, so_far.unfetched + each.unfetched)
    furthest = sorted(partitions, key=lambda each: -1 if each.lag is None else each.lag)
    return Snapshot(
        status=view.status(),
        behind=behind,
        partitions=furthest[: -PARTITIONS_SHOWN - 1 : -1],
        partition_count=len(partitions),
        executing=list(view.executing(EXECUTING_SHOWN)),
    )


def event(view: View) -> bytes:
    # JSON has no line break of its own, so that one line holds it.
    return b"data: " + _SNAPSHOT.dump_json(snapshot(view)) + b"\n\n"
