"""What an operator may change while it runs, carried out on the running parts.

See admin.control.Control. Everything happens on the loop, at once; what was changed lasts until the
process ends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sidecar import logs
from sidecar.dispatch.by_hand import ByHand, Coordinates
from sidecar.dispatch.route import Phase, Route
from sidecar.errors import Conflict, NotFound
from sidecar.overview import Vertical
from sidecar.status import RecordAction, RecordPlace


class Operations:
    """stop begins the drain that ends the process; called once at most."""

    def __init__(
        self,
        verticals: Sequence[Vertical],
        stop: Callable[[], None],
    ) -> None:
        self._routes = {vertical.route.settings.name: vertical.route for vertical in verticals}
        self._by_hand = {name: ByHand(route) for name, route in self._routes.items()}
        self._stop = stop
        self._stopping = False

    def set_executors(self, route: str, count: int) -> None:
        changed = self._running(route)
        changed.set_executors(count)
        changed.generation += 1

    def set_threshold(self, route: str, records: int) -> None:
        changed = self._running(route)
        batch = changed.settings.batch
        if batch is not None and records < batch.max_records:
            raise Conflict(f"below batch.max_records ({batch.max_records}) no batch is ever full")
        changed.set_threshold(records)
        changed.generation += 1

    def set_rate(self, route: str, records_per_second: float | None) -> None:
        changed = self._running(route)
        changed.set_rate(records_per_second)
        changed.generation += 1

    def pause(self, route: str) -> None:
        changed = self._running(route)
        changed.pause()
        changed.generation += 1

    def resume(self, route: str) -> None:
        changed = self._running(route)
        changed.resume()
        changed.generation += 1

    def reset_breaker(self, route: str) -> bool:
        changed = self._running(route)
        reset = changed.reset_breaker()
        changed.generation += reset
        return reset

    def treat_record(
        self, route: str, action: RecordAction, topic: str, partition: int, offset: int
    ) -> RecordPlace:
        self._known(route)
        return self._by_hand[route].do(action, Coordinates(topic, partition, offset))

    def drain(self) -> None:
        if not self._stopping:  # a second stop would cut
            self._stopping = True
            self._stop()

    def log_level(self) -> str:
        return logs.level()

    def set_log_level(self, level: str) -> None:
        logs.set_level(level)

    def _known(self, name: str) -> Route:
        if name not in self._routes:
            raise NotFound(f"no route is named {name}")
        return self._routes[name]

    def _running(self, name: str) -> Route:
        route = self._known(name)
        if route.phase not in (Phase.WAITING, Phase.RUNNING):
            raise Conflict(f"the route is {route.phase.value}: nothing can be changed any more")
        return route
