"""Spans of attempts, with an exporter in memory."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import (
    BatchSpanProcessor,
    SimpleSpanProcessor,
    SpanExporter,
    SpanExportResult,
)
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode, format_span_id, format_trace_id

from sidecar.errors import ConfigError
from sidecar.model import (
    Answer,
    Failed,
    FailureKind,
    Header,
    Record,
    Result,
    ReturnedRecord,
    TracedRecord,
)
from sidecar.settings import RouteSettings
from sidecar.telemetry.tracing import Tracing, open_tracing
from tests.fakes.clock import SimulatedScheduler
from tests.fakes.delivery import ManualDelivery
from tests.fakes.records import assignment, record

TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT_ID = "00f067aa0ba902b7"
PARENT = f"00-{TRACE_ID}-{PARENT_ID}-01".encode()
UNSAMPLED = f"00-{TRACE_ID}-{PARENT_ID}-00".encode()
OWNER = assignment(3)


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No variable of the machine's, and the library's loggers as they were."""
    for name in [each for each in os.environ if each.startswith("OTEL_")]:
        monkeypatch.delenv(name)
    library = logging.getLogger("opentelemetry")
    before = (library.handlers[:], library.propagate)
    yield
    library.handlers[:], library.propagate = before


class Rig:
    """A traced slot whose application is the test."""

    def __init__(self, **settings: Any) -> None:
        self.exporter = InMemorySpanExporter()
        self.clock = SimulatedScheduler(100.0)
        self.inner = ManualDelivery()
        self.tracing = Tracing(SimpleSpanProcessor(self.exporter))
        route = RouteSettings(topics=("orders",), target="http://127.0.0.1:1/", **settings)
        delivery = self.tracing.around(self.inner, route, "billing", self.clock.time)
        self.slot = delivery.open_slot()
        self.results: list[Result] = []

    def attempt(self, sent: Record, result: Result | None = None, attempt: int = 1) -> TracedRecord:
        """One that is answered; what was sent."""
        self.slot.send(sent, attempt, self.results.append)
        return self.answer(result)

    def answer(self, result: Result | None = None) -> TracedRecord:
        traced = self.inner.running[0].record
        assert isinstance(traced, TracedRecord)
        self.inner.running[0].answer(result)
        return traced

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        return self.exporter.get_finished_spans()

    @property
    def span(self) -> ReadableSpan:
        (span,) = self.spans
        return span


def told(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def context(span: ReadableSpan) -> tuple[str, str]:
    assert span.context is not None
    return format_trace_id(span.context.trace_id), format_span_id(span.context.span_id)


def is_sampled(sent: TracedRecord) -> bool:
    return bool(int(sent.trace["traceparent"][-2:], 16) & 1)


def from_producer(*headers: Header) -> Record:
    return record(OWNER, 42, headers=[*headers])


def test_an_attempt_is_a_span_by_the_conventions_for_messaging() -> None:
    rig = Rig()
    rig.attempt(record(OWNER, 42, key=b"secret", value=b"payload"), attempt=2)
    assert rig.span.name == "process orders"
    assert rig.span.kind is SpanKind.CONSUMER
    assert rig.span.status.status_code is StatusCode.UNSET
    assert told(rig.span) == {
        "messaging.system": "kafka",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": "3",
        "messaging.kafka.offset": 42,
        "messaging.consumer.group.name": "billing",
        "http.request.method": "POST",
        "http.response.status_code": 204,
        "sidecar.route": "orders",
        "sidecar.attempt": 2,
        "sidecar.outcome": "delivered",
    }
    assert rig.span.resource.attributes["service.name"] == "sidecar"
    assert [repr(each) for each in rig.results] == ["status 204"]


def test_a_span_is_in_the_producers_trace_and_the_application_in_the_spans() -> None:
    rig = Rig()
    state = ("tracestate", b"vendor=x")
    sent = rig.attempt(from_producer(("traceparent", PARENT), state))
    trace_id, span_id = context(rig.span)
    assert trace_id == TRACE_ID
    assert rig.span.parent is not None
    assert format_span_id(rig.span.parent.span_id) == PARENT_ID
    assert [format_span_id(link.context.span_id) for link in rig.span.links] == [PARENT_ID]
    assert sent.trace == {
        "traceparent": f"00-{TRACE_ID}-{span_id}-01",
        "tracestate": "vendor=x",
    }


def test_every_attempt_has_a_span_of_its_own_below_the_producers() -> None:
    rig = Rig()
    for attempt in (1, 2):
        rig.attempt(from_producer(("traceparent", PARENT)), Answer(500), attempt)
    assert {context(span)[0] for span in rig.spans} == {TRACE_ID}
    assert len({context(span)[1] for span in rig.spans}) == 2


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("traceparent", b"nonsense")],
        [("traceparent", PARENT.upper())],
        [("traceparent", b"\xff" * 55)],
        [("traceparent", None), ("tracestate", b"vendor=x")],
    ],
)
def test_a_record_without_a_legal_context_begins_a_trace(headers: list[Header]) -> None:
    rig = Rig()
    sent = rig.attempt(from_producer(*headers))
    trace_id, span_id = context(rig.span)
    assert rig.span.parent is None
    assert not rig.span.links
    assert sent.trace.keys() == {"traceparent"}
    assert sent.trace["traceparent"].startswith(f"00-{trace_id}-{span_id}-")
    assert is_sampled(sent)


