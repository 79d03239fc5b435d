"""Histograms of durations in seconds: counted in bulk, with closed buckets. Pure.

Invariants:
* A value lies in the first bucket whose bound is not below it; the last bucket has no bound.
* Counts and sum only rise.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Final

# Clocks that are compared tell whole milliseconds, give or take an error of floating point.
_HALF_A_TICK: Final = 0.0005
_UNBELIEVABLE: Final = 1e9  # of a record without a timestamp: thirty years


class Histogram:
    """bounds rise; counts has one bucket more."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds: Final = tuple(bounds)
        self.counts: Final = [0] * (len(self.bounds) + 1)
        self.sum = 0.0

    @property
    def count(self) -> int:
        return sum(self.counts)

    def add(self, value: float) -> None:
        self.add_sorted([value])

    def add_sorted(self, values: Sequence[float], shift: float = 0.0, weight: int = 1) -> None:
        """Values in rising order, shift to be added to each; each stands for so many.

        A value below zero (two clocks differ) counts as zero, one of many years not at all.
        """
        counts = self.counts
        end = bisect_right(values, _UNBELIEVABLE - shift)
        counted = 0
        for index, bound in enumerate(self.bounds):
            if counted == end:
                break
            below = bisect_right(values, bound + _HALF_A_TICK - shift, counted, end)
            counts[index] += weight * (below - counted)
            counted = below
        counts[-1] += weight * (end - counted)
        negative = bisect_right(values, -shift, 0, end)
        self.sum += weight * (sum(values[negative:end]) + shift * (end - negative))

    def up_to(self, bounds: Sequence[float]) -> list[tuple[float, int]]:
        """How many values do not exceed each of these, which are among its own."""
        totals = dict(zip(self.bounds, accumulate(self.counts), strict=False))
        return [(bound, totals[bound]) for bound in bounds]


def quantile(share: float, bounds: Sequence[float], counts: Sequence[int]) -> float | None:
    """What this share of the values does not exceed, within its bucket by rule of three."""
    total = sum(counts)
    if not total:
        return None
    rank = share * total
    below = 0
    lower = 0.0
    for bound, count in zip(bounds, counts, strict=False):
        if count and below + count >= rank:
            return min(bound, lower + (bound - lower) * (rank - below) / count)
        below += count
        lower = bound
    return lower
