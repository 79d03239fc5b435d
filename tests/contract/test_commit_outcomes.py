"""KafkaSource's commits when the broker refuses, is silent or goes away: which error, and when."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError

from sidecar.errors import CommitFailed, CommitUnknown, SourceError
from sidecar.kafka.source import KafkaSource
from sidecar.model import Partition
from sidecar.ports import Committed
from tests.contract.backends import EmbeddedBackend
from tests.contract.conftest import ASK_SECONDS, TestMember, until
from tests.fakes.faulty_broker import OFFSET_COMMIT, FaultyBroker

# librdkafka asks again by itself after some errors; a refusal must be seen through that.
TRIES = 12


@pytest.fixture
def broker() -> Iterator[FaultyBroker]:
    with FaultyBroker() as broker:
        if not broker.can_create_topics:
            pytest.skip("this build of librdkafka hides its mock API")
        yield broker


@pytest.fixture
def member(broker: FaultyBroker, group: str) -> Iterator[TestMember]:
    backend = EmbeddedBackend(broker)
    topic = backend.create_topic(2)
    source = backend.source(group, "cooperative", [topic])
    member = TestMember(source)
    source.subscribe(member)
    until(lambda: member.owned, member)
    yield member
    source.close()


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (KafkaError.REBALANCE_IN_PROGRESS, CommitFailed),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, CommitFailed),
        (KafkaError.OFFSET_METADATA_TOO_LARGE, CommitFailed),
        (KafkaError.REQUEST_TIMED_OUT, CommitUnknown),
        (KafkaError.UNKNOWN, CommitUnknown),
    ],
)
def test_refusals_are_told_from_doubt(
    broker: FaultyBroker, member: TestMember, code: int, kind: type[SourceError]
) -> None:
    partition = min(member.owned)
    broker.fail_next(OFFSET_COMMIT, *[code] * TRIES)
    with pytest.raises(kind) as caught:
        member.source.commit({partition: (1, "")}, ASK_SECONDS)
    assert type(caught.value) is kind


def test_refusal_of_commit_later(broker: FaultyBroker, member: TestMember) -> None:
    answers: list[Exception | None] = []
    broker.fail_next(OFFSET_COMMIT, *[KafkaError.GROUP_AUTHORIZATION_FAILED] * TRIES)
    member.source.commit_later({min(member.owned): (1, "")}, answers.append)
    until(lambda: answers, member)
    assert isinstance(answers[0], CommitFailed)


def test_passing_refusal_is_tried_again_at_once(broker: FaultyBroker, member: TestMember) -> None:
    partition = min(member.owned)
    broker.fail_next(OFFSET_COMMIT, KafkaError.REBALANCE_IN_PROGRESS)
    member.source.commit({partition: (1, "m")}, ASK_SECONDS)
    assert member.source.committed([partition], ASK_SECONDS) == {partition: Committed(1, "m")}


def test_silent_broker_costs_the_timeout_and_no_more(
    broker: FaultyBroker, member: TestMember
) -> None:
    broker.set_delay(5.0)
    started = time.monotonic()
    with pytest.raises(CommitUnknown):
        member.source.commit({min(member.owned): (1, "")}, 0.5)
    assert 0.4 < time.monotonic() - started < 1.5
    broker.set_delay(0.0)


def test_commit_after_an_outage_is_not_taken_for_an_earlier_one(
    broker: FaultyBroker, member: TestMember
) -> None:
    """Answers that come late belong to the commit they are about."""
    partition, other = sorted(member.owned)
    answers: list[Exception | None] = []
    broker.set_delay(1.0)
    with pytest.raises(CommitUnknown):
        member.source.commit({partition: (1, "")}, 0.2)
    broker.set_delay(0.0)
    member.source.commit_later({other: (7, "")}, answers.append)
    until(lambda: answers, member)
    assert answers == [None]
    found = member.source.committed([partition, other], ASK_SECONDS)
    assert found == {partition: Committed(1, ""), other: Committed(7, "")}


def test_close_returns_when_the_broker_is_gone(broker: FaultyBroker, member: TestMember) -> None:
    def commit(_: object) -> None:
        with pytest.raises(SourceError):
            member.source.commit({Partition("gone", 0): (1, "")}, 0.5)

    member.on_giving_up = commit
    broker.set_down()
    until(lambda: member.trouble, member)
    started = time.monotonic()
    member.source.close()
    assert time.monotonic() - started < 15.0


def test_close_answers_what_the_broker_did_not(broker: FaultyBroker, member: TestMember) -> None:
    answers: list[Exception | None] = []
    broker.set_down()
    until(lambda: member.trouble, member)
    member.source.commit_later({min(member.owned): (1, "")}, answers.append)
    member.source.close()
    assert len(answers) == 1
    assert isinstance(answers[0], CommitUnknown)


def test_unsubscribed_source_closes() -> None:
    KafkaSource({"group.id": "g"}, ["t"], None).close()
