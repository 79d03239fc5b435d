"""The mailbox of a fetch thread: posting wakes it at once."""

from __future__ import annotations

import queue

from sidecar.core.commands import Command


class ThreadMailbox:
    """See ports.Mailbox."""

    __slots__ = ("_queue",)

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Command] = queue.SimpleQueue()

    def post(self, command: Command) -> None:
        self._queue.put(command)

    def receive(self, timeout: float) -> Command | None:
        try:
            return self._queue.get(timeout=timeout) if timeout > 0 else self._queue.get_nowait()
        except queue.Empty:
            return None
