"""The figures of the benchmarks: medians, budgets, tables."""

from __future__ import annotations

from bench.figures import BUDGETS, median_row, table, verdicts


def test_of_rounds_the_median_counts_column_by_column() -> None:
    rounds = [{"variant": "floor", "cpu_us": cpu, "per_s": 1} for cpu in (30.0, 10.0, 20.0)]
    assert median_row(rounds) == {"variant": "floor", "cpu_us": 20.0, "per_s": 1}


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
