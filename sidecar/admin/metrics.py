"""Metrics for a scraper."""

from __future__ import annotations

from fastapi import APIRouter, Response

from sidecar.admin.asked import AskedView

router = APIRouter(tags=["state"])

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@router.get(
    "/metrics",
    summary="Metrics in the text format of Prometheus",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
async def metrics(view: AskedView) -> Response:
    """All of one moment; the series of a partition end with its assignment."""
    return Response(view.metrics(), media_type=MEDIA_TYPE)
