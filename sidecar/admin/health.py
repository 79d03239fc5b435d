"""Probes of the kubelet, and waiting for the end of a drain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, HTTPException, Query, Request

from sidecar.admin.asked import AskedView, while_asked

router = APIRouter(tags=["health"])

LONGEST_WAIT_SECONDS = 3600


@dataclass(frozen=True, slots=True)
class Health:
    """Answered with 200; anything else is a problem."""

    status: str


@dataclass(frozen=True, slots=True)
class Drained:
    """drained is false when the time was over first."""

    drained: bool


_OK = Health("ok")


@router.get("/livez", summary="Whether the process works at all")
async def livez(view: AskedView) -> Health:
    """503 when a fetch thread is blocked or dead: only a restart helps."""
    return _healthy(view.alive())


@router.get("/startupz", summary="Whether the process has started")
async def startupz(view: AskedView) -> Health:
    """Needs neither the app nor the broker."""
    return _healthy(None if view.started() else "not started yet")


@router.get("/readyz", summary="Whether the pod is to get traffic")
async def readyz(view: AskedView) -> Health:
    return _healthy(view.ready())


@router.get("/v1/drained", summary="Wait until the drain is finished")
async def drained(
    request: Request,
    view: AskedView,
    wait_seconds: Annotated[
        float,
        Query(
            ge=0,
            le=LONGEST_WAIT_SECONDS,
            allow_inf_nan=False,
            description="answer no later than this",
        ),
    ] = 0.0,
    begins_within_seconds: Annotated[
        float | None,
        Query(
            ge=0,
            le=LONGEST_WAIT_SECONDS,
            allow_inf_nan=False,
            description="answer after this if no drain has begun by then",
        ),
    ] = None,
) -> Drained:
    """Only waits: it starts no drain. Answers as soon as every route has finished its own.

    Fit for the preStop hook of the app. begins_within_seconds is for when the app alone is
    restarted, say after a failed liveness probe: its hook runs then as well, and no drain comes.
    """
    return Drained(
        await while_asked(request, view.wait_drained(wait_seconds, begins_within_seconds))
    )


def _healthy(trouble: str | None) -> Health:
    if trouble is not None:
        raise HTTPException(503, trouble)
    return _OK
