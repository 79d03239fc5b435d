"""Fixtures every suite may use. The brokers start when the first test asks for them.

* `kafka`           one broker for the whole run, shared: no test harms it
* `breakable_kafka` one broker that a test may kill, pause, restart; healed after each test
* `kafka3`          three nodes, each of which may be killed; healed after each test
* `topic`, `group`  names of one test's own

Without any way to a broker these skip with one message, and fail in CI (variable CI set).
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Mapping
from typing import Protocol

import pytest
from hypothesis import HealthCheck, settings

from tests.rig.errors import NoKafka
from tests.rig.guardian import Guardian
from tests.rig.kafka import KafkaCluster
from tests.rig.operations import KafkaOperations
from tests.rig.properties import UNHARMED, Properties

# A busy machine is no failure; what CI sets for itself stays.
settings.register_profile(
    "tests", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("tests")


class TopicFactory(Protocol):
    def __call__(
        self,
        partitions: int = 1,
        *,
        name: str = "",
        replication: int | None = None,
        config: Mapping[str, str] | None = None,
        on: KafkaOperations | None = None,
    ) -> str:
        """Create a topic with a unique name (name is its first part) and return the name.

        on: another cluster than `kafka`.
        """


@pytest.fixture(scope="session", autouse=True)
def _nothing_is_left_behind() -> Iterator[None]:
    """Ctrl-C ends the workers of a parallel run at once: what one has started goes with it."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        yield
        return
    os.setpgrp()
    guardian = Guardian()
    guardian.tell(f"kill -KILL -{os.getpgrp()}")
    yield
    guardian.tell(":")
    guardian.close()


def cluster(nodes: int, config: Properties | None = None) -> Iterator[KafkaCluster]:
    """Of a fixture: a cluster of the rig. Without a way to one it skips, in CI it fails."""
    yield from entered(KafkaCluster(nodes, config=config))


def entered(found: KafkaCluster) -> Iterator[KafkaCluster]:
    """The same for one that is already described."""
    try:
        found.start()
    except NoKafka as missing:
        if os.environ.get("CI"):
            pytest.fail(str(missing), pytrace=False)
        pytest.skip(str(missing))
    try:
        yield found
    finally:
        found.stop()


@pytest.fixture(scope="session")
def kafka() -> Iterator[KafkaOperations]:
    """KAFKA_BOOTSTRAP_SERVERS if set, else a broker of the rig."""
    external = os.environ.get("KAFKA_BOOTSTRAP_SERVERS")
    if external:
        operations = KafkaOperations(external)
        yield operations
        operations.close_clients()
    else:
        yield from cluster(1, UNHARMED)


@pytest.fixture(scope="session")
def _breakable_kafka() -> Iterator[KafkaCluster]:
    yield from cluster(1)


@pytest.fixture
def breakable_kafka(_breakable_kafka: KafkaCluster) -> Iterator[KafkaCluster]:
    yield _breakable_kafka
    _breakable_kafka.heal()


@pytest.fixture(scope="session")
def _kafka3() -> Iterator[KafkaCluster]:
    yield from cluster(3)


@pytest.fixture
def kafka3(_kafka3: KafkaCluster) -> Iterator[KafkaCluster]:
    yield _kafka3
    _kafka3.heal()


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> TopicFactory:
    def create(
        partitions: int = 1,
        *,
        name: str = "",
        replication: int | None = None,
        config: Mapping[str, str] | None = None,
        on: KafkaOperations | None = None,
    ) -> str:
        cluster: KafkaOperations = on or request.getfixturevalue("kafka")
        unique = f"{name or request.node.originalname}.{uuid.uuid4().hex[:8]}"
        cluster.create_topic(unique, partitions, replication, config)
        return unique

    return create


@pytest.fixture
def group() -> str:
    """The name of a consumer group that nobody used before."""
    return f"group-{uuid.uuid4().hex[:12]}"
