"""Routes: how deep, how fast, why slow or stopped; and what may be changed while they run.

A PUT replaces one number of one route; it lasts until the process ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Path, Response
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from sidecar.admin.asked import AskedView
from sidecar.admin.changes import AskedChange, etag, find_route
from sidecar.errors import Conflict
from sidecar.status import (
    AvailabilityStatus,
    ExecutorsStatus,
    RateLimitStatus,
    RecordAction,
    RecordPlace,
    RouteState,
    RouteStatus,
    ThresholdStatus,
)

router = APIRouter(prefix="/v1/routes", tags=["routes"])

Name = Annotated[str, Path(description="the route's name", examples=["orders"])]


def whole(value: object) -> object:
    """20.0 is a whole number in JSON."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Whole = Annotated[int, BeforeValidator(whole)]


class Wanted(BaseModel):
    """A body: nothing is converted, and nothing unknown is passed over."""

    model_config = ConfigDict(extra="forbid", strict=True)


class WantedExecutors(Wanted):
    """How many requests may run at once."""

    count: Whole = Field(ge=0, le=10_000, description="0 dispatches nothing", examples=[20])


class WantedThreshold(Wanted):
    """How many records may be in flight."""

    threshold: Whole = Field(ge=1, le=1_000_000, description="in records", examples=[1000])


class WantedRateLimit(Wanted):
    """How many records may start per second."""

    max_records_per_second: float | None = Field(
        gt=0,
        le=1_000_000,
        allow_inf_nan=False,
        description="null: as many as can be",
        examples=[50.0],
    )


@dataclass(frozen=True, slots=True)
class RouteStateNow:
    """Whether a route dispatches, after pause or resume."""

    state: RouteState


@dataclass(frozen=True, slots=True)
class RecordTreated:
    """What was done with one record. was: where it was found."""

    route: str
    topic: str
    partition: int
    offset: int
    action: RecordAction
    was: RecordPlace


@router.get("", summary="All routes")
async def routes(view: AskedView) -> list[RouteStatus]:
    """In the order of the configuration."""
    return list(view.routes())


@router.get("/{name}", summary="One route")
async def route(view: AskedView, name: Name, response: Response) -> RouteStatus:
    """Its ETag changes whenever an operator changes the route."""
    return _read(view, name, response)


@router.get("/{name}/executors", summary="How many requests may run at once, and do")
async def executors(view: AskedView, name: Name, response: Response) -> ExecutorsStatus:
    return _read(view, name, response).executors


@router.put("/{name}/executors", summary="Change how many requests may run at once")
async def set_executors(
    change: AskedChange, name: Name, wanted: WantedExecutors
) -> ExecutorsStatus:
    """Grows at once. Shrinking cancels nothing: running is above wanted until requests end."""
    change.of_route(
        name,
        "executors",
        lambda: change.control.set_executors(name, wanted.count),
        lambda route: route.executors.wanted,
    )
    return find_route(change.view, name).executors


@router.get("/{name}/threshold", summary="How many records may be in flight, and are")
async def threshold(view: AskedView, name: Name, response: Response) -> ThresholdStatus:
    return _read(view, name, response).thresholds


@router.put("/{name}/threshold", summary="Change how many records may be in flight")
async def set_threshold(
    change: AskedChange, name: Name, wanted: WantedThreshold
) -> ThresholdStatus:
    """Lowered, it takes effect as records settle. In at_most_once it is the loss budget as well."""
    change.of_route(
        name,
        "threshold",
        lambda: change.control.set_threshold(name, wanted.threshold),
        lambda route: route.thresholds.wanted,
    )
    return find_route(change.view, name).thresholds


@router.get("/{name}/rate-limit", summary="How many records may start per second")
async def rate_limit(view: AskedView, name: Name, response: Response) -> RateLimitStatus:
    return _read(view, name, response).rate_limit


@router.put("/{name}/rate-limit", summary="Change how many records may start per second")
async def set_rate_limit(
    change: AskedChange, name: Name, wanted: WantedRateLimit
) -> RateLimitStatus:
    change.of_route(
        name,
        "rate limit",
        lambda: change.control.set_rate(name, wanted.max_records_per_second),
        lambda route: route.rate_limit.wanted,
    )
    return find_route(change.view, name).rate_limit


@router.post("/{name}/pause", summary="Dispatch nothing until resumed")
async def pause(change: AskedChange, name: Name) -> RouteStateNow:
    """What executes is finished; the group membership stays."""
    change.of_route(name, "state", lambda: change.control.pause(name), _state)
    return RouteStateNow(find_route(change.view, name).state)


@router.post("/{name}/resume", summary="Go on after a pause, or after on_exhausted: halt")
async def resume(change: AskedChange, name: Name) -> RouteStateNow:
    change.of_route(name, "state", lambda: change.control.resume(name), _state)
    return RouteStateNow(find_route(change.view, name).state)


@router.get("/{name}/breaker", summary="What is known of the app")
async def breaker(view: AskedView, name: Name, response: Response) -> AvailabilityStatus:
    return _read(view, name, response).availability


@router.post("/{name}/breaker/reset", summary="Send records to a held app again, at once")
async def reset_breaker(change: AskedChange, name: Name) -> AvailabilityStatus:
    """Without waiting for a trial to succeed. 409 where nothing is held."""

    def reset() -> None:
        if not change.control.reset_breaker(name):
            raise Conflict("nothing is held: the app is up, or was not there yet")

    change.of_route(name, "breaker", reset, lambda route: route.availability.state)
    return find_route(change.view, name).availability


@router.post("/{name}/records/{topic}/{partition}/{offset}/{action}", summary="Treat one record")
async def treat_record(
    change: AskedChange,
    name: Name,
    topic: Annotated[str, Path(examples=["orders"])],
    partition: Annotated[int, Path(ge=0, le=2**31 - 1, examples=[0])],
    offset: Annotated[int, Path(ge=0, le=2**63 - 1, examples=[17])],
    action: RecordAction,
) -> RecordTreated:
    """Park it, drop it (settled and counted), or retry it now; a running request is cut first.

    404 if it is not in flight here; 409 with the reason where it cannot be done.
    """
    change.check_match(find_route(change.view, name))
    was = change.control.treat_record(name, action, topic, partition, offset)
    change.tell(f"record {topic}/{partition}/{offset} of route {name}", was, action)
    return RecordTreated(name, topic, partition, offset, action, was)


def _read(view: AskedView, name: str, response: Response) -> RouteStatus:
    found = find_route(view, name)
    response.headers["etag"] = etag(found)
    return found


def _state(route: RouteStatus) -> Any:
    return route.state
