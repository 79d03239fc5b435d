"""What the admin surface can do: implemented beside the runtime, and by a fake in tests.

Everything is called on the loop and takes effect at once. A route that is not there is NotFound;
what cannot be done now is a Conflict.
"""

from __future__ import annotations

from typing import Protocol

from sidecar.status import RecordAction, RecordPlace


class Control(Protocol):
    def set_executors(self, route: str, count: int) -> None:
        """Grow at once; shrink as requests finish."""

    def set_threshold(self, route: str, records: int) -> None: ...

    def set_rate(self, route: str, records_per_second: float | None) -> None: ...

    def pause(self, route: str) -> None: ...

    def resume(self, route: str) -> None:
        """After pause, and after on_exhausted: halt."""

    def reset_breaker(self, route: str) -> bool:
        """False if nothing was held."""

    def treat_record(
        self, route: str, action: RecordAction, topic: str, partition: int, offset: int
    ) -> RecordPlace:
        """Where the record was."""

    def drain(self) -> None:
        """Begin to end the process, as SIGTERM does; a second time changes nothing."""

    def log_level(self) -> str: ...

    def set_log_level(self, level: str) -> None: ...
