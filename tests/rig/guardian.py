"""A process that outlives this one by a moment, to clear up what it may leave behind.

Whatever ends the test process, be it SIGKILL, closes the guardian's standard input; the guardian
then runs the last line it read.
"""

from __future__ import annotations

import subprocess
from typing import IO

_SCRIPT = """
trap '' INT TERM HUP
last=
while IFS= read -r line; do last=$line; done
eval "$last"
"""


class Guardian:
    """Runs the last command line it was told when this process is gone, or at close."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", _SCRIPT],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )

    def tell(self, command: str) -> None:
        pipe = self._pipe()
        pipe.write(command + "\n")
        pipe.flush()

    def close(self) -> None:
        """Run the last command now."""
        self._pipe().close()
        self._process.wait(30)

    def _pipe(self) -> IO[str]:
        assert self._process.stdin is not None
        return self._process.stdin
