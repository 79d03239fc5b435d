"""What only the process itself can count: its asyncio tasks, and the blocks of its allocator.

    from tests.soak.probe import install; install("FILE")

runs in the sidecar before its own main. Every second a thread writes "<tasks> <blocks>". The blocks
are counted after a collection, every half minute: what waits for the collector is no leak.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
from itertools import count
from pathlib import Path
from typing import Any, Final

from sidecar.runtime import Runtime

SECONDS: Final = 1.0
COLLECTION_SECONDS: Final = 30


def install(file: str) -> None:
    begin: Any = Runtime.__init__

    def beginning(runtime: Runtime, *args: Any, **more: Any) -> None:
        begin(runtime, *args, **more)
        what = (asyncio.get_running_loop(), Path(file))
        threading.Thread(target=_count, args=what, name="probe", daemon=True).start()

    Runtime.__init__ = beginning  # type: ignore[method-assign, assignment]


def read(file: Path) -> tuple[int, int] | None:
    """Tasks and blocks as last written; None before that."""
    words = file.read_text(encoding="ascii").split() if file.exists() else []
    return (int(words[0]), int(words[1])) if len(words) == 2 else None


def _count(loop: asyncio.AbstractEventLoop, file: Path) -> None:
    pace = threading.Event()
    other = file.with_suffix(".new")
    blocks = 0
    for number in count():
        if pace.wait(SECONDS):
            return
        if number % COLLECTION_SECONDS == 0:
            gc.collect()
            blocks = sys.getallocatedblocks()
        other.write_text(f"{len(asyncio.all_tasks(loop))} {blocks}", encoding="ascii")
        other.replace(file)
