"""An admin server on real sockets over a view and a control that say and do what the test wants.

Purpose: tests of the admin surface without an engine. Owner: the test.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeVar

import httpx
import uvloop

from sidecar.admin.server import Address, AdminServer
from sidecar.core.letters import By, Letter, Origin, RedriveOrder, Selection
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
    RedriveState,
    RedriveStatus,
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
    last_failure="500 Internal Server Error",
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
LETTER: Final = Letter(
    topic="orders.dlq",
    partition=0,
    offset=17,
    parked_ms=1_767_355_200_000,
    key=b"k\xff",
    value=b"v" * 2000,
    headers=[("h", None), ("i", b"1")],
    origin=Origin("orders", 3, 42, -1),
    group="billing",
    reason="rejected",
    detail="status 422",
    status=422,
    attempts=1,
    first_attempt_ms=1_767_355_199_000,
    last_attempt_ms=1_767_355_199_000,
    answer=b"no such customer",
)
REDRIVE: Final = RedriveStatus(
    route="orders",
    state=RedriveState.RUNNING,
    dry_run=False,
    started_at=NOON,
    ended_at=None,
    letters=10,
    to={"orders.billing.retry.0s": 10},
    reasons={"rejected": 10},
    refused=0,
    refused_first=[],
    too_old=0,
    error=None,
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

    async def wait_drained(self, seconds: float, begins_within: float | None = None) -> bool:
        """No drain begins here."""
        self.waiting.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds if begins_within is None else begins_within):
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


class FakeLetters:
    """Tells of one letter, remembers what it was asked for, and fails as it is told to."""

    def __init__(self) -> None:
        self.asked: list[tuple[object, ...]] = []
        self.letter_there: Letter = LETTER
        self.last: RedriveStatus | None = None
        self.refusal: Exception | None = None

    def _ask(self, *what: object) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.asked.append(what)

    async def list(
        self, route: str, selection: Selection, limit: int, *, oldest: bool, payload_bytes: int
    ) -> list[Letter]:
        self._ask("list", route, selection, limit, oldest, payload_bytes)
        return [self.letter_there]

    async def count(
        self, route: str, selection: Selection, by: By
    ) -> Counter[str | int | bytes | None]:
        self._ask("count", route, selection, by)
        return Counter({by.of(self.letter_there): 3, None: 1})

    async def letter(
        self, route: str, partition: int, offset: int, *, payload_bytes: int
    ) -> Letter | None:
        self._ask("letter", route, partition, offset, payload_bytes)
        return self.letter_there if offset == self.letter_there.offset else None

    def redrive(self, route: str, order: RedriveOrder) -> RedriveStatus:
        self._ask("redrive", route, order)
        self.last = replace(REDRIVE, route=route, dry_run=order.dry_run)
        return self.last

    def redriven(self, route: str) -> RedriveStatus | None:
        self._ask("redriven", route)
        return self.last

    def stop_redrive(self, route: str) -> RedriveStatus:
        self._ask("stop", route)
        if self.last is None:
            raise Conflict(f"no redrive of route {route} is under way")
        self.last = replace(self.last, state=RedriveState.STOPPING)
        return self.last


class Served:
    """A server that runs, its view, control and letters, and a client of it.

    change sends the token, and JSON if there is any.
    """

    def __init__(
        self,
        control: FakeControl,
        letters: FakeLetters,
        address: Address,
        client: httpx.AsyncClient,
    ) -> None:
        self.view = control.view
        self.control = control
        self.letters = letters
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
    letters = FakeLetters()
    server = AdminServer(admin, control.view, control, letters, **more)
    address = await server.start()
    try:
        async with httpx.AsyncClient(base_url=address.url, trust_env=False, timeout=10) as client:
            yield Served(control, letters, address, client)
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
