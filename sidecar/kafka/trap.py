"""Exceptions of a client's calls and callbacks: mapped, and kept until poll can raise them.

Owner: the record source, on its thread.

Invariants:
* Nothing is raised into the binding, from where it would end in a poll that is lost.
* The first exception is raised once; a fatal one again and again, for the client is dead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from sidecar.errors import FatalSource
from sidecar.kafka.errors import describe, kafka_error, source_error


class Trap:
    """caught: what release is to raise. fatal: the error after which the client is dead."""

    __slots__ = ("caught", "fatal")

    def __init__(self) -> None:
        self.caught: BaseException | None = None
        self.fatal: FatalSource | None = None

    def guard(self, function: Callable[..., object], *args: object) -> None:
        """Call what must not raise into the binding; the first exception waits for poll."""
        try:
            function(*args)
        except BaseException as error:  # noqa: BLE001 - raised again by poll
            self.keep(error)

    def keep(self, error: BaseException) -> None:
        if isinstance(error, FatalSource):
            self.fatal = error
        if self.caught is None:
            self.caught = error

    def die(self, error: KafkaError) -> None:
        self.caught = self.fatal = FatalSource(describe(error))

    def release(self) -> None:
        """Raise what was caught, a fatal error each time."""
        caught, self.caught = self.caught, self.fatal
        if caught is not None:
            raise caught

    def call(self, function: Callable[..., Any], *args: object, **options: object) -> Any:
        """Call the client, whose errors are raised as SourceError."""
        if self.fatal is not None:
            raise self.fatal
        try:
            return function(*args, **options)
        except KafkaException as error:
            raise source_error(kafka_error(error)) from error
