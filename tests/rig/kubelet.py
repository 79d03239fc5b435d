"""A kubelet for one pod: runs the containers of its spec in their order, with hooks and grace.

What it does is what the kubelet's source does in 1.29 and in 1.37 (pkg/kubelet/kuberuntime, see ADR
0024), for what a stop depends on:

* start: init containers in turn, the restartable ones until their startup probe has succeeded, then
  all others;
* the end of the pod: for all containers at once, its hook, its turn, SIGTERM, and SIGKILL when the
  one grace period that these share is over. A restartable init container's turn comes when all
  ordinary containers and the restartable ones behind it have ended;
* a restart of one container, as after a failed liveness probe: hook, SIGTERM, SIGKILL, start;
* a Job: its pod ends the same way once its ordinary containers have.

What a container is, a process or a real one, is up to whoever starts them.
"""

from __future__ import annotations

import threading
import time
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from types import TracebackType
from typing import Any, Final, NamedTuple, Protocol, Self

from tests.rig.waiting import PATIENCE_SECONDS, eventually

LEAST_GRACE_SECONDS: Final = 2
DEFAULT_GRACE_SECONDS: Final = 30
HOST: Final = "127.0.0.1"  # the pod's address: containers share this machine's loopback
Spec = Mapping[str, Any]


class Container(Protocol):
    """One that was started."""

    @property
    def ended(self) -> bool: ...

    def execute(self, command: Sequence[str], within: float) -> bool:
        """Run a command in it; False if it fails or takes longer."""

    def stop(self, grace_seconds: float) -> int:
        """SIGTERM, after the grace SIGKILL; the exit code. One that has ended stays as it is."""

    def wait(self, within: float) -> int:
        """Until it ends by itself; the exit code."""


class What(Enum):
    STARTED = "started"
    HOOK = "hook begins"
    HOOK_ENDED = "hook has ended"
    HOOK_FAILED = "hook failed"
    SIGTERM = "SIGTERM"
    ENDED = "ended"


class Event(NamedTuple):
    """at: monotonic seconds."""

    at: float
    container: str
    what: What
    code: int | None = None


