"""A few thousand of the cases of `make fuzz`, its corpus, and that it finds what is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from sidecar.core import done_map, letters
from sidecar.delivery import request
from sidecar.delivery.connection import Connection
from sidecar.settings import loading, tree
from tests.fakes.admin import FakeView
from tests.fuzz import admin
from tests.fuzz.answers import case
from tests.fuzz.corpus import kept
from tests.fuzz.kinds import KINDS, Kind
from tests.fuzz.oracle import judge
from tests.fuzz.running import Figures, Found, run

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


# --- the other kinds ----------------------------------------------------------------------------

SOME = {"records": 1500, "metadata": 3000, "configuration": 150, "admin": 25}


@pytest.fixture(autouse=True, scope="module")
def _server_ends() -> Iterator[None]:
    yield
    admin._Server.stop()


@pytest.mark.parametrize("name", SOME)
def test_what_others_write_does_no_harm(name: str) -> None:
    for number in range(SOME[name]):
        KINDS[name].judge(KINDS[name].case(number))


KEPT = [(name, file) for name, kind in KINDS.items() if kind.kept for file in kept(name)]


@pytest.mark.parametrize(("name", "file"), KEPT)
def test_what_did_harm_once_does_none_now(name: str, file: str) -> None:
    kind = KINDS[name]
    assert kind.kept is not None
    kind.judge(kind.kept(file, kept(name)[file]))


def told_whole(text: str, _: int) -> str:
    return text


_gaps = done_map._encode_gaps


def forgets_the_first(base: int, outstanding: list[int], highest: int) -> tuple[bytes, int]:
    return _gaps(base, outstanding[1:], highest)


def fails(_: Any) -> None:
    raise RuntimeError("of the inside")


@pytest.mark.parametrize(
    ("name", "where", "what", "wrong"),
    [
        ("records", request, "is_plain", lambda _: True),
        ("records", request, "quote", lambda text, safe: text),
        ("metadata", done_map, "_encode_gaps", forgets_the_first),
        ("metadata", letters, "MOST", 10**20),
        ("configuration", loading, "_printable", told_whole),
        ("configuration", tree, "is_secret", lambda _: False),
        ("admin", FakeView, "partitions", fails),
    ],
)
def test_a_fault_planted_in_what_reads_is_found(
    name: str, where: Any, what: str, wrong: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(where, what, wrong)
    with pytest.raises(Found) as found:
        run(KINDS[name], 30.0, seed=1)
    with pytest.raises(Exception):  # noqa: B017 (whatever it was)
        KINDS[name].judge(KINDS[name].case(found.value.number))


def test_what_has_no_end_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.fuzz.running.HANGS_SECONDS", 1)

    def hangs(_: object) -> None:
        while True:
            pass

    with pytest.raises(Found) as found:
        run(Kind(int, hangs), 30.0, seed=1)
    assert isinstance(found.value.__cause__, TimeoutError)


@pytest.mark.parametrize(
    ("figures", "grows"),
    [
        (Figures(1, 60.0, 29_000, 20.0), False),
        (Figures(1, 60.0, 31_000, 0.0), True),
        (Figures(1, 60.0, 0, 25.0), True),
        (Figures(1, 5.0, 31_000, 25.0), False),
    ],
)
def test_growing_memory_is_a_finding_once_caches_are_full(figures: Figures, grows: bool) -> None:
    assert figures.grows is grows
