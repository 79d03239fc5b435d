"""What every Parking does: the fake, DeadLetterWriter on the embedded broker, and on a real one."""

from __future__ import annotations

import asyncio
import queue
import random
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol

import pytest
from confluent_kafka import KafkaError

from sidecar.core.letters import Told
from sidecar.core.retry_mark import RETRY_MARK, RetryMark, marked, read_mark
from sidecar.kafka.dead_letters import TEXT_BYTES, DeadLetterWriter
from sidecar.model import Assignment, Header, Partition, Record, ReturnedRecord
from sidecar.ports import Parking, Story
from tests.conftest import TopicFactory
from tests.fakes.faulty_broker import FaultyBroker
from tests.fakes.parking import FakeParking, Parked
from tests.rig.kafka import KafkaCluster
from tests.rig.operations import KafkaOperations

GROUP: Final = "billing"
DEADLINE_SECONDS: Final = 60.0
WRITE_SECONDS: Final = 5.0  # which a write that fails takes, and none that succeeds
STORY: Final = Story("status_rejected", "the app answered 422", 422, 3, 1.5, 2.25, b"no \xff")
PRODUCE, INIT_PRODUCER_ID = 0, 22


def record(
    value: bytes | None = b"value",
    key: bytes | None = b"key",
    headers: list[Header] | None = None,
    *,
    offset: int = 42,
    timestamp_ms: int = 1_700_000_000_000,
) -> Record:
    assignment = Assignment(Partition("orders", 7), 1)
    return Record(assignment, offset, timestamp_ms, key, value, headers, len(value or b""))


