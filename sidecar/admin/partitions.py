"""Partitions: assignment, and how far they are."""

from __future__ import annotations

from fastapi import APIRouter

from sidecar.admin.asked import AskedView
from sidecar.status import PartitionStatus

router = APIRouter(prefix="/v1/partitions", tags=["partitions"])


@router.get("", summary="The partitions that this member owns")
async def partitions(view: AskedView) -> list[PartitionStatus]:
    return list(view.partitions())
