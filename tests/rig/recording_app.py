"""The recording application as a process that can be stopped, started, and told what to answer.

    app.answer(Rule(500, number=7), Rule("exit", every=100))
    app.stop(); app.start()                # port, journal and rules stay

With revive_seconds it is started again so long after it ended by itself, as a kubelet does.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from tests.rig.ports import free_ports
from tests.rig.recorder import Rule, dump


class RecordingApp:
    """See the module and tests.rig.recorder. Made stopped."""

    def __init__(
        self,
        journal: Path,
        *,
        hang_path: str = "",
        revive_seconds: float | None = None,
        rules: Sequence[Rule] = (),
        prefix: Sequence[str] = (),
        at_once: bool = False,
    ) -> None:
        """prefix: of the command; at_once: see tests.rig.recorder."""
        self.port = free_ports(1)[0]
        self.lives = 0  # how often it was started
        self._command = [
            *prefix,
            sys.executable,
            "-m",
            "tests.rig.recorder",
            "--journal",
            str(journal),
        ]
        self._command += ["--port", str(self.port), "--hang-path", hang_path]
        self._command += ["--at-once"] * at_once
        self._revive_seconds = revive_seconds
        self._rules = tuple(rules)
        self._stopped = threading.Event()
        self._changing = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Returns when it listens."""
        self._stopped.clear()
        self._launch()

    def stop(self) -> None:
        """At once, with requests unanswered."""
        self._stopped.set()
        with self._changing:
            if self._process is not None:
                self._process.terminate()
                self._process.wait()

    def kill(self) -> None:
        """SIGKILL."""
        self._signal(signal.SIGKILL)
        assert self._process is not None
        self._process.wait()

    def pause(self) -> None:
        """SIGSTOP: connections stay open, nothing answers."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def answer(self, *rules: Rule) -> None:
        """In force when this returns; without rules all is answered 204."""
        self._rules = rules
        url = f"http://127.0.0.1:{self.port}/"
        change = urllib.request.Request(url, dump(rules).encode(), method="PUT")
        urllib.request.urlopen(change, timeout=10).close()

    def _launch(self) -> None:
        with self._changing:
            if self._stopped.is_set():
                return
            process = subprocess.Popen(
                [*self._command, "--rules", dump(self._rules)], stdout=subprocess.PIPE
            )
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            process.stdout.close()
            self._process = process
            self.lives += 1
        if self._revive_seconds is not None:
            threading.Thread(
                target=self._revive, args=(process, self._revive_seconds), daemon=True
            ).start()

    def _revive(self, process: subprocess.Popen[bytes], after_seconds: float) -> None:
        process.wait()
        if not self._stopped.wait(after_seconds):
            self._launch()
