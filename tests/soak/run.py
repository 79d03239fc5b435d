"""The run: a load that keeps half of the executors busy, and in each cycle what pods live through.

In a cycle the number of executors changes six times, a second member joins and leaves the group
(in order, and every other time by SIGKILL), and the application is away for a twentieth of it. A
few records in a thousand are refused, or fail until their attempts are used up: they are parked.

Judged is the member that stays: whether it grows. And of all records: whether one is lost.
"""

from __future__ import annotations

import subprocess
import time
import urllib.request
from array import array
from collections.abc import Callable, Iterator, Mapping
from itertools import cycle
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.chaos.stage import PARTITIONS, Stage, cut_short, number_of, stage
from tests.rig.operations import KafkaOperations
from tests.rig.processes import ADMIN_TOKEN, Sidecar
from tests.rig.recorder import Rule
from tests.rig.waiting import eventually
from tests.soak import probe
from tests.soak.flatness import Flatness, flatness

EXECUTORS: Final = 16
REFUSED_EVERY: Final = 1009
FAILS_EVERY: Final = 701
ENDLESS: Final = 100_000_000
# How much it may have grown at the end: what comes and goes with executors and partitions, and less
# than an hour's cycles would add up to if each left one behind.
LIMITS: Final[Mapping[str, float]] = {
    "memory_mb": 6.0,
    "python_blocks": 30_000,
    "file_descriptors": 15,
    "threads": 2,
    "tasks": 3,
    "metric_series": 20,
}


class Sample(NamedTuple):
    """Of the member that stays; at: seconds since the beginning."""

    at: float
    memory_mb: float
    python_blocks: int
    file_descriptors: int
    threads: int
    tasks: int
    metric_series: int


class Report(NamedTuple):
    """What a run came to."""

    seconds: float
    rate: float
    figures: Mapping[str, float]
    quantities: Mapping[str, Flatness]
    claims: Mapping[str, bool]

    @property
    def ok(self) -> bool:
        return all(self.claims.values()) and all(each.flat for each in self.quantities.values())


class Taken:
    """How often the application took each number, by its journal; a byte each: an hour fits."""

    def __init__(self, journal: Path) -> None:
        self._journal = journal
        self._at = 0
        self._rest = ""
        self.times = array("B")

    def refresh(self) -> None:
        with self._journal.open(encoding="ascii") as file:
            file.seek(self._at)
            text = self._rest + file.read()
            self._at = file.tell()
        *lines, self._rest = text.split("\n")
        for line in lines:
            if line[0] == "d":
                _, number, status, _ = line.split(" ")
                if status == "204":
                    self._count(int(number))

    def _count(self, number: int) -> None:
        if number >= len(self.times):
            self.times.extend(bytes(number + 100_000 - len(self.times)))
        self.times[number] = min(255, self.times[number] + 1)

    def __getitem__(self, number: int) -> int:
        return self.times[number] if number < len(self.times) else 0


def soak(
    kafka: KafkaOperations,
    directory: Path,
    *,
    seconds: float,
    cycle_seconds: float = 60.0,
    sample_seconds: float = 5.0,
    rate: float = 160.0,
    warm_up: float = 0.2,
    tell: Callable[[Sample], object] = lambda _: None,
) -> Report:
    """tell gets every sample; warm_up: the part of the time that is not judged."""
    with stage(kafka, directory, "soak") as at:
        return _Run(at, directory, cycle_seconds, sample_seconds, rate, tell).run(seconds, warm_up)


