"""Services in six languages rebuild every record byte for byte, by the documented decoders."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import pytest
import uvloop
from confluent_kafka import Producer

from sidecar.core.target import parse_target
from sidecar.delivery import open_delivery
from sidecar.kafka.embedded import EmbeddedBroker
from sidecar.model import Answer, Assignment, Failed, Header, Partition, Record, Result
from tests.examples.hostile import CASES, Case
from tests.examples.services import LANGUAGES, Decoded, Language, Service
from tests.rig.processes import Scene, config
from tests.rig.waiting import eventually

DEADLINE_SECONDS: Final = 60.0
TIMESTAMP_MS: Final = 1_700_000_000_123
_carried_by_name: Final = re.compile(r"[A-Za-z0-9-]+").fullmatch

# The first to need a service builds it; on a busy machine that takes its time.
pytestmark = pytest.mark.timeout(300)

Start = Callable[[Language], Service]


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """Starts a language's service once for all tests."""
    directory = tmp_path_factory.mktemp("examples")
    running: dict[str, Service] = {}

    def started(language: Language) -> Service:
        if language.name not in running:
            running[language.name] = Service(language, directory)
        return running[language.name]

    yield started
    for service in running.values():
        service.stop()


@pytest.fixture(scope="module", params=LANGUAGES, ids=lambda each: str(each.name))
def service(request: pytest.FixtureRequest, start: Start) -> Service:
    return start(request.param)


def a_record(case: Case, topic: str, offset: int = 0, timestamp_ms: int = TIMESTAMP_MS) -> Record:
    assignment = Assignment(Partition(topic, 7), epoch=1)
    return Record(assignment, offset, timestamp_ms, case.key, case.value, [*case.headers], size=0)


def send(service: Service, records: Sequence[tuple[Record, int]]) -> list[Result]:
    """Send records, each with its attempt, by the sidecar's own delivery; the results."""

    async def main() -> list[Result]:
        loop = asyncio.get_running_loop()
        delivery = open_delivery(
            target=parse_target(service.target),
            loop=loop,
            content_type="application/octet-stream",
            max_header_bytes=service.language.max_header_bytes,
            headers_always=service.language.headers_always,
        )
        slot = delivery.open_slot()
        results = []
        async with asyncio.timeout(DEADLINE_SECONDS):
            for record, attempt in records:
                answered: asyncio.Future[Result] = loop.create_future()
                slot.send(record, attempt, answered.set_result)
                results.append(await answered)
        slot.close()
        await delivery.close()
        return results

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main())


def seen(service: Service, topic: str, count: int) -> list[Decoded]:
    def enough() -> list[Decoded]:
        found = service.decoded(topic)
        return found if len(found) >= count else []

    return eventually(enough, f"{service.language.name} tells of {count} records")


def by_name(headers: Sequence[Header]) -> list[Header]:
    """As HTTP gives them: names without case, an order only among the same name."""
    return sorted(((name.lower(), value) for name, value in headers), key=lambda pair: pair[0])


def assert_rebuilt(case: Case, decoded: Decoded, language: Language) -> None:
    assert decoded.key == case.key, case.name
    assert decoded.value == case.value, case.name
    whole = language.headers_always or not all(
        _carried_by_name(name) and value is not None for name, value in case.headers
    )
    if whole:
        assert decoded.headers == [*case.headers], case.name
    else:
        assert by_name(decoded.headers) == by_name(case.headers), case.name


def test_every_record_is_rebuilt(service: Service) -> None:
    records = [(a_record(case, "rebuilt", offset), 1) for offset, case in enumerate(CASES)]
    for case, result in zip(CASES, send(service, records), strict=True):
        assert isinstance(result, Answer), f"{case.name}: {result}"
        assert result.status == 204, f"{case.name}: {result.body!r}"
    lines = seen(service, "rebuilt", len(CASES))
    assert len(lines) == len(CASES)
    for offset, (case, decoded) in enumerate(zip(CASES, lines, strict=True)):
        assert_rebuilt(case, decoded, service.language)
        assert decoded[:4] == ("rebuilt", 7, offset, TIMESTAMP_MS)


def test_a_repeat_is_recognised_and_answered(service: Service) -> None:
    first, second = (a_record(Case(""), "repeated", offset) for offset in (1, 2))
    results = send(service, [(first, 1), (first, 2), (second, 3)])
    assert [isinstance(each, Answer) and each.status for each in results] == [204] * 3
    lines = seen(service, "repeated", 2)
    assert [(each.offset, each.attempt) for each in lines] == [(1, 1), (2, 3)]
    assert [each.idempotency_key for each in lines] == [
        f'"repeated/7/{offset}/{TIMESTAMP_MS}"' for offset in (1, 2)
    ]


def test_a_record_without_a_timestamp_has_none(service: Service) -> None:
    (result,) = send(service, [(a_record(Case(""), "timeless", 1, -1), 1)])
    assert isinstance(result, Answer)
    assert seen(service, "timeless", 1)[0].timestamp_ms is None


def test_a_head_of_exactly_the_limit_is_taken(service: Service) -> None:
    """A server that refused what the sidecar sends by default would have it parked."""
    limit = service.language.max_header_bytes

    def send_key_of(size: int) -> Result:
        return send(service, [(a_record(Case("", b"x" * size), "limit"), 1)])[0]

    too_long = send_key_of(limit)
    assert isinstance(too_long, Failed)
    found = re.search(r"head has (\d+) bytes", too_long.detail)
    assert found
    size = limit - (int(found[1]) - limit)
    result = send_key_of(size)
    assert isinstance(result, Answer)
    assert result.status == 204, result.body
    assert seen(service, "limit", 1)[0].key == b"x" * size


def test_end_to_end(start: Start, tmp_path: Path) -> None:
    """Produced to a broker, consumed and delivered by a sidecar with a route for each service."""
    # The client cuts names at NUL, and the broker takes no megabyte.
    cases = [
        case
        for case in CASES
        if len(case.value or b"") < 100_000 and not any("\0" in name for name, _ in case.headers)
    ]
    services = [
        start(language) for language in LANGUAGES if not language.missing or os.environ.get("CI")
    ]
    with EmbeddedBroker() as broker, Scene(tmp_path) as scene:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        routes = []
        for service in services:
            topic = f"end.{service.language.name}"
            broker.create_topic(topic, 1)
            for case in cases:
                producer.produce(topic, case.value, case.key, headers=[*case.headers], partition=0)
            routes.append(
                {
                    "topics": [topic],
                    "target": service.target,
                    "headers_always": service.language.headers_always,
                    "max_header_bytes": service.language.max_header_bytes,
                    "executors": 4,
                }
            )
        assert producer.flush(DEADLINE_SECONDS) == 0
        overrides = {name.replace(".", "_"): v for name, v in broker.client_overrides.items()}
        settings = config(broker.bootstrap_servers, "examples", routes, **overrides)
        sidecar = scene.sidecar(settings)
        for service in services:
            lines = seen(service, f"end.{service.language.name}", len(cases))
            assert sorted(each.offset for each in lines) == [*range(len(cases))]
            for decoded in lines:
                assert_rebuilt(cases[decoded.offset], decoded, service.language)
        assert sidecar.stop() == 0
