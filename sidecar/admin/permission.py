"""Whether who asks may change anything: what a page has to know before it offers to."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus

from fastapi import APIRouter, HTTPException, Request

from sidecar.admin.access import Access

router = APIRouter(prefix="/v1/access", tags=["process"])


@dataclass(frozen=True, slots=True)
class Permission:
    """Whether who asks may change anything; reason: why not.

    token_helps: whether the right token would; there may be none.
    """

    may_change: bool
    token_helps: bool
    reason: str


@router.get("", summary="Whether you may change anything")
async def access(request: Request) -> Permission:
    """Changes nothing, and is answered with 200 either way: ask with the token you would use."""
    asked: Access = request.app.state.access
    try:
        asked.check(request)
    except HTTPException as refusal:
        helps = refusal.status_code == HTTPStatus.UNAUTHORIZED
        return Permission(False, helps, refusal.detail)
    return Permission(True, True, "")
