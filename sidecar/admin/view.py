"""What the admin surface wants to know: implemented by the runtime, and by a fake in tests.

Everything is called on the loop and answers at once from memory; only wait_drained waits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from sidecar.status import ExecutingRecord, PartitionStatus, RouteStatus, Status


class View(Protocol):
    def alive(self) -> str | None:
        """None, or why the process must be restarted: a fetch thread is blocked or dead."""

    def started(self) -> bool:
        """The parts are built and running; the application and the broker may be away."""

    def ready(self) -> str | None:
        """None, or why the pod is to get no traffic."""

    def status(self) -> Status: ...

    def routes(self) -> Sequence[RouteStatus]:
        """In the order of the configuration."""

    def partitions(self) -> Sequence[PartitionStatus]: ...

    def metrics(self) -> bytes:
        """For a scraper: the text format of Prometheus, version 0.0.4."""

    def executing(self, limit: int, *, payload: bool = False) -> Sequence[ExecutingRecord]:
        """The records whose requests run, the oldest request first, at most so many.

        payload: with what they hold.
        """

    async def wait_drained(self, seconds: float, begins_within: float | None = None) -> bool:
        """True as soon as every route has finished its drain; False after so many seconds.

        False as well if no drain has begun after begins_within seconds.
        """
