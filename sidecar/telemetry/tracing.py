"""OpenTelemetry: one span for each attempt, and its context for the application.

The only importer of OpenTelemetry, itself imported only where tracing is on. It stands around a
route's delivery, so that the engine knows nothing of it and costs nothing for it.

Owned by the runtime, on the loop; what was recorded is sent by the library's own thread.
Invariants:

* A span ends exactly once: with the result of its attempt, or when the attempt is given up.
* Nothing here waits. What cannot be sent is dropped, and nothing of a record but its coordinates
  is told.

Names, kind and links are those of OpenTelemetry's conventions for messaging, see ADR 0019.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final
from urllib.parse import unquote

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import (
    Link,
    Span,
    SpanKind,
    Status,
    StatusCode,
    get_current_span,
    set_span_in_context,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

from sidecar import __version__
from sidecar.core.batch_answers import BatchAnswerError, failures_of
from sidecar.core.classify import classify, describe
from sidecar.core.presets import Preset
from sidecar.errors import ConfigError, Problem
from sidecar.logs import RateLimited
from sidecar.model import Answer, Failed, FailureKind, Outcome, Record, Result, TracedRecord
from sidecar.ports import Delivery, Slot
from sidecar.settings import RouteSettings
from sidecar.settings.secrets import HIDDEN

log = logging.getLogger(__name__)

Done = Callable[[Result], None]

SCHEMA_URL: Final = "https://opentelemetry.io/schemas/1.37.0"
SERVICE: Final = "sidecar"  # unless OTEL_SERVICE_NAME or OTEL_RESOURCE_ATTRIBUTES say otherwise
LINKS: Final = 128  # of a batch: the library keeps no more by default
# An attempt that is given up this close to its deadline has missed it.
DEADLINE_SECONDS: Final = 0.01

_SECRET_LENGTH: Final = 4  # a shorter value of a header is none, and stands in every other word

_PROPAGATOR: Final = TraceContextTextMapPropagator()
_FIELDS: Final = frozenset(_PROPAGATOR.fields)
_NOWHERE: Final = Context()


class Tracing:
    """Spans as the standard OTEL_ variables have them sampled, named and sent.

    processor takes the place of what sends them. Raises ConfigError.
    """

    def __init__(self, processor: SpanProcessor | None = None) -> None:
        _limit_log()
        resource = Resource.create()
        if str(resource.attributes[SERVICE_NAME]).startswith("unknown_service"):
            resource = resource.merge(Resource({SERVICE_NAME: SERVICE}))
        self._provider: Final = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(processor or _sender())
        self._tracer: Final = self._provider.get_tracer("sidecar", __version__, SCHEMA_URL)

    def around(
        self, delivery: Delivery, route: RouteSettings, group: str, clock: Callable[[], float]
    ) -> Delivery:
        """The same way to the application, with a span for each attempt.

        clock is the one that the route's deadlines go by.
        """
        return TracedDelivery(delivery, self, route, group, clock)

    def start(
        self, topic: str, records: Sequence[Record], attributes: Mapping[str, AttributeValue]
    ) -> Span:
        """A span that begins now: in the trace of its one record, else in one of its own."""
        contexts = [_context_of(record) for record in records[:LINKS]]
        origins = [get_current_span(each).get_span_context() for each in contexts if each]
        return self._tracer.start_span(
            f"process {topic}",
            context=contexts[0] if len(records) == 1 else _NOWHERE,
            kind=SpanKind.CONSUMER,
            attributes=attributes,
            links=[Link(origin) for origin in origins],
        )

    async def close(self) -> None:
        """Send what is left. Whoever does not want to wait for that any longer cancels."""
        loop = asyncio.get_running_loop()
        sent = asyncio.Event()

        def close() -> None:
            self._provider.shutdown()
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(sent.set)

        threading.Thread(target=close, name="tracing-close", daemon=True).start()
        await sent.wait()


class TracedDelivery:
    """Implements ports.Delivery around another."""

    def __init__(
        self,
        delivery: Delivery,
        tracing: Tracing,
        route: RouteSettings,
        group: str,
        clock: Callable[[], float],
    ) -> None:
        self.tracing: Final = tracing
        self.clock: Final = clock
        self.timeout_seconds: Final = route.timeout_seconds
        self.probe: Final = delivery.probe
        self.close: Final = delivery.close
        self._open_slot: Final = delivery.open_slot
        self._answers: Final = route.answer_table
        self._strict: Final = route.preset is Preset.LAMBDA
        self._answered = False
        self._attributes: Final[Mapping[str, AttributeValue]] = {
            "messaging.system": "kafka",
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
            "messaging.consumer.group.name": group,
            "http.request.method": "POST",
            "sidecar.route": route.name,
        }

    def open_slot(self) -> Slot:
        return TracedSlot(self, self._open_slot())

    def start(self, record: Record, attempt: int) -> Span:
        original = record.original
        attributes: dict[str, AttributeValue] = {
            **self._attributes,
            "messaging.destination.name": original.topic,
            "messaging.destination.partition.id": str(original.partition),
            "messaging.kafka.offset": original.offset,
            "sidecar.attempt": attempt + record.attempts,
        }
        if original.value is None:
            attributes["messaging.kafka.message.tombstone"] = True
        return self.tracing.start(original.topic, [original], attributes)

    def start_batch(self, records: Sequence[Record]) -> Span:
        topic = records[0].original.topic
        attributes: dict[str, AttributeValue] = {
            **self._attributes,
            "messaging.destination.name": topic,
            "messaging.batch.message_count": len(records),
        }
        return self.tracing.start(topic, [record.original for record in records], attributes)

    def end(self, span: Span, result: Result, batch: Sequence[Record]) -> None:
        """The attempt came to something; batch: the records, where there may be several."""
        verdict = classify(result, self._answers, answered_before=self._answered)
        if isinstance(result, Answer):
            span.set_attribute("http.response.status_code", result.status)
            if verdict.outcome is Outcome.DELIVERED and batch:
                try:
                    named = failures_of(result.body, batch, strict=self._strict)
                except BatchAnswerError as error:
                    result = Failed(FailureKind.MALFORMED, str(error))
                    verdict = classify(result, self._answers, answered_before=True)
                else:
                    span.set_attribute("sidecar.batch.failed", len(named))
        span.set_attribute("sidecar.outcome", verdict.outcome.value)
        if verdict.outcome is Outcome.DELIVERED:
            self._answered = True
        else:
            span.set_attribute("error.type", _error_type(result, verdict.reason))
            span.set_status(Status(StatusCode.ERROR, describe(result)))
        span.end()


class TracedSlot:
    """Implements ports.Slot around another."""

    __slots__ = ("_batch", "_began", "_delivery", "_done", "_slot", "_span")

    def __init__(self, delivery: TracedDelivery, slot: Slot) -> None:
        self._delivery: Final = delivery
        self._slot: Final = slot
        self._span: Span | None = None  # of the running attempt
        self._done: Done | None = None
        self._batch: Sequence[Record] = ()
        self._began = 0.0

    def send(self, record: Record, attempt: int, done: Done) -> None:
        span = self._begin(self._delivery.start(record, attempt), done)
        self._slot.send(TracedRecord(record, _carried_by(span)), attempt, self._finished)

    def send_batch(self, batch: Sequence[tuple[Record, int]], done: Done) -> None:
        self._batch = [record for record, _ in batch]
        span = self._begin(self._delivery.start_batch(self._batch), done)
        (first, attempt), *others = batch
        traced = (TracedRecord(first, _carried_by(span)), attempt)
        self._slot.send_batch([traced, *others], self._finished)

    def abort(self) -> bool:
        sent = self._slot.abort()
        span, self._span = self._span, None
        if span is not None:
            seconds = self._delivery.timeout_seconds
            if self._delivery.clock() - self._began > seconds - DEADLINE_SECONDS:
                missed = Failed(FailureKind.TIMEOUT, f"no answer within {seconds:g} s", sent)
                self._delivery.end(span, missed, ())
            else:
                span.set_attribute("sidecar.outcome", Outcome.CANCELLED.value)
                span.end()
        return sent

    def close(self) -> None:
        self._slot.close()

    def _begin(self, span: Span, done: Done) -> Span:
        self._span = span
        self._done = done
        self._began = self._delivery.clock()
        return span

    def _finished(self, result: Result) -> None:
        span, done = self._span, self._done
        assert span is not None, "an answer without a request"
        assert done is not None
        self._span = self._done = None
        self._delivery.end(span, result, self._batch)
        done(result)


def _context_of(record: Record) -> Context:
    """Where the producer left the record; empty if it does not say so, or not legally."""
    carrier: dict[str, str] = {}
    for name, value in record.headers or ():
        lowered = name.lower()
        if value and lowered in _FIELDS:  # of repeated ones the last
            carrier[lowered] = value.decode("latin-1")
    return _PROPAGATOR.extract(carrier, _NOWHERE) if carrier else _NOWHERE


def _carried_by(span: Span) -> Mapping[str, str]:
    """What a request carries of a span."""
    carrier: dict[str, str] = {}
    _PROPAGATOR.inject(carrier, set_span_in_context(span, _NOWHERE))
    return carrier


def _error_type(result: Result, reason: str) -> str:
    if isinstance(result, Failed):
        return result.kind.value
    return str(result.status) if result.status >= 300 else reason


# --- what the environment says --------------------------------------------------------------------


def open_tracing() -> Tracing | None:
    """None where the environment switches every OpenTelemetry SDK off. Raises ConfigError."""
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        log.info("no tracing: OTEL_SDK_DISABLED is true")
        return None
    return Tracing()


def _sender() -> SpanProcessor:
    """What it may be told by variables that the library reads without a word is refused."""
    wanted = {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}
    wanted["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"] = wanted["OTEL_EXPORTER_OTLP_PROTOCOL"]
    problems = [
        Problem(name, f"{given!r} is not what this sends spans by, which is {only} alone")
        for name, only in wanted.items()
        if (given := os.environ.get(name)) not in (None, "", only)
    ]
    if problems:
        raise ConfigError(problems)
    try:
        return BatchSpanProcessor(OTLPSpanExporter())
    except (ValueError, OSError) as error:
        raise ConfigError([Problem("OTEL_", f"variables make no exporter: {error}")]) from error


class _LimitedHandler(logging.Handler):
    """What the library has to say goes to our log, each trouble once per interval.

    It repeats headers that it cannot read, and reasons of a collector that may repeat them: there
    is a token in them.
    """

    def __init__(self) -> None:
        super().__init__()
        self._repeating = RateLimited(log)
        self._secrets = sorted(_header_values(), key=len, reverse=True)

    def emit(self, record: logging.LogRecord) -> None:
        key = (record.name, record.msg)
        said = record.getMessage()
        for secret in self._secrets:
            said = said.replace(secret, HIDDEN)
        self._repeating.limited(key, record.levelno, "tracing: %s", said)


def _header_values() -> set[str]:
    """What the environment gives as headers, as written and as sent; names alone tell nothing."""
    texts = [os.environ.get(f"OTEL_EXPORTER_OTLP_{kind}HEADERS", "") for kind in ("", "TRACES_")]
    items = [item for text in texts for item in text.split(",")]
    # One without a name is as likely the value alone.
    values = [(item.partition("=")[2] or item).strip() for item in items]
    return {
        form
        for each in values
        for form in (each, unquote(each).strip())
        if len(form) >= _SECRET_LENGTH
    }


def _limit_log() -> None:
    library = logging.getLogger("opentelemetry")
    library.propagate = False
    library.handlers[:] = [_LimitedHandler()]
