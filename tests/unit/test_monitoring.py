"""Alert rules and dashboard: they mean what exists, and an alert fires when it should.

Whether the dashboard's expressions work on a running sidecar is tried in tests/broker.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
import yaml

from sidecar.core.histogram import Histogram
from sidecar.dispatch.timings import DELAY_BOUNDS
from sidecar.status import AppState, CauseName, RouteState
from sidecar.telemetry.metrics import PREFIX, SERIES
from tests.rig.monitoring import ALERTS, alerts, dashboard, expressions, names_in
from tests.rig.prometheus import promtool

OPERATIONS: Final = Path(__file__).parents[2] / "docs" / "operations.md"


class Case(NamedTuple):
    """Series by minute, in promtool's notation, and when it is looked at."""

    fires: dict[str, str]
    quiet: dict[str, str]
    after: str = "30m"


def cause(name: str, after: str = "30m") -> Case:
    series = f'cause{{route="orders",cause="{name}"}}'
    return Case({series: "1x60"}, {series: "1x10 0 1x8 0 1x20"}, after)


def rising(name: str, step: str = "0+1x60", slow: str = "5x60") -> Case:
    series = f'{name}_total{{route="orders"}}'
    return Case({series: step}, {series: slow})


def attempts(outcome: str) -> Case:
    good = 'attempt_seconds_count{route="orders",outcome="delivered"}'
    bad = f'attempt_seconds_count{{route="orders",outcome="{outcome}"}}'
    return Case({good: "0+80x60", bad: "0+20x60"}, {good: "0+95x60", bad: "0+5x60"})


def ages(seconds: float) -> dict[str, str]:
    """A record of that age a minute."""
    histogram = Histogram(DELAY_BOUNDS)
    histogram.add(seconds)
    told = [*histogram.up_to(DELAY_BOUNDS), ("+Inf", 1)]
    return {
        f'delivery_delay_seconds_bucket{{route="orders",le="{bound}"}}': f"0+{count}x60"
        for bound, count in told
    }


HELD: Final = 'cause{route="orders",cause="held"}'
LEFT: Final = 'cause{route="orders",cause="left_group"}'
PAUSED: Final = 'state{route="orders",state="paused"}'
HALTED: Final = 'state{route="orders",state="halted"}'
BACKLOG: Final = 'backlog_records{route="orders"}'
CASES: Final = {
    "KafkaSidecarAppAway": Case(
        {HELD: "1 1 1 0x60", LEFT: "0 0 0 1x60"}, {HELD: "0 1 1 1 0 1 1 0x60"}, "6m"
    ),
    "KafkaSidecarHalted": Case({HALTED: "1x60"}, {HALTED: "0x60"}),
    "KafkaSidecarPausedForLong": Case({PAUSED: "1x90"}, {PAUSED: "1x50 0x40"}, "80m"),
    "KafkaSidecarDeadLetterWritesFailing": cause("dead_letter_writes_failing", "11m"),
    "KafkaSidecarRecordsLost": rising("lost_records"),
    "KafkaSidecarRecordsDropped": rising("dropped_records"),
    "KafkaSidecarRecordsParked": rising("parked_records"),
    "KafkaSidecarWatermarkHeld": cause("watermark_held"),
    # Large and being worked off is no trouble.
    "KafkaSidecarBacklogGrows": Case({BACKLOG: "2000+500x60"}, {BACKLOG: "90000-500x60"}, "40m"),
    "KafkaSidecarDeliveryLate": Case(ages(700.0), ages(0.05)),
    "KafkaSidecarAttemptsFail": attempts("retry"),
    "KafkaSidecarAppOverloaded": attempts("deferred"),
    "KafkaSidecarExecutorsBusy": cause("executors_busy"),
    "KafkaSidecarKafkaTrouble": cause("kafka_trouble", "11m"),
    "KafkaSidecarCommitsFail": rising("commit_failures", slow="0 0 1x60"),
    "KafkaSidecarRebalances": rising("rebalances", slow="0 1 2x60"),
    "KafkaSidecarPositionLost": rising("out_of_range"),
}


def of_route(series: dict[str, str], route: str) -> list[dict[str, str]]:
    return [
        {"series": PREFIX + name.replace('"orders"', f'"{route}"'), "values": values}
        for name, values in series.items()
    ]


def test_each_alert_fires_and_is_quiet(tmp_path: Path) -> None:
    """Two routes for each: one in trouble, and one that has just as little as is normal."""
    assert [rule["alert"] for rule in alerts()] == list(CASES)
    series: list[dict[str, str]] = []
    looks: list[dict[str, Any]] = []
    for alert, case in CASES.items():
        series += of_route(case.fires, f"{alert} fires") + of_route(case.quiet, f"{alert} is quiet")
        look = f'count by (route) (ALERTS{{alertname="{alert}",alertstate="firing"}})'
        fired = {"labels": f'{{route="{alert} fires"}}', "value": 1}
        looks.append({"expr": look, "eval_time": case.after, "exp_samples": [fired]})
    test = {"interval": "1m", "input_series": series, "promql_expr_test": looks}
    file = tmp_path / "alerts_test.yaml"
    content = {"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": [test]}
    file.write_text(yaml.safe_dump(content), encoding="utf-8")
    promtool("check", "rules", str(ALERTS))
    promtool("test", "rules", str(file))


@pytest.mark.parametrize("rule", alerts(), ids=lambda rule: rule["alert"])
def test_an_alert_says_what_it_means_and_what_to_do(rule: dict[str, Any]) -> None:
    told = rule["annotations"]
    assert told.keys() == {"summary", "description", "next_step", "runbook"}
    assert rule["labels"].keys() == {"severity"}
    page, anchor = told["runbook"].split("#")
    assert page == "docs/operations.md"
    assert anchor == rule["alert"].lower()
    assert f"\n### {rule['alert']}\n" in OPERATIONS.read_text(encoding="utf-8")


def test_every_cause_has_its_section() -> None:
    """And nothing has one that is no cause."""
    page = OPERATIONS.read_text(encoding="utf-8")
    section = page.partition("\n## Causes, one by one\n")[2].partition("\n## ")[0]
    assert re.findall(r"^### (.+)$", section, re.MULTILINE) == [each.value for each in CauseName]


def test_only_what_exists_is_asked_for() -> None:
    """Names of metrics, and values of the labels of closed sets."""
    asked = [*expressions(), *(rule["expr"] for rule in alerts())]
    assert set().union(*map(names_in, asked)) <= SERIES
    known = {each.value for each in (*CauseName, *RouteState, *AppState)}
    values = {
        value
        for expression in asked
        for told in re.findall(r'\b(?:cause|state)=~?"([^"]+)"', expression)
        for value in told.split("|")
    }
    assert values <= known


def test_expressions_of_the_dashboard_can_be_parsed(tmp_path: Path) -> None:
    rules = [
        {"record": f"panel:{index}", "expr": expression}
        for index, expression in enumerate(expressions())
    ]
    assert rules
    file = tmp_path / "panels.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}), "utf-8")
    promtool("check", "rules", str(file))


def test_the_dashboard_goes_with_any_data_source() -> None:
    board = dashboard()
    assert board["uid"] == "kafka-dispatch-sidecar"
    panels = [panel for panel in board["panels"] if panel["type"] != "row"]
    assert {panel["datasource"]["uid"] for panel in panels} == {"${datasource}"}
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    assert all(panel["description"] for panel in panels)
