"""What only the process itself can count: its asyncio tasks, and the blocks of its allocator.

    from tests.soak.probe import install; install("FILE")

runs in the sidecar before its own main. Every second a thread writes "<tasks> <blocks>".
"""

from __future__ import annotations

import asyncio
import sys
import threading
from pathlib import Path
from typing import Any, Final

from sidecar.runtime import Runtime

SECONDS: Final = 1.0


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
    while not pace.wait(SECONDS):
        counts = (len(asyncio.all_tasks(loop)), sys.getallocatedblocks())
        other.write_text(f"{counts[0]} {counts[1]}", encoding="ascii")
        other.replace(file)
