"""What the admin surface shows, read from the running parts.

Everything is read on the loop and answered from memory. A fetch thread counts as blocked when it
has not come round for BLOCKED_SECONDS: longer than any wait of its own, so that neither an absent
broker nor an absent application restarts the pod.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from threading import Thread
from typing import Final, NamedTuple

from sidecar import __version__
from sidecar.dispatch.causes import Now, causes
from sidecar.dispatch.route import Phase, Route
from sidecar.dispatch.status import executing_records, partition_statuses, route_status
from sidecar.kafka.fetcher import Fetcher
from sidecar.status import (
    CauseName,
    ExecutingRecord,
    ExposureStatus,
    PartitionStatus,
    RouteStatus,
    Status,
)

BLOCKED_SECONDS: Final = 180.0

# The application or the brokers are away.
_NOT_READY: Final = frozenset(
    {
        CauseName.WAITING_FOR_APP,
        CauseName.HELD,
        CauseName.PARKED_IN_A_ROW,
        CauseName.LEFT_GROUP,
        CauseName.KAFKA_TROUBLE,
    }
)


class Vertical(NamedTuple):
    """One route and the thread that fetches for it."""

    route: Route
    fetcher: Fetcher
    thread: Thread


class Overview:
    """See admin.view.View. stopping is set when the drain begins, drained when all have ended."""

    def __init__(
        self,
        verticals: Sequence[Vertical],
        loop: asyncio.AbstractEventLoop,
        stopping: asyncio.Event,
        drained: asyncio.Event,
        *,
        partition_metrics: bool = True,
        strict_readiness: bool = False,
    ) -> None:
        self._verticals = verticals
        self._loop = loop
        self._stopping = stopping
        self._drained = drained
        self._partition_metrics = partition_metrics
        self._strict_readiness = strict_readiness
        self._started_at = time.time()

    def alive(self) -> str | None:
        for route, fetcher, thread in self._verticals:
            name = route.settings.name
            if route.phase in (Phase.WAITING, Phase.ENDED):
                continue
            if not thread.is_alive():
                return f"route {name}: the fetch thread is dead"
            stalled = time.monotonic() - fetcher.last_step_at
            if stalled > BLOCKED_SECONDS:
                return f"route {name}: the fetch thread has been blocked for {stalled:.0f} s"
        return None

    def started(self) -> bool:
        return True

    def ready(self) -> str | None:
        why_not = self.alive()
        if why_not is not None or not self._strict_readiness:
            return why_not
        now = self._now()
        for route, _, _ in self._verticals:
            for cause in causes(route, now):
                if cause.cause in _NOT_READY:
                    return f"route {route.settings.name}: {cause.cause.value}: {cause.detail}"
        return None

    def status(self) -> Status:
        now = self._now()
        routes = self._routes(now)
        return Status(
            version=__version__,
            started_at=datetime.fromtimestamp(round(self._started_at, 3), UTC),
            uptime_seconds=round(now.wall - self._started_at, 3),
            alive=self.alive() is None,
            started=self.started(),
            ready=self.ready() is None,
            drained=self._drained.is_set(),
            in_flight=sum(route.in_flight for route in routes),
            exposure=ExposureStatus(
                sum(route.exposure.would_lose for route in routes),
                sum(route.exposure.would_repeat for route in routes),
            ),
            routes=routes,
        )

    def routes(self) -> Sequence[RouteStatus]:
        return self._routes(self._now())

    def partitions(self) -> Sequence[PartitionStatus]:
        now = self._now()
        return [
            partition
            for route, fetcher, _ in self._verticals
            for partition in partition_statuses(route, now, fetcher.ends, fetcher.paused)
        ]

    def metrics(self) -> bytes:
        # Imported when the first scraper asks: without one it costs no start and no memory.
        from sidecar.telemetry.metrics import RouteTimes, exposition  # noqa: PLC0415

        routes = self.routes()
        times = [
            RouteTimes(route.settings.name, route.timings.attempts, route.timings.delays)
            for route, _, _ in self._verticals
        ]
        return exposition(routes, self.partitions(), times, by_partition=self._partition_metrics)

    def executing(self, limit: int, *, payload: bool = False) -> Sequence[ExecutingRecord]:
        now = self._now()
        records = [
            record
            for route, _, _ in self._verticals
            for record in executing_records(route, now, limit, payload=payload)
        ]
        return sorted(records, key=lambda record: -record.executing_seconds)[:limit]

    async def wait_drained(self, seconds: float, begins_within: float | None = None) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                if begins_within is not None:
                    async with asyncio.timeout(begins_within):
                        await self._stopping.wait()
                await self._drained.wait()
        return self._drained.is_set()

    def _routes(self, now: Now) -> list[RouteStatus]:
        return [route_status(route, now) for route, _, _ in self._verticals]

    def _now(self) -> Now:
        return Now(self._loop.time(), time.time())
