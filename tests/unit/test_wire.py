"""One connection, driven by hand: what is written when, and what is kept afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, cast

import pytest

from sidecar.delivery.connection import ANSWER_LIMIT, JUST_STATUS, Connection, LastAnswer, Reading
from sidecar.model import Result

NO_CONTENT = b"HTTP/1.1 204 No Content\r\n\r\n"


async def never(connection: Connection) -> None:
    """Opens nothing: the test says when the connection is made."""


class FakeTask:
    cancelled = False

    def add_done_callback(self, callback: object) -> None:
        pass

    def cancel(self) -> None:
        self.cancelled = True


class FakeLoop:
    """Time by hand, and connecting that never ends by itself."""

    def __init__(self) -> None:
        self.now = 100.0
        self.connecting = FakeTask()

    def time(self) -> float:
        return self.now

    def create_task(self, work: Coroutine[Any, Any, None]) -> FakeTask:
        work.close()
        return self.connecting


class FakeTransport(asyncio.Transport):
    """Keeps what is written; asks for a pause after each write if told so."""

    def __init__(self, connection: Connection, pausing: bool = False) -> None:
        super().__init__()
        self.connection = connection
        self.pausing = pausing
        self.written: list[bytes] = []
        self.unsent = 0
        self.aborted = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written.append(bytes(data))
        if self.pausing:
            self.connection.pause_writing()

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def is_closing(self) -> bool:
        return self.aborted

    def abort(self) -> None:
        self.aborted = True

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return name == "ssl_object" or default


class Driven:
    """A connection that was made, with the results it gave."""

    def __init__(
        self,
        body: bytes = b"",
        pausing: bool = False,
        made: bool = True,
        reading: Reading = JUST_STATUS,
        last: LastAnswer | None = None,
    ) -> None:
        self.loop = FakeLoop()
        self.results: list[str] = []
        self.gone: list[Connection] = []

        self.connection = Connection(
            cast("asyncio.AbstractEventLoop", self.loop), never, self.gone.append, reading, last
        )
        self.request(body)
        self.transport = FakeTransport(self.connection, pausing)
        if made:
            self.connection.connection_made(self.transport)

    def request(self, body: bytes = b"") -> None:
        self.connection.request(b"HEAD", body, self.done)

    def done(self, result: Result) -> None:
        self.results.append(f"{result!r} {getattr(result, 'body', b'')!r}")

    def feed(self, *pieces: bytes) -> None:
        for piece in pieces:
            if not self.transport.aborted:
                self.connection.data_received(piece)

    def fresh_since(self) -> float | None:
        return self.connection.fresh_since

    def kept(self) -> bool:
        return self.connection.fresh_since is not None and not self.transport.aborted


ANSWERS = [
    NO_CONTENT,
    b"HTTP/1.1 100 Go\r\n\r\nHTTP/1.1 400 No\r\nRetry-After: 3\r\nContent-Length: 4\r\n\r\nbody",
    b"HTTP/1.1 500 E\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\nT: v\r\n\r\n",
    NO_CONTENT + b"stray",
    NO_CONTENT + NO_CONTENT,
    NO_CONTENT + b"H",
    NO_CONTENT + b"\r\n\n\r\n",
    b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
    b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
    b"HTTP/1.1 101 Switch\r\n\r\n",
    b"no HTTP at all",
]


@pytest.mark.parametrize("raw", ANSWERS)
def test_no_split_changes_the_result_or_what_is_kept(raw: bytes) -> None:
    whole = Driven()
    whole.feed(raw)
    assert len(whole.results) == 1
    for cut in range(1, len(raw)):
        split = Driven()
        split.feed(raw[:cut], raw[cut:])
        assert (split.results, split.kept()) == (whole.results, whole.kept()), raw[:cut]


@pytest.mark.parametrize(("behind", "kept"), [(b"", True), (b"x", False), (b"\r\n", True)])
def test_the_limit_ends_where_the_answer_ends(behind: bytes, kept: bool) -> None:
    """What lies behind the limit is not parsed, and yet seen; empty lines mean nothing there."""
    head = b"HTTP/1.1 500 E\r\nContent-Length: 65000\r\n\r\n"
    raw = head.replace(b"65000", b"%d" % (ANSWER_LIMIT - len(head)))
    raw += b"b" * (ANSWER_LIMIT - len(raw))
    driven = Driven()
    driven.feed(raw + behind)
    assert driven.results == [f"status 500 {b'b' * 1024!r}"]
    assert driven.kept() is kept


def test_bytes_on_an_idle_connection_end_it() -> None:
    """But for empty lines, which parsers skip in front of an answer as well as behind one."""
    driven = Driven()
    driven.feed(NO_CONTENT)
    driven.feed(b"\r\n")
    assert driven.kept()
    driven.feed(b"\r\nH")
    assert not driven.kept()
    assert len(driven.results) == 1


def test_an_answer_before_the_request_has_left_ends_the_connection() -> None:
    driven = Driven()
    driven.transport.unsent = 1
    driven.feed(NO_CONTENT)
    assert driven.results == ["status 204 b''"]
    assert not driven.kept()


def test_nothing_of_an_answer_is_left_for_the_next() -> None:
    driven = Driven()
    driven.feed(b"HTTP/1.1 503 E\r\nRetry-After: 9\r\nContent-Length: 4\r\n\r\nbusy")
    driven.request()
    driven.feed(b"HTTP/1.1 503 E\r\n\r\nuntil the end")
    driven.connection.eof_received()
    assert driven.results == ["status 503 b'busy'", "status 503 b'until the end'"]
    assert driven.connection._retry_after is None


def test_an_answer_like_the_last_one_is_the_last_one() -> None:
    """Only a whole answer in one piece: behind other bytes the same are read as what they are."""
    driven = Driven()
    driven.feed(b"HTTP/1.1 429 E\r\nRetry-After: 9\r\nContent-Length: 4\r\n\r\nbusy")
    for _ in range(2):
        driven.request()
        driven.feed(b"HTTP/1.1 429 E\r\nRetry-After: 9\r\nContent-Length: 4\r\n\r\nbusy")
    driven.request()
    driven.feed(b"HTTP/1.1 103 Early\r\n\r\n")
    driven.feed(b"HTTP/1.1 429 E\r\nRetry-After: 9\r\nContent-Length: 4\r\n\r\nbusy")
    assert driven.results == ["status 429 b'busy'"] * 4
    driven.request()
    driven.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbusy")
    assert driven.results[4:] == ["status 200 b''"]
    assert driven.fresh_since() is not None


def test_an_answer_is_not_remembered_with_what_came_behind_it() -> None:
    driven = Driven()
    driven.feed(NO_CONTENT + b"HTTP/1.1 200 OK\r\n")
    assert driven.fresh_since() is None
    again = Driven(last=driven.connection._last)
    again.feed(NO_CONTENT + b"HTTP/1.1 200 OK\r\n")
    assert again.fresh_since() is None


def test_it_is_fresh_from_the_moment_of_the_answer() -> None:
    driven = Driven()
    assert driven.fresh_since() is None
    driven.loop.now = 123.0
    driven.feed(NO_CONTENT)
    assert driven.fresh_since() == 123.0
    driven.request()
    assert driven.fresh_since() is None


def test_a_small_request_is_one_write() -> None:
    assert Driven(b"BODY").transport.written == [b"HEADBODY"]


def test_a_large_body_is_written_as_fast_as_it_is_taken() -> None:
    """No more than one chunk is with the transport beyond what it asked for."""
    body = bytes(range(256)) * 4_096
    driven = Driven(body, pausing=True)
    rounds = 0
    while len(b"".join(driven.transport.written)) < len(body) + 4:
        before = len(driven.transport.written)
        driven.connection.resume_writing()
        assert len(driven.transport.written) == before + 1
        rounds += 1
    assert b"".join(driven.transport.written) == b"HEAD" + body
    assert rounds == 4


def test_nothing_is_written_on_a_connection_that_is_closing() -> None:
    driven = Driven(b"x" * 1_000_000, pausing=True)
    before = len(driven.transport.written)
    driven.transport.aborted = True
    driven.connection.resume_writing()
    assert len(driven.transport.written) == before


def test_a_connection_given_up_before_it_was_made_writes_nothing() -> None:
    driven = Driven(made=False)
    assert driven.connection.abort() is False
    assert driven.loop.connecting.cancelled
    driven.connection.connection_made(driven.transport)
    assert not driven.transport.written
    assert driven.transport.aborted
    assert not driven.results


def test_a_connection_that_is_lost_is_forgotten_and_its_request_broken() -> None:
    driven = Driven()
    driven.connection.connection_lost(None)
    assert driven.results == ["broken: the connection was closed before an answer b''"]
    assert driven.gone == [driven.connection]


def test_an_application_that_ends_while_it_is_written_to_is_not_written_to_any_more() -> None:
    driven = Driven(b"x" * 1_000_000, pausing=True)
    driven.connection.eof_received()
    assert driven.results == ["broken: the connection was closed before an answer b''"]
    assert driven.transport.aborted


def test_the_body_of_a_success_is_kept_only_if_it_is_wanted() -> None:
    for reading, kept in [(Reading(), b""), (Reading(success_bytes=4), b"abcd")]:
        driven = Driven(reading=reading)
        driven.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nab", b"cdef")
        assert driven.results == [f"status 200 {kept!r}"]
        assert driven.kept()


def test_102_is_an_answer_where_it_counts_as_one() -> None:
    """What may follow it is not for the next request: the connection is not used again."""
    raw = b"HTTP/1.1 102 Processing\r\n\r\n"
    driven = Driven(reading=Reading(processing_is_final=True))
    driven.feed(raw)
    assert driven.results == ["status 102 b''"]
    assert not driven.kept()
    in_between = Driven()
    in_between.feed(raw, NO_CONTENT)
    assert in_between.results == ["status 204 b''"]
    assert in_between.kept()


def test_space_behind_the_value_of_a_header_is_no_part_of_it() -> None:
    driven = Driven()
    driven.feed(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked \r\n\r\n2\r\nab")
    driven.connection.eof_received()
    assert driven.results == ["broken: the connection was closed in the answer b''"]
    driven = Driven()
    driven.feed(b"HTTP/1.1 429 E\r\nRetry-After: 3 \t\r\nContent-Length: 0\r\n\r\n")
    assert driven.connection._retry_after == "3"