class _Run:
    def __init__(
        self,
        at: Stage,
        directory: Path,
        cycle_seconds: float,
        sample_seconds: float,
        rate: float,
        tell: Callable[[Sample], object],
    ) -> None:
        self._at = at
        self._probe = directory / "probe"
        self._cycle = cycle_seconds
        self._every = sample_seconds
        self._rate = rate
        self._tell = tell
        self._samples: list[Sample] = []
        self._taken = Taken(at.journal_file)
        self._members = 0
        self._restarts = 0
        self._away = False
        self._resizes = 0
        self._codes: set[int] = set()
        self._second: Sidecar | None = None
        self._began = time.monotonic()
        at.app.answer(Rule(400, every=REFUSED_EVERY), Rule(500, every=FAILS_EVERY))
        self._config = at.config(
            executors=EXECUTORS,
            retry={"max_attempts": 2, "initial_backoff_seconds": 0.5, "max_backoff_seconds": 1},
        )
        self._config["admin"] = {"token": ADMIN_TOKEN}
        fault = f"from tests.soak.probe import install; install({str(self._probe)!r})"
        self._constant = at.scene.sidecar(self._config, "constant", fault=fault)

    def run(self, seconds: float, warm_up: float) -> Report:
        half = EXECUTORS / 2 / self._rate
        load = self._at.load(ENDLESS, self._rate, delay_ms=half * 1000)
        self._until(lambda: self._taken[PARTITIONS] > 0, "it flows")
        self._began = time.monotonic()
        cpu = self._constant.cpu_seconds()
        steps = self._steps()
        due, step = next(steps)
        while (now := time.monotonic() - self._began) < seconds:
            if now >= due:
                step()
                due, step = next(steps)
            self._sample()
            left = min(due, seconds, (self._samples[-1].at // self._every + 1) * self._every)
            time.sleep(max(0.0, left - (time.monotonic() - self._began)))
        cpu = self._constant.cpu_seconds() - cpu
        return self._report(load, seconds, warm_up, cpu)

    # --- what happens -------------------------------------------------------------------------

    def _steps(self) -> Iterator[tuple[float, Callable[[], object]]]:
        """When, in seconds since the beginning, and what; for ever."""
        counts = cycle((8, 24, EXECUTORS))
        start = 0.0
        while True:
            for part, step in (
                (0.1, self._join),
                (0.2, lambda: self._resize(next(counts))),
                (0.3, lambda: self._resize(next(counts))),
                (0.4, lambda: self._resize(next(counts))),
                (0.5, self._leave),
                (0.6, lambda: self._resize(next(counts))),
                (0.7, lambda: self._resize(next(counts))),
                (0.75, self._end_app),
                (0.8, self._start_app),
                (0.9, lambda: self._resize(next(counts))),
            ):
                yield start + part * self._cycle, step
            start += self._cycle

    def _join(self) -> None:
        self._second = self._at.scene.sidecar(self._config, f"second-{self._members}")
        self._members += 1

    def _leave(self) -> None:
        assert self._second is not None
        self._second.until_said("admin API on")  # before that a signal is nobody's
        if self._members % 2:
            self._codes.add(self._second.stop())
        else:
            self._second.kill()
        self._second = None

    def _resize(self, count: int) -> None:
        path = f"/v1/routes/{self._at.topic}/executors"
        self._constant.change("PUT", path, {"count": count})
        self._resizes += 1

    def _end_app(self) -> None:
        self._at.app.stop()
        self._away = True

    def _start_app(self) -> None:
        self._at.app.start()
        self._away = False
        self._restarts += 1

    # --- what is seen -------------------------------------------------------------------------

    def _sample(self) -> None:
        self._taken.refresh()
        counts = probe.read(self._probe)
        if counts is None:
            return
        tasks, blocks = counts
        process = Path(f"/proc/{self._constant.process.pid}")
        sample = Sample(
            round(time.monotonic() - self._began, 1),
            round(self._constant.resident_bytes() / 2**20, 2),
            blocks,
            sum(1 for _ in (process / "fd").iterdir()),
            sum(1 for _ in (process / "task").iterdir()) - 1,  # without the probe
            tasks,
            self._series(),
        )
        self._samples.append(sample)
        self._tell(sample)

    def _series(self) -> int:
        url = f"http://127.0.0.1:{self._constant.port}/metrics"
        with urllib.request.urlopen(url, timeout=30) as answer:
            return sum(1 for line in answer if not line.startswith(b"#"))

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        def now() -> bool:
            self._taken.refresh()
            return condition()

        eventually(now, what, within=120, every=0.2)

    # --- what it came to ----------------------------------------------------------------------

    def _report(
        self, load: subprocess.Popen[bytes], seconds: float, warm_up: float, cpu: float
    ) -> Report:
        confirmed = cut_short(load)
        if self._second is not None:
            self._leave()
        if self._away:
            self._start_app()
        self._at.until_drained(120)
        parked = {number_of(letter.value()) for letter in self._at.letters()}

        def missing() -> list[int]:
            return [n for n in range(confirmed) if not self._taken[n] and n not in parked]

        self._taken.refresh()
        lost = len(missing())
        late = self._constant.route()["counters"]["late_results"]
        self._codes.add(self._constant.stop())
        figures = {
            "records": confirmed,
            "lost": lost,
            "repeated": sum(each - 1 for each in self._taken.times if each),
            "parked": len(parked),
            "late_results": late,
            "members": self._members,
            "app_restarts": self._restarts,
            "executor_changes": self._resizes,
            "cpu_percent_of_a_core": round(100 * cpu / seconds, 1),
        }
        claims = {
            "nothing is lost": lost == 0,
            "whoever was asked to end ended with 0": self._codes == {0},
        }
        return Report(seconds, self._rate, figures, self._flatness(warm_up * seconds), claims)

    def _flatness(self, after: float) -> dict[str, Flatness]:
        judged = [each for each in self._samples if each.at >= after]
        times = [each.at for each in judged]
        values: dict[str, Any] = {name: [getattr(s, name) for s in judged] for name in LIMITS}
        return {name: flatness(times, values[name], limit) for name, limit in LIMITS.items()}
