"""Single records: those whose requests run. No payloads."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from sidecar.admin.asked import AskedView
from sidecar.status import ExecutingRecord

router = APIRouter(prefix="/v1/in-flight", tags=["records"])


@router.get("", summary="The records whose requests run, the oldest request first")
async def in_flight(
    view: AskedView,
    limit: Annotated[int, Query(ge=1, le=10_000, description="at most so many")] = 100,
) -> list[ExecutingRecord]:
    return list(view.executing(limit))
