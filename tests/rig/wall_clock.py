"""A wall clock that jumps for one process: Debian's libfaketime, loaded before everything else.

The monotonic clock goes on as it does where an operator or NTP sets the time.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

_LIBRARIES: Final = "/usr/lib/*/faketime/libfaketimeMT.so.1"


class NoFakeTime(Exception):
    """libfaketime is not installed."""


class WallClock:
    """Set by a file; start processes with `variables`."""

    def __init__(self, file: Path) -> None:
        """Raises NoFakeTime."""
        found = sorted(Path("/").glob(_LIBRARIES.removeprefix("/")))
        if not found:
            raise NoFakeTime("Debian: apt-get install libfaketime")
        self._file: Final = file
        self.shift(0)
        self.variables: Final = {
            "LD_PRELOAD": str(found[0]),
            "FAKETIME_TIMESTAMP_FILE": str(file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }

    def shift(self, seconds: float) -> None:
        """From now on it differs by so much from this machine's."""
        draft = self._file.with_suffix(".draft")
        draft.write_text(f"{seconds:+.3f}\n", encoding="ascii")
        draft.replace(self._file)