def test_what_the_producer_did_not_sample_is_not_recorded_and_stays_so() -> None:
    rig = Rig()
    sent = rig.attempt(from_producer(("traceparent", UNSAMPLED)))
    assert not rig.spans
    assert sent.trace["traceparent"].startswith(f"00-{TRACE_ID}-")
    assert not is_sampled(sent)


def test_the_sampler_is_the_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0")
    rig = Rig()
    assert not is_sampled(rig.attempt(from_producer()))
    rig.attempt(from_producer(("traceparent", PARENT)))
    assert context(rig.span)[0] == TRACE_ID


def test_the_environment_names_the_service(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "billing-sidecar")
    rig = Rig()
    rig.attempt(from_producer())
    assert rig.span.resource.attributes["service.name"] == "billing-sidecar"


@pytest.mark.parametrize(
    ("result", "outcome", "error"),
    [
        (Answer(500), "retry", "500"),
        (Answer(503), "deferred", "503"),
        (Answer(422), "rejected", "422"),
        (Answer(401), "app_down", "401"),
        (Failed(FailureKind.UNREACHABLE, "refused", sent=False), "app_down", "unreachable"),
        (Failed(FailureKind.UNSENDABLE, "too large", sent=False), "rejected", "unsendable"),
    ],
)
def test_a_span_tells_what_an_attempt_failed_with(result: Result, outcome: str, error: str) -> None:
    rig = Rig()
    rig.attempt(record(OWNER, 1, value=None), result)
    attributes = told(rig.span)
    assert attributes["sidecar.outcome"] == outcome
    assert attributes["error.type"] == error
    assert attributes["messaging.kafka.message.tombstone"] is True
    assert attributes.get("http.response.status_code") == getattr(result, "status", None)
    assert rig.span.status.status_code is StatusCode.ERROR


def test_an_attempt_that_is_cancelled_is_no_error() -> None:
    rig = Rig()
    rig.slot.send(from_producer(), 1, rig.results.append)
    rig.clock.advance(3.0)
    assert rig.slot.abort()
    assert told(rig.span)["sidecar.outcome"] == "cancelled"
    assert rig.span.status.status_code is StatusCode.UNSET
    assert not rig.results
    rig.attempt(from_producer())
    assert len(rig.spans) == 2


def test_an_attempt_that_is_given_up_at_its_deadline_has_missed_it() -> None:
    rig = Rig(timeout_seconds=2.0)
    rig.slot.send(from_producer(), 1, rig.results.append)
    rig.clock.advance(2.0)
    rig.slot.abort()
    assert told(rig.span)["error.type"] == "timeout"
    assert told(rig.span)["sidecar.outcome"] == "retry"


