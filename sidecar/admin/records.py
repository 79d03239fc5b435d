"""Single records: those whose requests run. What they hold is shown only to who may see it."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Query, Request

from sidecar.admin.access import Access
from sidecar.admin.asked import AskedView
from sidecar.status import ExecutingRecord

router = APIRouter(prefix="/v1/in-flight", tags=["records"])

MOST_WITH_PAYLOAD: Final = 100


@router.get("", summary="The records whose requests run, the oldest request first")
async def in_flight(
    view: AskedView,
    request: Request,
    limit: Annotated[int, Query(ge=1, le=10_000, description="at most so many")] = 100,
    payload: Annotated[
        bool,
        Query(
            description="with key, value and headers, cut to 1 024 bytes each, of 100 records at"
            " most; needs the token, or the Unix socket"
        ),
    ] = False,
) -> list[ExecutingRecord]:
    if not payload:
        return list(view.executing(limit))
    access: Access = request.app.state.access
    access.check(request)
    return list(view.executing(min(limit, MOST_WITH_PAYLOAD), payload=True))
