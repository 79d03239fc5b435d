"""A few thousand of the cases of `make fuzz`, and that it finds what is wrong."""

from __future__ import annotations

from typing import Any

import pytest

from sidecar.delivery.connection import Connection
from tests.fuzz.answers import case
from tests.fuzz.oracle import judge

CASES = 4000


@pytest.mark.parametrize("first", range(0, CASES, CASES // 8))
def test_spoiled_answers_do_no_harm(first: int) -> None:
    for number in range(first, first + CASES // 8):
        judge(case(number))


def finds(monkeypatch: pytest.MonkeyPatch, method: str, wrong: Any) -> bool:
    right = getattr(Connection, method)
    monkeypatch.setattr(Connection, method, lambda *args: wrong(right, *args))
    for number in range(CASES):
        try:
            judge(case(number))
        except Exception:  # noqa: BLE001
            return True
    return False


def keeps_whatever_is_behind(right: Any, connection: Any, data: bytes) -> None:
    """A connection with bytes behind its answer is used again."""
    right(connection, data)
    transport = connection._transport
    if transport is not None and transport.closed and connection._whole:
        transport.closed = False
        connection.fresh_since = 1.0


def answers_too_early(right: Any, connection: Any) -> None:
    """The head is taken for the whole answer."""
    right(connection)
    connection._whole = True
    connection._keep = True


def ends_twice(right: Any, connection: Any, result: Any) -> None:
    done = connection._done
    right(connection, result)
    if done is not None:
        done(result)


def keeps_retry_after(right: Any, connection: Any) -> None:
    """What the last answer asked for is taken for what this one asks for."""
    asked = connection._retry_after
    right(connection)
    connection._retry_after = asked


def takes_what_was_cut(right: Any, connection: Any) -> None:
    """A success counts, however little was read of it."""
    if connection._status:
        connection._finish(connection._parsed())
    else:
        right(connection)


@pytest.mark.parametrize(
    ("method", "wrong"),
    [
        ("data_received", keeps_whatever_is_behind),
        ("on_headers_complete", answers_too_early),
        ("_finish", ends_twice),
        ("on_message_begin", keeps_retry_after),
        ("_cut_off", takes_what_was_cut),
    ],
)
def test_a_planted_fault_is_found(monkeypatch: pytest.MonkeyPatch, method: str, wrong: Any) -> None:
    assert finds(monkeypatch, method, wrong)
