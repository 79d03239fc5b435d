"""What concerns the whole process: its end, and how much it logs."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from sidecar.admin.asked import AskedControl, while_asked
from sidecar.admin.changes import AskedChange, etag_of_all
from sidecar.admin.health import LONGEST_WAIT_SECONDS, Drained

router = APIRouter(prefix="/v1", tags=["process"])


class Level(Enum):
    """Severity of a log entry."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogLevel(BaseModel):
    """The least severe level that is written; the audit log is written at every one."""

    model_config = ConfigDict(extra="forbid")

    level: Level = Field(examples=["debug"])


@router.post("/drain", summary="Finish what executes, and end the process")
async def drain(
    request: Request,
    change: AskedChange,
    wait_seconds: Annotated[
        float,
        Query(
            ge=0,
            le=LONGEST_WAIT_SECONDS,
            allow_inf_nan=False,
            description="answer when it is done, but no later than this",
        ),
    ] = 0.0,
) -> Drained:
    """As SIGTERM does. A second time changes nothing, it waits as well.

    If-Match takes the ETag of /v1/status.
    """
    change.check_tag(etag_of_all(change.view.routes()), "a route")
    change.tell("drain", "running", "draining")
    change.control.drain()
    return Drained(await while_asked(request, change.view.wait_drained(wait_seconds)))


@router.get("/log-level", summary="How much is logged")
async def log_level(control: AskedControl, response: Response) -> LogLevel:
    level = control.log_level()
    response.headers["etag"] = _etag(level)
    return LogLevel(level=Level(level))


@router.put("/log-level", summary="Change how much is logged")
async def set_log_level(change: AskedChange, wanted: LogLevel, response: Response) -> LogLevel:
    before = change.control.log_level()
    change.check_tag(_etag(before), "the log level")
    change.control.set_log_level(wanted.level.value)
    change.tell("log level", before, wanted.level)
    response.headers["etag"] = _etag(wanted.level.value)
    return wanted


def _etag(level: str) -> str:
    return f'"{level}"'
