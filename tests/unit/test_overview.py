"""What the admin surface is told of the running parts."""

from __future__ import annotations

import asyncio
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from sidecar.dispatch.route import Phase
from sidecar.overview import BLOCKED_SECONDS, Overview, Vertical


def an_overview(phase: Phase, *, silent_for: float, thread: Any) -> Overview:
    """Of one route; silent_for: since the fetch thread came round last."""
    route: Any = SimpleNamespace(phase=phase, settings=SimpleNamespace(name="orders"))
    fetcher: Any = SimpleNamespace(last_step_at=time.monotonic() - silent_for)
    loop = asyncio.new_event_loop()
    try:
        return Overview([Vertical(route, fetcher, thread)], loop, asyncio.Event(), asyncio.Event())
    finally:
        loop.close()


ALIVE = threading.main_thread()
DEAD = threading.Thread()


@pytest.mark.parametrize(
    ("phase", "silent_for", "thread", "trouble"),
    [
        (Phase.RUNNING, 1.0, ALIVE, None),
        (Phase.RUNNING, BLOCKED_SECONDS - 1, ALIVE, None),  # a broker that is away
        (Phase.RUNNING, BLOCKED_SECONDS + 1, ALIVE, "blocked for 181 s"),
        (Phase.DRAINING, BLOCKED_SECONDS + 1, ALIVE, "blocked for 181 s"),
        (Phase.RUNNING, 1.0, DEAD, "dead"),
        (Phase.WAITING, BLOCKED_SECONDS * 9, DEAD, None),  # for the app: nothing is fetched yet
        (Phase.ENDED, BLOCKED_SECONDS * 9, DEAD, None),
    ],
)
def test_only_a_blocked_or_dead_thread_is_a_reason_to_restart(
    phase: Phase, silent_for: float, thread: threading.Thread, trouble: str | None
) -> None:
    """OBS-4: neither the application nor the broker is."""
    overview = an_overview(phase, silent_for=silent_for, thread=thread)
    told = overview.alive()
    assert (told is None) == (trouble is None)
    assert trouble is None or trouble in str(told)
    assert overview.ready() == told


def test_a_drain_is_waited_for_once_it_has_begun_and_not_for_longer_before() -> None:
    async def main() -> None:
        stopping, drained = asyncio.Event(), asyncio.Event()
        overview = Overview([], asyncio.get_running_loop(), stopping, drained)
        assert not await overview.wait_drained(60, begins_within=0.01)
        stopping.set()
        waits = asyncio.create_task(overview.wait_drained(60, begins_within=0))
        for _ in range(3):
            await asyncio.sleep(0)
        assert not waits.done()
        drained.set()
        assert await waits

    asyncio.run(main())