def test_a_record_of_a_retry_topic_is_told_as_its_original() -> None:
    rig = Rig()
    original = record(assignment(5, topic="orders"), 7, headers=[("traceparent", PARENT)])
    returned = ReturnedRecord(OWNER, 42, -1, None, b"v", None, 1)
    returned.original, returned.attempts = original, 4
    returned.first_attempt_ms, returned.tier = 0, 1
    sent = rig.attempt(returned)
    attributes = told(rig.span)
    assert attributes["messaging.destination.partition.id"] == "5"
    assert attributes["messaging.kafka.offset"] == 7
    assert attributes["sidecar.attempt"] == 5
    assert (sent.original, sent.attempts) == (original, 4)
    assert context(rig.span)[0] == TRACE_ID


def test_a_batch_is_one_span_with_a_link_to_each_trace() -> None:
    rig = Rig(batch={"max_records": 10})
    other = b"00-" + b"1" * 32 + b"-" + b"2" * 16 + b"-01"
    batch = [
        (from_producer(("traceparent", PARENT)), 1),
        (from_producer(), 1),
        (from_producer(("traceparent", other)), 2),
    ]
    rig.slot.send_batch(batch, rig.results.append)
    sent = rig.answer(Answer(200, body=b'{"failures": [1]}'))
    assert rig.span.parent is None
    assert [format_span_id(link.context.span_id) for link in rig.span.links] == [
        PARENT_ID,
        "2" * 16,
    ]
    assert sent.trace["traceparent"][3:52] == "-".join(context(rig.span))
    attributes = told(rig.span)
    assert attributes["messaging.batch.message_count"] == 3
    assert attributes["sidecar.batch.failed"] == 1
    assert attributes["sidecar.outcome"] == "delivered"
    assert "messaging.kafka.offset" not in attributes


def test_a_batch_whose_answer_cannot_be_read_has_failed() -> None:
    rig = Rig(batch={"max_records": 10})
    rig.slot.send_batch([(from_producer(), 1)], rig.results.append)
    rig.answer(Answer(200, body=b'{"failures": [7]}'))
    assert told(rig.span)["error.type"] == "malformed"


# --- the environment ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OTEL_TRACES_EXPORTER", "zipkin"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "0"),
    ],
)
def test_what_the_environment_asks_for_in_vain_is_refused(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match="OTEL_"):
        open_tracing()


def test_the_environment_switches_tracing_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    assert open_tracing() is None


# --- the exporter ---------------------------------------------------------------------------------


class HangingExporter(SpanExporter):
    """A collector that takes a connection and says nothing."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.released = threading.Event()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.asked.set()
        self.released.wait(10.0)
        return SpanExportResult.FAILURE

    def shutdown(self) -> None:
        pass


def test_a_collector_that_hangs_holds_up_neither_an_attempt_nor_the_stop() -> None:
    exporter = HangingExporter()
    rig = Rig()
    tracing = Tracing(BatchSpanProcessor(exporter, max_queue_size=8, max_export_batch_size=4))
    route = RouteSettings(topics=("orders",), target="http://127.0.0.1:1/")
    inner = ManualDelivery()
    slot = tracing.around(inner, route, "billing", rig.clock.time).open_slot()
    for _ in range(100):
        slot.send(from_producer(), 1, rig.results.append)
        inner.running[0].answer()
    assert exporter.asked.wait(10.0)
    assert len(rig.results) == 100

    async def stop() -> None:
        async with asyncio.timeout(0.02):
            await tracing.close()

    with pytest.raises(TimeoutError):
        asyncio.run(stop())
    exporter.released.set()


def test_what_the_library_says_again_and_again_is_one_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    Rig()
    library = logging.getLogger("opentelemetry.exporter.otlp")
    for number in range(5):
        library.error("Failed to export: %d", number)
    assert [entry.getMessage() for entry in caplog.records] == ["tracing: Failed to export: 0"]


@pytest.mark.parametrize("headers", ["hush-hush", "a=1, authorization=Basic%20hush-hush"])
def test_what_the_library_repeats_of_headers_is_hidden(
    headers: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It repeats those that it cannot read; a collector's reason may repeat those it was sent."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", headers)
    tracing = Tracing()
    logging.getLogger("opentelemetry.exporter.otlp").error("401, reason: %s", "Basic hush-hush")
    asyncio.run(tracing.close())
    assert "401, reason: " in caplog.text
    assert "hush" not in caplog.text
