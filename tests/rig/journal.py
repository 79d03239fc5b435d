"""Reads the application's journal and says what was lost and what was repeated."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple


class Verdict(NamedTuple):
    """In records. repeats counts arrivals beyond a record's first."""

    produced: int
    seen: int
    lost: int
    repeats: int


class Journal:
    """What an application has seen so far; read anew at every refresh."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = 0
        self._rest = ""
        self.arrivals: Counter[int] = Counter()
        self.attempt: dict[int, int] = {}  # the highest that it was told
        self.keys: dict[int, set[str]] = {}  # each idempotency key it was told
        self.latencies_us: dict[int, int] = {}  # of the first arrival
        self.answered: Counter[int] = Counter()  # 2xx
        self.answered_at: dict[int, float] = {}  # monotonic seconds of the first 2xx
        self.refused: Counter[int] = Counter()  # any other answer
        self.refused_at: dict[int, float] = {}  # monotonic seconds of the first other answer

    def refresh(self) -> None:
        if not self._path.exists():
            return
        with self._path.open(encoding="ascii") as file:
            file.seek(self._at)
            text = self._rest + file.read()
            self._at = file.tell()
        *lines, self._rest = text.split("\n")
        for line in lines:
            kind, number, *more = line.split(" ")
            if kind == "a":
                self.arrivals[int(number)] += 1
                latency, attempt, _, key = more
                self.latencies_us.setdefault(int(number), int(latency))
                self.attempt[int(number)] = max(int(attempt or 0), self.attempt.get(int(number), 0))
                self.keys.setdefault(int(number), set()).add(key)
            elif more[0][0] == "2":
                self.answered[int(number)] += 1
                self.answered_at.setdefault(int(number), float(more[1]))
            else:
                self.refused[int(number)] += 1
                self.refused_at.setdefault(int(number), float(more[1]))

    def judge(self, numbers: range) -> Verdict:
        seen = [n for n in numbers if self.arrivals[n]]
        repeats = sum(self.arrivals[n] - 1 for n in seen)
        return Verdict(len(numbers), len(seen), len(numbers) - len(seen), repeats)

    def rate(self, since: float, until: float) -> float:
        """Records answered 2xx for the first time, per second of this time."""
        count = sum(1 for at in self.answered_at.values() if since <= at < until)
        return count / (until - since)

    def latency_ms(self, numbers: Iterable[int], quantile: float) -> float:
        """A quantile of the time from production to the request's arrival."""
        values = [self.latencies_us[n] / 1000 for n in numbers if n in self.latencies_us]
        if quantile == 0.5:
            return statistics.median(values)
        return statistics.quantiles(values, n=1000)[round(quantile * 1000) - 1]
