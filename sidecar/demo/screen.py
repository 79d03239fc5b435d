"""Where the demo is shown: a panel redrawn in place on a terminal, else a line per second.

Log lines come above the panel. Belongs to the event loop, but for logs, which any thread writes.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import Final, TextIO

from sidecar.demo.figures import Figures, Rates, line, panel
from sidecar.logs import TextFormatter

LINE_SECONDS: Final = 1.0


class Screen:
    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._redraws = stream.isatty()
        self._lock = threading.Lock()
        self._panel: list[str] = []  # what is to be seen of it now
        self._next_line_at = 0.0

    def text(self, *lines: str) -> None:
        """Lines that stay, above the panel."""
        with self._lock:
            self._write(lines)

    def show(self, figures: Figures, rates: Rates) -> None:
        if self._redraws:
            with self._lock:
                self._write((), panel(figures, rates))
        elif figures.seconds >= self._next_line_at:
            self._next_line_at = figures.seconds - figures.seconds % LINE_SECONDS + LINE_SECONDS
            self.text(line(figures, rates))

    def leave(self) -> None:
        """The panel stays as it is; what follows comes below."""
        with self._lock:
            self._panel = []

    def _write(self, lines: Sequence[str], panel: Sequence[str] | None = None) -> None:
        up = f"\x1b[{len(self._panel)}A\x1b[J" if self._panel else ""
        if panel is not None:
            self._panel = list(panel)
        self._stream.write(up + "".join(f"{each}\n" for each in (*lines, *self._panel)))
        self._stream.flush()


class AboveThePanel(logging.Handler):
    """Logs as lines of the screen."""

    def __init__(self, screen: Screen) -> None:
        super().__init__()
        self._screen = screen
        self.setFormatter(TextFormatter())

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._screen.text(self.format(record))
        except Exception:  # noqa: BLE001 - as every handler does
            self.handleError(record)
