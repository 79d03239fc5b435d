"""Assignments, records and entries as the tests of the core and the engine need them."""

from __future__ import annotations

from sidecar.core.ledger import InFlight
from sidecar.model import Assignment, Header, Partition, Record


def assignment(number: int = 0, *, topic: str = "orders", epoch: int = 1) -> Assignment:
    return Assignment(Partition(topic, number), epoch)


def record(
    owner: Assignment,
    offset: int,
    *,
    key: bytes | None = None,
    value: bytes | None = b"v",
    headers: list[Header] | None = None,
    timestamp_ms: int = -1,
    size: int = 1,
) -> Record:
    return Record(owner, offset, timestamp_ms, key, value, headers, size)


def in_flight(owner: Assignment, offset: int) -> InFlight:
    return InFlight(record(owner, offset), 0.0)


def offsets(entries: list[InFlight]) -> list[int]:
    return [entry.record.offset for entry in entries]
