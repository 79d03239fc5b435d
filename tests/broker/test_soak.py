"""The short form of `make soak`: it runs, loses nothing, and finds nothing that grows at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rig.operations import KafkaOperations
from tests.soak.run import soak

pytestmark = pytest.mark.kafka


def test_an_eventful_quarter_of_a_minute_loses_nothing_and_leaves_nothing_behind(
    kafka: KafkaOperations, tmp_path: Path
) -> None:
    report = soak(kafka, tmp_path, seconds=16, cycle_seconds=12, sample_seconds=0.5)
    assert report.ok, report
    assert report.figures["members"] >= 1
    assert report.figures["app_restarts"] >= 1
    assert report.figures["parked"] > 0