class Pod(ABC):
    """Leaving it ends whatever still runs."""

    def __init__(self, spec: Spec) -> None:
        self.events: Final[list[Event]] = []
        self.codes: Final[dict[str, int]] = {}
        self.grace_seconds: Final[int] = spec.get(
            "terminationGracePeriodSeconds", DEFAULT_GRACE_SECONDS
        )
        self._first: Final[Sequence[Spec]] = spec.get("initContainers", ())
        self._others: Final[Sequence[Spec]] = spec["containers"]
        self._specs: Final = {each["name"]: each for each in (*self._first, *self._others)}
        self._running: dict[str, Container] = {}
        self._endings: list[threading.Thread] = []
        self._lock = threading.Lock()

    # --- what a pod consists of ---------------------------------------------------------------

    @abstractmethod
    def _started(self, spec: Spec) -> Container:
        """A container of the spec, started."""

    @abstractmethod
    def said(self, name: str) -> str:
        """What a container has written so far."""

    @abstractmethod
    def close(self) -> None:
        """All containers have ended."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for each in self._running.values():
            each.stop(0)
        self.until_ended()
        self.close()

    # --- start --------------------------------------------------------------------------------

    def start(self) -> None:
        """Returns when all containers were started."""
        for spec in self._first:
            self._begin(spec["name"])
            if not _stays(spec):
                assert self._running.pop(spec["name"]).wait(PATIENCE_SECONDS) == 0
            elif "startupProbe" in spec:
                eventually(lambda: self._probed(spec, "startupProbe"), "it has started")  # noqa: B023
        for spec in self._others:
            self._begin(spec["name"])

    @property
    def ready(self) -> bool:
        """What a rolling update waits for."""
        return all(
            self._probed(spec, "readinessProbe")
            for spec in self._specs.values()
            if "readinessProbe" in spec
        )

    def _begin(self, name: str) -> None:
        self._running[name] = self._started(self._specs[name])
        self._note(name, What.STARTED)

    def _probed(self, spec: Spec, probe: str) -> bool:
        return _get(spec, spec[probe]["httpGet"], 1.0)

    # --- end ----------------------------------------------------------------------------------

    def delete(self) -> None:
        """Begin the end of the pod; returns at once."""
        running = [name for name, each in self._running.items() if not each.ended]
        turns = (
            _Turns(self._first, self._others, running) if any(map(_stays, self._first)) else None
        )
        for name in running:
            ending = threading.Thread(target=self._kill, args=(name, turns), name=f"end of {name}")
            ending.start()
            self._endings.append(ending)

    def until_ended(self, within: float = PATIENCE_SECONDS) -> dict[str, int]:
        """The exit codes."""
        deadline = time.monotonic() + within
        for ending in self._endings:
            ending.join(max(0.0, deadline - time.monotonic()))
        if any(ending.is_alive() for ending in self._endings):
            raise TimeoutError(f"the pod has not ended within {within:g} s: {self.events}")
        return self.codes

    def complete(self, within: float = PATIENCE_SECONDS) -> dict[str, int]:
        """Of a Job: wait until the ordinary containers have ended by themselves; the exit codes."""
        for spec in self._others:
            name = spec["name"]
            self._over(name, self._running[name].wait(within))
        self.delete()
        return self.until_ended(within)

    def restart(self, name: str) -> None:
        """As after a failed liveness probe, or after it has ended by itself."""
        if not self._running[name].ended:
            self._kill(name, None)
        self._begin(name)

    def _kill(self, name: str, turns: _Turns | None) -> None:
        container, grace = self._running[name], self.grace_seconds
        hook = self._specs[name].get("lifecycle", {}).get("preStop")
        if hook is not None:
            # Whole seconds, as the kubelet counts.
            grace -= int(_lasting(lambda: self._run_hook(name, hook, grace)))
        if turns is not None and grace > 0:
            grace -= int(_lasting(lambda: turns.wait(name, grace)))
        if not container.ended:
            self._note(name, What.SIGTERM)
        self._over(name, container.stop(max(grace, LEAST_GRACE_SECONDS)))
        if turns is not None:
            turns.over(name)

    def _run_hook(self, name: str, hook: Spec, within: float) -> None:
        self._note(name, What.HOOK)
        spec = self._specs[name]
        if "exec" in hook:
            done = self._running[name].execute(hook["exec"]["command"], within)
        else:
            done = _get(spec, hook["httpGet"], within)
        self._note(name, What.HOOK_ENDED if done else What.HOOK_FAILED)

    def _over(self, name: str, code: int) -> None:
        self.codes[name] = code
        self._note(name, What.ENDED, code)

    # --- what happened ------------------------------------------------------------------------

    def _note(self, name: str, what: What, code: int | None = None) -> None:
        with self._lock:
            self.events.append(Event(time.monotonic(), name, what, code))

    def at(self, name: str, what: What) -> float:
        """When it happened last; never is after everything."""
        times = [each.at for each in self.events if each[1:3] == (name, what)]
        return times[-1] if times else float("inf")

    @property
    def stop_seconds(self) -> float:
        """From the first hook to the end of the last container."""
        hooks = [each.at for each in self.events if each.what is What.HOOK]
        return max(each.at for each in self.events) - min(hooks)


class _Turns:
    """Who waits for whom before its SIGTERM."""

    def __init__(
        self, first: Sequence[Spec], others: Iterable[Spec], running: Iterable[str]
    ) -> None:
        ordinary = [each["name"] for each in others]
        self._over = {name: threading.Event() for name in running}
        self._before: dict[str, list[str]] = {}
        behind: list[str] = []
        for each in reversed(first):
            if _stays(each):
                self._before[each["name"]] = [*ordinary, *behind]
                behind = [each["name"]]

    def wait(self, name: str, within: float) -> None:
        deadline = time.monotonic() + within
        for each in self._before.get(name, ()):
            if each in self._over:
                self._over[each].wait(max(0.0, deadline - time.monotonic()))

    def over(self, name: str) -> None:
        self._over[name].set()


def _stays(spec: Spec) -> bool:
    """A native sidecar: an init container that the others do not wait for."""
    return spec.get("restartPolicy") == "Always"


def _lasting(wait: Callable[[], None]) -> float:
    began = time.monotonic()
    wait()
    return time.monotonic() - began


def _get(spec: Spec, action: Spec, within: float) -> bool:
    port = action["port"]
    if isinstance(port, str):
        port = next(each["containerPort"] for each in spec["ports"] if each["name"] == port)
    try:
        with urllib.request.urlopen(
            f"http://{HOST}:{port}{action['path']}", timeout=within
        ) as answer:
            answer.read()
    except OSError:  # of which HTTPError is one
        return False
    return True
