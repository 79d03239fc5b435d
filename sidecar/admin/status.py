"""Everything at a glance."""

from __future__ import annotations

from fastapi import APIRouter, Response

from sidecar.admin.asked import AskedView
from sidecar.admin.changes import etag_of_all
from sidecar.status import Status

router = APIRouter(prefix="/v1/status", tags=["state"])


@router.get("", summary="Everything at a glance")
async def status(view: AskedView, response: Response) -> Status:
    """Health, exposure and all routes, of one moment. Its ETag changes with any of the routes."""
    told = view.status()
    response.headers["etag"] = etag_of_all(told.routes)
    return told
