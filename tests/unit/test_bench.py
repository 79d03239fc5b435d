"""The figures of the benchmarks: medians, budgets, tables, and that the page shows them."""

from __future__ import annotations

import json
from pathlib import Path

from bench.__main__ import MARK, PAGE, PUBLISHED, report
from bench.figures import BUDGETS, compared, median_row, table, verdicts

ROOT = Path(__file__).parents[2]


def test_of_rounds_the_median_counts_column_by_column() -> None:
    rounds = [{"variant": "floor", "cpu_us": cpu, "per_s": 1} for cpu in (30.0, 10.0, 20.0)]
    assert median_row(rounds) == {"variant": "floor", "cpu_us": 20.0, "per_s": 1}


def test_the_spread_of_the_rounds_can_be_shown() -> None:
    rounds = [{"cpu_us": cpu} for cpu in (30.0, 10.0, 20.0)]
    assert median_row(rounds, spread=("cpu_us",)) == {
        "cpu_us": 20.0,
        "cpu_us, all": "10.00 to 30.00",
    }


def test_ratios_are_taken_within_a_pair() -> None:
    """The ratio of the medians would be 4."""
    pairs = [
        ({"variant": "a", "p99_ms": alone, "lost": 1}, {"variant": "b", "p99_ms": both, "lost": 0})
        for alone, both in ((1.0, 2.0), (2.0, 12.0), (10.0, 8.0))
    ]
    alone, both, ratio = compared(pairs, ("p99_ms",), sums=("lost",))
    assert alone == {"variant": "a", "p99_ms": 2.0, "lost": 3}
    assert both == {"variant": "b", "p99_ms": 8.0, "lost": 0}
    assert ratio == {"variant": "ratio", "p99_ms": 2.0, "p99_ms, all": "0.80 to 6.00"}


def test_a_budget_is_met_up_to_its_limit() -> None:
    rows = [
        {"variant": "at_least_once", "times_floor": 1.6, "times_at_least_once": 1.0},
        {"variant": "at_most_once", "times_floor": 1.61, "times_at_least_once": 1.0},
        {"variant": "httpx", "times_floor": 90.0, "times_at_least_once": 29.9},
    ]
    judged = verdicts({"cost": rows})
    assert [(row["must"], row["measured"], row["met"]) for row in judged] == [
        ("≤ 1.6 × floor", "1.60", "yes"),
        ("≤ 1.6 × floor", "1.61", "**no**"),
        ("≥ 30 × at_least_once", "29.90", "**no**"),
    ]


def test_the_worst_of_a_scale_counts() -> None:
    rows = [{"variant": f"threshold {n}", "times_ten": t} for n, t in ((10, 1.0), (100, 1.4))]
    rows += [{"variant": f"{name} 10", "times_ten": 1.0} for name in ("executors", "partitions")]
    (threshold, *_) = verdicts({"scaling": rows})
    assert (threshold["measured"], threshold["met"]) == ("1.40", "**no**")


def test_what_was_not_measured_is_not_judged() -> None:
    assert verdicts({}) == []
    assert len({budget.name for budget in BUDGETS}) == len(BUDGETS)


def test_a_table_has_every_column_that_any_row_has() -> None:
    assert table([{"a": 1234}, {"b": 2500.4, "a": True}]) == (
        "| a | b |\n|---|---|\n| 1,234 |  |\n| True | 2,500 |"
    )


def test_the_page_shows_the_figures_beside_it() -> None:
    """No figure is typed by hand; before any were taken there is none."""
    shown = (ROOT / PAGE).read_text(encoding="utf-8").partition(MARK)[2]
    if (file := ROOT / PUBLISHED).exists():
        assert shown.strip() == report(json.loads(file.read_text(encoding="utf-8"))).strip()
    else:
        assert not shown.strip()
