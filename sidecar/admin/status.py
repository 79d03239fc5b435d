"""Everything at a glance."""

from __future__ import annotations

from fastapi import APIRouter

from sidecar.admin.asked import AskedView
from sidecar.status import Status

router = APIRouter(prefix="/v1/status", tags=["state"])


@router.get("", summary="Everything at a glance")
async def status(view: AskedView) -> Status:
    """Health, exposure and all routes, of one moment."""
    return view.status()
