"""What a route counted since its start. Only ever rises; read by anybody, written on the loop."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class Counters:
    received: int = 0
    delivered: int = 0
    retries: int = 0
    parked: int = 0
    retried_later: int = 0  # moved to a retry topic
    relieved: int = 0  # of those and of the parked: because they held the watermark for too long
    dropped: int = 0
    already_done: int = 0  # by an earlier owner, as its done-map tells
    late_results: int = 0  # of records whose partition had left
    lost: int = 0  # cut at the end of a drain (at_most_once)
    rebalances: int = 0
    commit_failures: int = 0
    out_of_range: int = 0
    failures: Counter[str] = field(default_factory=Counter)  # by reason, see core/classify.py
