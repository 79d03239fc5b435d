"""One round of some adversaries of tests/chaos, each with another guarantee or protocol."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.adversaries import AppKilled, Frozen, Killed
from tests.chaos.turmoil import Adversary
from tests.rig.kafka import KafkaCluster

pytestmark = pytest.mark.kafka


@pytest.mark.parametrize(
    ("adversary", "number"),
    [(AppKilled, 0), (Frozen, 1), (Killed, 5)],
    ids=["app-killed", "sidecar-frozen", "sidecar-killed"],
)
def test_a_group_that_is_harmed_keeps_its_guarantee(
    breakable_kafka: KafkaCluster, tmp_path: Path, adversary: type[Adversary], number: int
) -> None:
    line = adversary().round(breakable_kafka, tmp_path, 1, number)
    assert line.ok, str(line.figures)
