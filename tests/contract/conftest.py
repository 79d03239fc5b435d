"""Backends and members for the contract suites."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import pytest

from sidecar.model import Partition
from sidecar.ports import Committed, Message, RecordSource
from tests.contract.backends import Backend, EmbeddedBackend, FakeBackend, KafkaBackend, unable
from tests.fakes.faulty_broker import FaultyBroker

PROTOCOLS: Final = ("eager", "cooperative", "consumer")
DEADLINE_SECONDS: Final = 60.0
POLL_SECONDS: Final = 0.05
ASK_SECONDS: Final = 15.0


class TestMember:
    """A source with a listener that starts where the group is, else at the beginning.

    Everything it is told is kept; what a test wants done in a callback it puts into the hooks.
    """

    __test__ = False

    def __init__(self, source: RecordSource) -> None:
        self.source = source
        self.messages: list[Message] = []
        self.owned: set[Partition] = set()
        self.told: list[tuple[str, list[Partition]]] = []
        self.found: dict[Partition, Committed] = {}
        self.out_of_range: list[Partition] = []
        self.trouble: list[str] = []
        self.restart_at = 0
        self.limit = 100
        self.starts: dict[Partition, int | None] = {}
        self.before_assign: Callable[[], object] = lambda: None
        self.on_giving_up: Callable[[Sequence[Partition]], object] = lambda _: None

    def on_assign(self, partitions: Sequence[Partition]) -> None:
        self.told.append(("assign", list(partitions)))
        self.before_assign()
        found = self.source.committed(partitions, ASK_SECONDS) if partitions else {}
        self.found |= found
        self.source.assign(
            {each: self.starts.get(each, found[each].offset or 0) for each in partitions}
        )
        self.owned |= set(partitions)

    def on_revoke(self, partitions: Sequence[Partition]) -> None:
        self.told.append(("revoke", list(partitions)))
        self.on_giving_up(partitions)
        self.owned -= set(partitions)

    def on_lost(self, partitions: Sequence[Partition]) -> None:
        self.told.append(("lost", list(partitions)))
        self.owned -= set(partitions)

    def on_out_of_range(self, partition: Partition, reason: str) -> None:
        assert reason
        self.out_of_range.append(partition)
        self.source.seek(partition, self.restart_at)

    def on_trouble(self, description: str) -> None:
        assert "\n" not in description
        self.trouble.append(description)

    def poll(self) -> list[Message]:
        got = self.source.poll(self.limit, POLL_SECONDS)
        self.messages += got
        return got

    def offsets(self, partition: Partition) -> list[int]:
        return [each.offset for each in self.messages if each.partition == partition]

    def values(self) -> list[bytes | None]:
        return [each.value for each in self.messages]


def until(condition: Callable[[], object], *members: TestMember) -> None:
    """Poll the members in turn until the condition holds."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, [(one.told, len(one.messages)) for one in members]
        for member in members:
            member.poll()


def idle(member: TestMember, polls: int = 6) -> list[Message]:
    """What comes in a few polls."""
    return [message for _ in range(polls) for message in member.poll()]


@pytest.fixture(scope="session")
def _embedded() -> Iterator[FaultyBroker]:
    with FaultyBroker() as broker:
        if not broker.can_create_topics:
            pytest.skip("this build of librdkafka hides its mock API")
        yield broker


@pytest.fixture(
    params=["fake", "embedded", pytest.param("kafka", marks=pytest.mark.kafka)], scope="session"
)
def _backend(request: pytest.FixtureRequest) -> Backend:
    if request.param == "fake":
        return FakeBackend()
    if request.param == "embedded":
        return EmbeddedBackend(request.getfixturevalue("_embedded"))
    return KafkaBackend(request.getfixturevalue("kafka"))


@pytest.fixture(params=PROTOCOLS)
def protocol(request: pytest.FixtureRequest) -> str:
    """For tests of what the protocols do differently; the others use the cooperative one."""
    return str(request.param)


@pytest.fixture
def backend(_backend: Backend, request: pytest.FixtureRequest) -> Backend:
    chosen = request.node.callspec.params.get("protocol", "")
    reason = unable(_backend.name, chosen, request.node.originalname)
    if reason:
        pytest.skip(reason)
    return _backend


@pytest.fixture
def join(backend: Backend, group: str) -> Iterator[Callable[..., TestMember]]:
    """Make a member of the test's group that is subscribed; closed after the test."""
    members: list[TestMember] = []

    def make(
        *topics: str,
        protocol: str = "cooperative",
        pattern: str | None = None,
        group: str = group,
        **more: object,
    ) -> TestMember:
        source = backend.source(group, protocol, list(topics) or None, pattern, **more)
        member = TestMember(source)
        members.append(member)
        member.source.subscribe(member)
        return member

    yield make
    for member in members:
        member.on_giving_up = lambda _: None
        member.source.close()
