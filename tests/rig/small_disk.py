"""A disk so small that a test can fill it: a tmpfs. Needs root.

The kernel's own ENOSPC, for whoever writes there.
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Final, Self

_FILLER: Final = "filler"


class SmallDisk:
    """Mounted within a `with`, at `path`."""

    def __init__(self, megabytes: int) -> None:
        self._megabytes: Final = megabytes
        self.path: Final = Path(tempfile.mkdtemp(prefix="sidecar-disk-"))

    def __enter__(self) -> Self:
        size = f"size={self._megabytes}m"
        subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(self.path)], check=True)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        subprocess.run(["umount", "--lazy", str(self.path)], check=True)
        self.path.rmdir()

    def fill(self) -> None:
        """To the last byte."""
        with (self.path / _FILLER).open("wb", buffering=0) as file:
            try:
                while file.write(bytes(1 << 16)):
                    pass
            except OSError:
                return

    def clear(self) -> None:
        """Take away what fill has written."""
        (self.path / _FILLER).unlink(missing_ok=True)
