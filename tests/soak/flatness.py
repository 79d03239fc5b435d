"""Whether a quantity grows: the slope of its samples, and what it comes to over the run. Pure.

The slope is the median of those between all pairs of samples (Theil and Sen): disturbances that
come and go do not move it, nor does an outlier; a leak of a little at a time does.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from itertools import combinations
from typing import Final, NamedTuple

_MOST_SAMPLES: Final = 400  # 80 000 pairs


class Flatness(NamedTuple):
    """Of one quantity, after the warm-up. growth: over the judged time, by the slope."""

    first: float  # medians of the first and the last fifth
    last: float
    most: float
    growth: float
    limit: float

    @property
    def flat(self) -> bool:
        """What shrinks is no leak."""
        return self.growth <= self.limit


def slope(times: Sequence[float], values: Sequence[float]) -> float:
    """Of values by time; 0 where there are not two samples."""
    step = -(-len(times) // _MOST_SAMPLES) or 1
    points = list(zip(times[::step], values[::step], strict=True))
    slopes = [(v - u) / (t - s) for (s, u), (t, v) in combinations(points, 2) if t > s]
    return statistics.median(slopes) if slopes else 0.0


def flatness(times: Sequence[float], values: Sequence[float], limit: float) -> Flatness:
    """Of samples, of which there is at least one; limit: how much it may have grown."""
    fifth = max(1, len(values) // 5)
    return Flatness(
        statistics.median(values[:fifth]),
        statistics.median(values[-fifth:]),
        max(values),
        slope(times, values) * (times[-1] - times[0]),
        limit,
    )
