"""An admin server on real sockets over a view and a control that say and do what the test wants.

Purpose: tests of the admin surface without an engine. Owner: the test.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeVar

import httpx
import uvloop

from sidecar.admin.server import Address, AdminServer
from sidecar.errors import Conflict, NotFound
from sidecar.model import Guarantee
from sidecar.settings import AdminSettings
from sidecar.status import (
    AppState,
    AvailabilityStatus,
    Cause,
    CauseName,
    CountersStatus,
    ExecutingRecord,
    ExecutorsStatus,
    ExposureStatus,
    HeaderStatus,
    PartitionStatus,
    PayloadStatus,
    PercentilesStatus,
    RateLimitStatus,
    RatesStatus,
    RecordAction,
    RecordPlace,
    RouteState,
    RouteStatus,
    Status,
    ThresholdStatus,
)
from sidecar.telemetry.metrics import exposition

TOKEN: Final = "open-sesame"
T = TypeVar("T")

NOON: Final = datetime(2026, 1, 2, 12, 0, tzinfo=UTC)
ORDERS: Final = RouteStatus(
    name="orders",
    target="http://127.0.0.1:8080/events/{topic}",
    guarantee=Guarantee.AT_LEAST_ONCE,
    state=RouteState.RUNNING,
    threshold=1000,
    threshold_bytes=16_777_216,
    buffered=5,
    executing=2,
    delayed=3,
    parking=1,
    in_flight=10,
    in_flight_bytes=2000,
    oldest_age_seconds=1.5,
    executors=ExecutorsStatus(configured=16, wanted=2, effective=2, running=2, busy=2),
    thresholds=ThresholdStatus(1000, 1000, 1000, 10, the_loss_budget=False),
    rate_limit=RateLimitStatus(None, None),
    exposure=ExposureStatus(would_lose=0, would_repeat=7),
    availability=AvailabilityStatus(AppState.UP, NOON, ""),
    causes=[Cause(CauseName.EXECUTORS_BUSY, NOON, "all are busy", "raise the number")],
    rates=RatesStatus(10.0, 9.5, 0.5, 0.0),
    attempt_seconds=PercentilesStatus(0.01, 0.2, None),
    counters=CountersStatus(100, 90, 4, 3, 2, 1, 0, 2, 0, 1, 1, 0, 5, 0, {"status_retry": 4}),
    generation=7,
)
PAYLOAD: Final = PayloadStatus("azE=", None, [HeaderStatus("h", None)], truncated=False)
PARTITION: Final = PartitionStatus(
    "orders",
    "orders",
    0,
    1,
    40,
    42,
    8,
    3,
    None,
    None,
    oldest_offset=42,
    oldest_age_seconds=1.5,
    delay_seconds=None,
)


class FakeView:
    def __init__(self) -> None:
        self.dead: str | None = None
        self.unready: str | None = None
        self.is_started = True
        self.is_drained = asyncio.Event()
        self.broken = False
        self.waiting = asyncio.Event()  # somebody waits for the drain
        self.orders = ORDERS

    def alive(self) -> str | None:
        return self.dead

    def started(self) -> bool:
        return self.is_started

    def ready(self) -> str | None:
        return self.unready

    def status(self) -> Status:
        if self.broken:
            raise RuntimeError("a secret of the inside")
        exposure = ExposureStatus(0, 7)
        return Status("1.2.3", NOON, 60.0, True, True, True, False, 10, exposure, [self.orders])

    def routes(self) -> list[RouteStatus]:
        return [self.orders]

    def partitions(self) -> list[PartitionStatus]:
        return [PARTITION]

    def metrics(self) -> bytes:
        return exposition([self.orders], [PARTITION])

    def executing(self, limit: int, *, payload: bool = False) -> list[ExecutingRecord]:
        held = PAYLOAD if payload else None
        return [
            ExecutingRecord("orders", "orders", 0, n, 1, 9.5 - n, 2.0, held)
            for n in range(min(3, limit))
        ]

    async def wait_drained(self, seconds: float) -> bool:
        self.waiting.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.is_drained.wait()
        return self.is_drained.is_set()


class FakeControl:
    """Changes what the view shows, and remembers what it was asked for."""

    def __init__(self, view: FakeView) -> None:
        self.view = view
        self.asked: list[tuple[object, ...]] = []
        self.held = True
        self.level = "info"
        self.refusal: Exception | None = None

    def _change(self, **fields: Any) -> None:
        if self.refusal is not None:
            raise self.refusal
        orders = self.view.orders
        self.view.orders = replace(orders, generation=orders.generation + 1, **fields)

    def set_executors(self, route: str, count: int) -> None:
        self.asked.append(("executors", route, count))
        self._change(executors=replace(self.view.orders.executors, wanted=count))

    def set_threshold(self, route: str, records: int) -> None:
        self.asked.append(("threshold", route, records))
        before = self.view.orders.thresholds
        self._change(thresholds=replace(before, wanted=records, effective=max(records, 10)))

    def set_rate(self, route: str, records_per_second: float | None) -> None:
        self.asked.append(("rate", route, records_per_second))
        self._change(rate_limit=RateLimitStatus(None, records_per_second))

    def pause(self, route: str) -> None:
        self.asked.append(("pause", route))
        self._change(state=RouteState.PAUSED)

    def resume(self, route: str) -> None:
        self.asked.append(("resume", route))
        self._change(state=RouteState.RUNNING)

    def reset_breaker(self, route: str) -> bool:
        self.asked.append(("reset", route))
        held, self.held = self.held, False
        return held

    def treat_record(
        self, route: str, action: RecordAction, topic: str, partition: int, offset: int
    ) -> RecordPlace:
        self.asked.append((action, topic, partition, offset))
        if offset == 404:
            raise NotFound("not in flight")
        if offset == 409:
            raise Conflict("its partition is leaving")
        return RecordPlace.EXECUTING

    def drain(self) -> None:
        self.asked.append(("drain",))

    def log_level(self) -> str:
        return self.level

    def set_log_level(self, level: str) -> None:
        self.level = level


class Served:
    """A server that runs, its view and control, and a client of it.

    change sends the token, and JSON if there is any.
    """

    def __init__(self, control: FakeControl, address: Address, client: httpx.AsyncClient) -> None:
        self.view = control.view
        self.control = control
        self.address = address
        self.client = client

    async def get(self, path: str, **more: Any) -> httpx.Response:
        return await self.client.get(path, **more)

    async def change(
        self, method: str, path: str, json: object = None, **headers: str
    ) -> httpx.Response:
        sent = {"authorization": f"Bearer {TOKEN}"}
        sent.update({name.replace("_", "-"): value for name, value in headers.items()})
        more = {} if json is None else {"json": json}
        return await self.client.request(method, path, headers=sent, **more)  # type: ignore[arg-type]


@contextlib.asynccontextmanager
async def serving(
    socket_path: Path | None = None,
    settings: dict[str, Any] | None = None,
    **more: Any,
) -> AsyncIterator[Served]:
    """settings: of the admin surface; without any it has the TOKEN."""
    access = {"token": TOKEN} if settings is None else settings
    control = FakeControl(FakeView())
    admin = AdminSettings(port=0, socket=socket_path, **access)
    server = AdminServer(admin, control.view, control, **more)
    address = await server.start()
    try:
        async with httpx.AsyncClient(base_url=address.url, trust_env=False, timeout=10) as client:
            yield Served(control, address, client)
    finally:
        await server.stop()


def run(main: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)


def with_server(
    test: Callable[[Served], Awaitable[None]],
) -> Callable[[], None]:
    async def main() -> None:
        async with serving() as served:
            await test(served)

    def wrapped() -> None:
        run(main())

    wrapped.__name__, wrapped.__doc__ = test.__name__, test.__doc__
    return wrapped


def problem(response: httpx.Response, status: int) -> str:
    """The detail, after the rest was checked."""
    assert response.status_code == status
    assert response.headers["content-type"] == "application/problem+json"
    body = response.json()
    assert body.keys() == {"type", "title", "status", "detail"}
    assert body["status"] == status
    return str(body["detail"])