class Loop:
    """The thread of the test as the event loop: what it is told runs when the test waits."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[tuple[Callable[..., object], Any]] = queue.SimpleQueue()

    def tell(self, function: Callable[..., object], *args: object) -> None:
        self._calls.put((function, args))

    def run_until(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not condition():
            function, args = self._calls.get(timeout=max(0.0, deadline - time.monotonic()))
            function(*args)

    def idle(self) -> bool:
        return self._calls.empty()


class Place(Protocol):
    """Where records are parked, with a switch for an outage."""

    def open(self, tell: Callable[..., object]) -> Parking: ...

    def read(self) -> list[Parked]: ...

    @property
    def retry_topic(self) -> str: ...

    def retried(self) -> list[Parked]:
        """What was written to it."""

    def set_down(self, down: bool) -> None: ...


class FakePlace:
    def __init__(self) -> None:
        self.parking: FakeParking | None = None

    def open(self, tell: Callable[..., object]) -> Parking:
        self.parking = FakeParking(tell, GROUP)
        return self.parking

    def read(self) -> list[Parked]:
        assert self.parking is not None
        return self.parking.parked

    @property
    def retry_topic(self) -> str:
        return "later"

    def retried(self) -> list[Parked]:
        assert self.parking is not None
        return [each.record for each in self.parking.retried if each.topic == self.retry_topic]

    def set_down(self, down: bool) -> None:
        assert self.parking is not None
        self.parking.error = "down" if down else None


class ClientPlace:
    """What the two that are reached through a client have in common."""

    def __init__(
        self,
        address: str,
        topic: str,
        switch: Callable[[bool], None],
        create: Callable[[str], object],
    ) -> None:
        self.address = address
        self._retry_topic = ""
        self._create = create
        self.topic = topic
        self._switch = switch

    def open(self, tell: Callable[..., object], topic: str = "", **config: Any) -> DeadLetterWriter:
        settings = {**self._client, "message.max.bytes": 67_108_864, **config}
        return DeadLetterWriter(
            settings, topic or self.topic, GROUP, tell, deadline_seconds=WRITE_SECONDS
        )

    @property
    def _client(self) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.address,
            "log_level": 0,
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 200,
        }

    def read(self, topic: str = "") -> list[Parked]:
        return [parked for lane in self.lanes(topic).values() for parked in lane]

    @property
    def retry_topic(self) -> str:
        if not self._retry_topic:
            self._retry_topic = f"later-{uuid.uuid4().hex[:8]}"
            self._create(self._retry_topic)
        return self._retry_topic

    def retried(self) -> list[Parked]:
        return self.read(self.retry_topic)

    def lanes(self, topic: str = "") -> dict[int, list[Parked]]:
        """What lies in each partition."""
        lanes: dict[int, list[Parked]] = {}
        operations = KafkaOperations(self.address)
        try:
            for message in operations.read(topic or self.topic):
                headers: Any = message.headers() or []
                lane = lanes.setdefault(message.partition() or 0, [])
                lane.append(Parked(message.key(), message.value(), headers))
        finally:
            operations.close_clients()
        return lanes

    def set_down(self, down: bool) -> None:
        self._switch(down)


def no_switch(_down: bool) -> None:
    raise AssertionError("the shared broker is not to be harmed")


@pytest.fixture(scope="session")
def faulty_broker() -> Iterator[FaultyBroker]:
    with FaultyBroker() as broker:
        if not broker.can_create_topics:
            pytest.skip("this build of librdkafka hides its mock API")
        yield broker


@pytest.fixture
def embedded(faulty_broker: FaultyBroker) -> Iterator[ClientPlace]:
    topic = f"parked-{uuid.uuid4().hex[:8]}"
    faulty_broker.create_topic(topic, 3)

    def switch(down: bool) -> None:
        (faulty_broker.set_down if down else faulty_broker.set_up)()

    yield ClientPlace(
        faulty_broker.bootstrap_servers,
        topic,
        switch,
        lambda name: faulty_broker.create_topic(name, 1),
    )
    faulty_broker.set_up()


@pytest.fixture
def real(kafka: KafkaOperations, topic: TopicFactory) -> ClientPlace:
    name = topic(3, name="parked")
    return ClientPlace(kafka.bootstrap_servers, name, no_switch, kafka.create_topic)


@pytest.fixture
def breakable(breakable_kafka: KafkaCluster, topic: TopicFactory) -> ClientPlace:
    def switch(down: bool) -> None:
        node = breakable_kafka.node(1)
        (node.pause if down else node.resume)()

    name = topic(3, name="parked", on=breakable_kafka)
    create = breakable_kafka.create_topic
    return ClientPlace(breakable_kafka.bootstrap_servers, name, switch, create)


def place_of(request: pytest.FixtureRequest) -> Place:
    chosen: Place = (
        FakePlace() if request.param == "fake" else request.getfixturevalue(request.param)
    )
    return chosen


@pytest.fixture(params=["fake", "embedded", pytest.param("real", marks=pytest.mark.kafka)])
def place(request: pytest.FixtureRequest) -> Place:
    return place_of(request)


@pytest.fixture(params=["fake", "embedded", pytest.param("breakable", marks=pytest.mark.kafka)])
def frail_place(request: pytest.FixtureRequest) -> Place:
    return place_of(request)


class Desk:
    """A writer and the answers to what was parked with it."""

    def __init__(self, loop: Loop, parking: Parking) -> None:
        self.loop = loop
        self.parking = parking
        self.answers: list[str | None] = []
        self._asked = 0

    def park(self, *records: Record, story: Story = STORY) -> list[str | None]:
        """The answers to these, in the order in which they came."""
        before = len(self.answers)
        self.send(*records, story=story)
        self.wait()
        return self.answers[before:]

    def retry(self, record: Record, mark: RetryMark, topic: str) -> list[str | None]:
        before = len(self.answers)
        self._asked += 1
        self.parking.retry(record, mark, topic, self.answers.append)
        self.wait()
        return self.answers[before:]

    def send(self, *records: Record, story: Story = STORY) -> None:
        for each in records:
            self._asked += 1
            self.parking.park(each, story, self.answers.append)

    def wait(self) -> None:
        self.loop.run_until(lambda: len(self.answers) == self._asked)

    def close(self) -> None:
        asyncio.run(self.parking.close())


@pytest.fixture
def open_desk() -> Iterator[Callable[..., Desk]]:
    desks: list[Desk] = []

    def make(place: Any, **more: Any) -> Desk:
        loop = Loop()
        desks.append(Desk(loop, place.open(loop.tell, **more)))
        return desks[-1]

    yield make
    for desk in desks:
        desk.close()
    assert not threads(), "a writer's thread outlived it"


OpenDesk = Callable[..., Desk]


def threads() -> list[str]:
    return [each.name for each in threading.enumerate() if each.name.startswith("park-")]


def told(parked: Parked) -> dict[str, bytes | None]:
    names = {each.value for each in Told}
    found = [(name, value) for name, value in parked.headers if name in names]
    assert len(found) == len(dict(found)), "told twice"
    return dict(found)


@pytest.mark.parametrize(
    ("key", "value", "headers"),
    [
        (None, None, None),
        (b"", b"", [("", b"")]),
        (b"\x00\xff", b"\x00\xff", [("b", None), ("a", b""), ("b", b"\xff"), ("ü", b"x")]),
    ],
)
def test_record_comes_through_as_it_was(
    place: Place,
    open_desk: OpenDesk,
    key: bytes | None,
    value: bytes | None,
    headers: list[Header] | None,
) -> None:
    """Key, value and headers, null and empty told apart; what is told stands behind them."""
    assert open_desk(place).park(record(value, key, headers)) == [None]
    (parked,) = place.read()
    assert (parked.key, parked.value) == (key, value)
    assert parked.headers[: len(headers or [])] == (headers or [])


def test_story_is_told(place: Place, open_desk: OpenDesk) -> None:
    open_desk(place).park(record())
    assert told(place.read()[0]) == {
        "sidecar-dlq-topic": b"orders",
        "sidecar-dlq-partition": b"7",
        "sidecar-dlq-offset": b"42",
        "sidecar-dlq-timestamp": b"1700000000000",
        "sidecar-dlq-group": b"billing",
        "sidecar-dlq-reason": b"status_rejected",
        "sidecar-dlq-detail": b"the app answered 422",
        "sidecar-dlq-status": b"422",
        "sidecar-dlq-attempts": b"3",
        "sidecar-dlq-first-attempt": b"1500",
        "sidecar-dlq-last-attempt": b"2250",
        "sidecar-dlq-answer": b"no \xff",
    }


def test_what_is_not_known_is_absent(place: Place, open_desk: OpenDesk) -> None:
    story = Story("timeout", "", None, 1, 1.0, 1.0, b"")
    open_desk(place).park(record(timestamp_ms=-1), story=story)
    absent = {Told.TIMESTAMP, Told.DETAIL, Told.STATUS, Told.ANSWER}
    assert told(place.read()[0]).keys() == {each.value for each in set(Told) - absent}


def test_parked_again_is_told_once(place: Place, open_desk: OpenDesk) -> None:
    """Headers of an earlier parking are replaced, the record's own stay."""
    desk = open_desk(place)
    desk.park(record(headers=[("mine", b"1")]))
    (first,) = place.read()
    desk.park(record(b"again", headers=first.headers, offset=99))
    (again,) = [each for each in place.read() if each.value == b"again"]
    assert told(again)["sidecar-dlq-offset"] == b"99"
    assert len(again.headers) == len(first.headers)
    assert again.headers[0] == ("mine", b"1")


