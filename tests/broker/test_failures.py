"""What fails costs what it must and no more: small runs of the proofs in tests/chaos."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos import failures, retries
from tests.chaos.stage import Line
from tests.rig.kafka import KafkaCluster
from tests.rig.operations import KafkaOperations

pytestmark = pytest.mark.kafka


def holds(line: Line) -> None:
    assert line.ok, str(line.figures)


def test_a_record_that_always_fails_disturbs_nobody_and_ends_whole_in_the_dead_letter_topic(
    kafka: KafkaOperations, tmp_path: Path
) -> None:
    holds(failures.always_fails(kafka, tmp_path, 0, good=2000))


def test_an_app_that_is_gone_for_a_while_costs_no_attempt(
    kafka: KafkaOperations, tmp_path: Path
) -> None:
    """K8S-3: nothing is parked at one attempt, and full speed is back two seconds later."""
    holds(failures.app_stopped(kafka, tmp_path, 0, seconds=5, rate=200))


def test_a_record_that_kills_the_app_is_parked_alone(
    kafka: KafkaOperations, tmp_path: Path
) -> None:
    holds(failures.killer(kafka, tmp_path, 0, good=2000))


def test_one_record_that_is_deferred_or_forbidden_ends_by_its_attempts_and_stops_nobody(
    kafka: KafkaOperations, tmp_path: Path
) -> None:
    """RSP-3, RSP-4: it is answered 503, or 403, while the others are delivered. How fast they are
    is for the long run to say.
    """
    holds(failures.one_refused(kafka, tmp_path, 0, good=2000, slower=None))


@pytest.mark.parametrize("status", [401, 500])
def test_a_bad_deployment_parks_twenty_records_at_most(
    kafka: KafkaOperations, tmp_path: Path, status: int
) -> None:
    """RSP-3: everything is refused by an app that has taken records before."""
    number = failures.STATUSES.index(status)
    holds(failures.misdeployed(kafka, tmp_path, number, seconds=6))


def test_a_dead_letter_topic_that_may_not_be_written_holds_only_what_is_for_it(
    guarded: KafkaCluster, tmp_path: Path
) -> None:
    """DLQ-1, DLQ-2: commits go on by themselves once it may."""
    holds(failures.letters_refused(guarded, tmp_path, 0, seconds=6))


def test_a_kill_while_records_are_parked_loses_none(kafka: KafkaOperations, tmp_path: Path) -> None:
    """DLQ-1."""
    for line in failures.killed_while_parking(kafka, tmp_path, 1, 0, 2):
        holds(line)


def test_a_record_that_holds_up_the_watermark_is_moved(
    kafka: KafkaOperations, tmp_path: Path
) -> None:
    """OBS-3."""
    holds(retries.relieved(kafka, tmp_path, 0, good=2000))


def test_an_interrupted_redrive_brings_back_each_once_as_it_was(
    kafka: KafkaOperations, tmp_path: Path
) -> None:
    holds(retries.redriven(kafka, tmp_path, 0, count=400))
