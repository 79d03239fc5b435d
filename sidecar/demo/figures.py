"""What both consumers have achieved, and how that is shown. Pure; nothing here reads a clock."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final, NamedTuple

from sidecar.status import RouteStatus

WINDOW_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Progress:
    """Of one consumer. waiting: produced and not delivered; oldest: how long the first of them."""

    delivered: int
    waiting: int
    oldest_seconds: float


@dataclass(frozen=True, slots=True)
class Figures:
    """One moment. seconds is the time since the load began."""

    seconds: float
    produced: int
    sidecar: Progress
    one_at_a_time: Progress
    expired: int
    route: RouteStatus


class Rates(NamedTuple):
    """Deliveries per second over the last second."""

    sidecar: float
    one_at_a_time: float


class Pace:
    """Turns totals into rates over a sliding window."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int, int]] = deque()

    def add(self, figures: Figures) -> Rates:
        now = figures.seconds, figures.sidecar.delivered, figures.one_at_a_time.delivered
        seen = self._seen
        while len(seen) > 1 and seen[1][0] <= now[0] - WINDOW_SECONDS:
            seen.popleft()
        seen.append(now)
        seconds = now[0] - seen[0][0]
        if seconds <= 0:
            return Rates(0.0, 0.0)
        return Rates((now[1] - seen[0][1]) / seconds, (now[2] - seen[0][2]) / seconds)


def panel(figures: Figures, rates: Rates) -> list[str]:
    """Several lines, to be redrawn in place."""
    one, ours = figures.one_at_a_time, figures.sidecar
    lines = [
        f"{figures.seconds:5.0f} s    {figures.produced:,} records produced",
        "",
        f"{'':15}{'delivered/s':>12}{'total':>12}{'waiting':>12}{'oldest waits':>15}",
        _row("one at a time", rates.one_at_a_time, one),
        _row("sidecar", rates.sidecar, ours),
        "",
        _inside(figures.route),
        _cost(figures.route),
    ]
    if figures.expired:
        lines.append(_expired(figures.expired))
    return lines


def line(figures: Figures, rates: Rates) -> str:
    """The same in one line, for a file or a pipe."""
    return (
        f"{figures.seconds:4.0f} s | sidecar {_brief(rates.sidecar, figures.sidecar)}"
        f" | one at a time {_brief(rates.one_at_a_time, figures.one_at_a_time)}"
        f" | {_inside(figures.route)}; {_cost(figures.route)}"
    )


def summary(figures: Figures) -> list[str]:
    one, ours = figures.one_at_a_time, figures.sidecar
    lines = [f"In {figures.seconds:.0f} s, {figures.produced:,} records came into one partition:"]
    for name, progress in ("one at a time", one), ("sidecar", ours):
        rate = progress.delivered / figures.seconds if figures.seconds else 0.0
        waits = f", the oldest for {progress.oldest_seconds:.1f} s" if progress.waiting else ""
        lines.append(
            f"  {name:13}  {progress.delivered:,} delivered ({rate:,.0f}/s),"
            f" {progress.waiting:,} still waiting{waits}"
        )
    if one.delivered:
        times = ours.delivered / one.delivered
        lines.append(f"The sidecar delivered {times:,.1f} times as many.")
    if figures.expired:
        lines.append(_expired(figures.expired))
    return lines


def _row(name: str, rate: float, progress: Progress) -> str:
    return (
        f"{name:15}{rate:12,.0f}{progress.delivered:12,}{progress.waiting:12,}"
        f"{progress.oldest_seconds:13.1f} s"
    )


def _brief(rate: float, progress: Progress) -> str:
    return (
        f"{rate:.0f}/s, {progress.delivered} delivered, {progress.waiting} waiting,"
        f" oldest {progress.oldest_seconds:.1f} s"
    )


def _inside(route: RouteStatus) -> str:
    executors = route.executors
    return (
        f"in flight {route.in_flight} of {route.threshold}, executing {route.executing}"
        f" on {executors.running} executors"
    )


def _cost(route: RouteStatus) -> str:
    exposure = route.exposure
    return f"a crash now loses {exposure.would_lose}, repeats {exposure.would_repeat}"


def _expired(count: int) -> str:
    return f"{count:,} records left the broker before one at a time came to them."
