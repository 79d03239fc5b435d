"""Routes: how deep, how fast, and why slow or stopped."""

from __future__ import annotations

from fastapi import APIRouter, HTTPException

from sidecar.admin.asked import AskedView
from sidecar.status import RouteStatus

router = APIRouter(prefix="/v1/routes", tags=["routes"])


@router.get("", summary="All routes")
async def routes(view: AskedView) -> list[RouteStatus]:
    """In the order of the configuration."""
    return list(view.routes())


@router.get("/{name}", summary="One route")
async def route(view: AskedView, name: str) -> RouteStatus:
    known = {each.name: each for each in view.routes()}
    if name not in known:
        raise HTTPException(404, f"no route has this name; there are: {', '.join(known)}")
    return known[name]