def test_long_texts_are_cut(place: Place, open_desk: OpenDesk) -> None:
    """At a whole character."""
    story = STORY._replace(detail="x" + "ü" * TEXT_BYTES, answer=b"y" * 2 * TEXT_BYTES)
    open_desk(place).park(record(), story=story)
    found = told(place.read()[0])
    assert found["sidecar-dlq-detail"] == ("x" + "ü" * (TEXT_BYTES // 2 - 1)).encode()
    assert found["sidecar-dlq-answer"] == b"y" * TEXT_BYTES


def test_each_write_is_answered_once_and_later(place: Place, open_desk: OpenDesk) -> None:
    desk = open_desk(place)
    desk.send(*(record(b"%d" % number) for number in range(200)))
    assert desk.answers == []
    desk.wait()
    desk.close()
    assert desk.loop.idle()
    assert desk.answers == [None] * 200
    assert {each.value for each in place.read()} == {b"%d" % number for number in range(200)}


MARK: Final = RetryMark("orders", 7, 42, 1_700_000_000_000, 3, 1_500, 99_000)


@pytest.mark.parametrize("forged", [False, True])
def test_record_that_is_retried_is_as_it_was_with_the_mark_behind(
    place: Place, open_desk: OpenDesk, forged: bool
) -> None:
    """A null value stays null; a mark of somebody else's is a header like any other."""
    headers: list[Header] = [("a", None), ("b", b"\xff"), ("a", b"")]
    if forged:
        headers.append((RETRY_MARK, b'{"attempts": 900}'))
    desk = open_desk(place)
    assert desk.retry(record(None, b"", headers), MARK, place.retry_topic) == [None]
    (retried,) = place.retried()
    assert (retried.key, retried.value) == (b"", None)
    assert retried.headers[:-1] == headers
    assert read_mark(retried.headers) == MARK


def test_returned_record_is_written_as_its_original(place: Place, open_desk: OpenDesk) -> None:
    """To the next retry topic and to the dead letters: one mark, the first coordinates."""
    returned = ReturnedRecord(
        Assignment(Partition("later", 0), 1), 3, 9, b"k", b"v", marked([("a", b"1")], MARK), 9
    )
    returned.original = record(b"v", b"k", [("a", b"1")])
    returned.attempts, returned.first_attempt_ms, returned.tier = 3, 1_500, 1
    desk = open_desk(place)
    assert desk.park(returned) == [None]
    assert desk.retry(returned, MARK, place.retry_topic) == [None]
    (parked,), (retried,) = place.read(), place.retried()
    assert parked.headers[0] == ("a", b"1")
    assert (told(parked)["sidecar-dlq-topic"], told(parked)["sidecar-dlq-offset"]) == (
        b"orders",
        b"42",
    )
    assert RETRY_MARK not in dict(parked.headers)
    assert [name for name, _ in retried.headers] == ["a", RETRY_MARK]


def test_closed_writer_refuses(place: Place, open_desk: OpenDesk) -> None:
    desk = open_desk(place)
    desk.close()
    (answer,) = desk.park(record())
    assert answer is not None
    assert "closed" in answer


def test_outage_is_told_and_survived(frail_place: Place, open_desk: OpenDesk) -> None:
    """While the broker is away every write is answered with an error, in time; afterwards the
    same writer writes again. Nothing is confirmed that is not in the topic.
    """
    desk = open_desk(frail_place)
    assert desk.park(record(b"before")) == [None]
    frail_place.set_down(True)
    began = time.monotonic()
    refused = desk.park(record(b"one"), record(b"two"))
    took = time.monotonic() - began
    frail_place.set_down(False)
    assert None not in refused
    assert took < WRITE_SECONDS + 3
    answers = desk.park(record(b"after"))
    while answers != [None]:  # as the caller does, until the broker is itself again
        answers = desk.park(record(b"after"))
    values = [each.value for each in frail_place.read()]
    assert {b"before", b"after"} <= set(values)
    assert values.count(b"before") == 1


def test_nothing_runs_before_the_first_write(embedded: ClientPlace, open_desk: OpenDesk) -> None:
    desk = open_desk(embedded)
    assert not threads()
    desk.park(record())
    assert threads()


def test_a_producer_made_anew_loses_nothing_of_the_old_one(
    embedded: ClientPlace, open_desk: OpenDesk
) -> None:
    """What was written before is confirmed by the old one, what comes then by the new."""
    desk = open_desk(embedded)
    assert desk.park(record(b"first")) == [None]
    desk.send(record(b"old"))
    assert isinstance(desk.parking, DeadLetterWriter)
    desk.parking.renew({"bootstrap.servers": embedded.address, "client.id": "another"})
    desk.send(record(b"new"))
    desk.wait()
    assert desk.answers == [None] * 3
    assert sorted(each.value or b"" for each in embedded.read()) == [b"first", b"new", b"old"]


def test_a_producer_that_cannot_be_made_is_told_with_the_reason(
    embedded: ClientPlace, open_desk: OpenDesk
) -> None:
    desk = open_desk(embedded)
    assert isinstance(desk.parking, DeadLetterWriter)
    desk.parking.renew({"bootstrap.servers": "x:1", "security.protocol": "nonsense"})
    (said,) = desk.park(record())
    assert said is not None
    assert "security.protocol" in said


def test_close_waits_for_confirmations(embedded: ClientPlace, open_desk: OpenDesk) -> None:
    desk = open_desk(embedded)
    desk.park(record())  # connected: how long that takes is not the question here
    desk.send(*(record(b"%d" % number) for number in range(20)))
    desk.close()
    desk.wait()
    assert desk.answers == [None] * 21


def test_close_is_bounded_and_answers(embedded: ClientPlace, open_desk: OpenDesk) -> None:
    desk = open_desk(embedded)
    desk.park(record())
    embedded.set_down(True)
    desk.send(record(), record())
    began = time.monotonic()
    desk.close()
    assert time.monotonic() - began < WRITE_SECONDS
    desk.wait()
    assert None not in desk.answers[1:]


def test_key_decides_the_partition(embedded: ClientPlace, open_desk: OpenDesk) -> None:
    """Fewer partitions than the source are enough."""
    keys = [b"%d" % number for number in range(12)]
    open_desk(embedded).park(*(record(each, each) for each in keys * 3))
    lanes = [{each.key for each in lane} for lane in embedded.lanes().values()]
    assert sum(map(len, lanes)) == len(keys)
    assert sum(map(bool, lanes)) > 1


def test_refusal_of_the_broker_is_told(
    embedded: ClientPlace, faulty_broker: FaultyBroker, open_desk: OpenDesk
) -> None:
    """Before DLQ-1's commit: a write that the broker refuses is not confirmed."""
    desk = open_desk(embedded)
    faulty_broker.fail_next(PRODUCE, KafkaError.TOPIC_AUTHORIZATION_FAILED)
    (answer,) = desk.park(record(b"refused"))
    assert answer is not None
    assert embedded.topic in answer
    assert "TOPIC_AUTHORIZATION_FAILED" in answer
    began = time.monotonic()
    while desk.park(record(b"taken")) != [None]:
        assert time.monotonic() - began < WRITE_SECONDS, "the refusal is remembered"
    assert [each.value for each in embedded.read()] == [b"taken"]


def test_what_the_broker_takes_for_a_duplicate_is_not_confirmed(
    embedded: ClientPlace, faulty_broker: FaultyBroker, open_desk: OpenDesk
) -> None:
    """The client reports it as written, without an offset; the broker need not have it."""
    desk = open_desk(embedded)
    faulty_broker.fail_next(PRODUCE, KafkaError.DUPLICATE_SEQUENCE_NUMBER)
    (answer,) = desk.park(record(b"again"))
    assert answer is not None
    assert "may not have it" in answer
    assert desk.park(record(b"again")) == [None]
    assert [each.value for each in embedded.read()] == [b"again"]


def test_dead_producer_is_made_anew(
    embedded: ClientPlace, faulty_broker: FaultyBroker, open_desk: OpenDesk
) -> None:
    """After a fatal error of the idempotent producer the next write has another one."""
    faulty_broker.fail_next(INIT_PRODUCER_ID, KafkaError.CLUSTER_AUTHORIZATION_FAILED)
    desk = open_desk(embedded)
    (answer,) = desk.park(record(b"lost"))
    assert answer is not None
    assert "\n" not in answer
    assert desk.park(record(b"taken")) == [None]
    assert [each.value for each in embedded.read()] == [b"taken"]


def test_full_queue_is_told(embedded: ClientPlace, open_desk: OpenDesk) -> None:
    desk = open_desk(embedded, **{"queue.buffering.max.messages": 5})
    embedded.set_down(True)
    desk.send(*(record() for _ in range(6)))
    desk.loop.run_until(lambda: desk.answers)
    assert "too many" in (desk.answers[0] or "")


def test_settings_that_cannot_be_are_told(embedded: ClientPlace, open_desk: OpenDesk) -> None:
    (answer,) = open_desk(embedded, **{"no.such.setting": 1}).park(record())
    assert answer is not None
    assert "no.such.setting" in answer


@pytest.mark.kafka
def test_missing_topic_is_named_and_its_creation_noticed(
    real: ClientPlace, kafka: KafkaOperations, open_desk: OpenDesk
) -> None:
    missing = f"parked-{uuid.uuid4().hex[:8]}"
    desk = open_desk(real, topic=missing)
    (answer,) = desk.park(record())
    assert answer is not None
    assert missing in answer
    assert "UNKNOWN_TOPIC" in answer
    kafka.create_topic(missing)
    began = time.monotonic()
    while desk.park(record(b"taken")) != [None]:
        assert time.monotonic() - began < DEADLINE_SECONDS
    assert [each.value for each in real.read(missing)] == [b"taken"]


@pytest.mark.kafka
def test_too_large_is_told_and_takes_no_neighbour_with_it(
    real: ClientPlace, topic: TopicFactory, open_desk: OpenDesk
) -> None:
    small = topic(1, name="small", config={"max.message.bytes": "20000"})
    values = [random.randbytes(size) for size in (9_000, 9_000, 30_000, 9_000, 9_000)]
    desk = open_desk(real, topic=small, **{"linger.ms": 200})
    answers = desk.park(*map(record, values))
    assert sorted(each is None for each in answers) == [False, True, True, True, True]
    (error,) = [each for each in answers if each is not None]
    assert "30000 bytes" in error
    assert "max.message.bytes" in error
    assert {each.value for each in real.read(small)} == set(values) - {values[2]}


@pytest.mark.kafka
def test_record_at_the_limit_has_room_for_its_headers(
    real: ClientPlace, topic: TopicFactory, open_desk: OpenDesk
) -> None:
    """Given a topic that takes a little more than the source; where the source holds records
    compressed, the same limit will do.
    """
    roomy = topic(1, name="roomy", config={"max.message.bytes": "1100000"})
    value = random.randbytes(1_048_000)
    story = STORY._replace(answer=b"y" * TEXT_BYTES)
    assert open_desk(real, topic=roomy).park(record(value), story=story) == [None]
    assert open_desk(real).park(record(b"{}" * 2_000_000)) == [None]
