"""What must hold whatever an application answers.

* A request ends once, and nothing raises.
* How the bytes were split changes nothing.
* A connection is used again only for the next request behind an answer that was whole, and then
  the second request is told what the bytes behind the first answer say, never the rest of it.
* An independent parser (h11) reads as many bytes of the answer as we may. What it finds, we find,
  or refuse it as malformed; where it finds no end, we find none: ours may be the stricter one, and
  never the one that guesses.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Coroutine, Iterable
from typing import Any, Final, cast

import h11

from sidecar.delivery.connection import BODY_KEPT, Connection, LastAnswer, Reading
from sidecar.model import Answer, Result
from tests.fuzz.answers import Case

BROKEN: Final = "broken: "
MALFORMED: Final = "malformed: "


class Wrong(AssertionError):
    """Something does not hold."""


class _Task:
    def add_done_callback(self, callback: object) -> None:
        pass

    def cancel(self) -> None:
        pass


class _Loop:
    def time(self) -> float:
        return 1.0

    def create_task(self, work: Coroutine[Any, Any, None]) -> _Task:
        work.close()
        return _Task()


class _Transport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.closed = False

    def write(self, data: object) -> None:
        if self.closed:
            raise Wrong("written to a connection that was given up")

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self.closed

    def abort(self) -> None:
        self.closed = True

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return name == "ssl_object" or default


async def _never(connection: Connection) -> None:
    pass


class Run:
    """One connection fed with pieces; results in words that can be compared."""

    def __init__(self, reading: Reading, last: LastAnswer) -> None:
        self.results: list[Result] = []
        self.transport = _Transport()
        loop = cast("asyncio.AbstractEventLoop", _Loop())
        self.connection = Connection(loop, _never, lambda _: None, reading, last)
        self.ended = False
        self.request()
        self.connection.connection_made(self.transport)

    def request(self) -> None:
        open_before = len(self.results)

        def done(result: Result) -> None:
            if len(self.results) != open_before:
                raise Wrong("a request ended twice")
            self.results.append(result)

        self.connection.request(b"HEAD", b"", done)

    def feed(self, pieces: Iterable[bytes]) -> None:
        for piece in pieces:
            if piece and not self.transport.closed:
                self.connection.data_received(piece)

    def end(self, breaks: bool) -> None:
        """As a transport does it: after an abort of ours there is no end of file."""
        if not self.transport.closed and not breaks:
            self.connection.eof_received()
        self.connection.connection_lost(ConnectionResetError("reset") if breaks else None)
        if self.connection.fresh_since is not None:
            raise Wrong("a connection that is gone counts as fresh")

    @property
    def fresh(self) -> bool:
        return self.connection.fresh_since is not None

    def words(self) -> list[str]:
        return [in_words(each) for each in self.results]


def in_words(result: Result) -> str:
    if isinstance(result, Answer):
        return f"{result!r} {result.retry_after!r} {result.body!r}"
    return repr(result)


def judge(case: Case) -> None:
    """Raises Wrong, or whatever the connection raises."""
    last = LastAnswer()
    whole = _play(case, [case.data], last)
    pieces = case.pieces()
    tail = LastAnswer()
    _play(case, pieces[-1:], tail)
    for name, other in (
        ("split", _play(case, pieces, LastAnswer())),
        ("remembered", _play(case, [case.data], last)),
        ("with its tail remembered", _play(case, pieces, tail)),
    ):
        if other != whole:
            raise Wrong(f"whole: {whole}, {name}: {other}")
    told = _by_h11(case)
    if told is not None and not whole[0].startswith((told, MALFORMED)):
        raise Wrong(f"h11 found {told}, we {whole}")


def _play(case: Case, pieces: list[bytes], last: LastAnswer) -> list[str]:
    run = Run(case.reading, last)
    run.feed(pieces)
    words = [str(run.fresh and not run.transport.closed)]
    if run.fresh and case.again:
        if len(run.results) != 1:
            raise Wrong("fresh while its request runs")
        run.request()
        run.feed([b"HTTP/1.1 418 Second\r\nContent-Length: 0\r\n\r\n"])
        if run.words()[1:] != ["status 418 None b''"]:
            raise Wrong(f"the second request was told {run.results[1:]}")
    run.end(case.breaks)
    if len(run.results) != 1 + (len(run.results) == 2):
        raise Wrong(f"{len(run.results)} results")
    return [*run.words(), *words]


def _by_h11(case: Case) -> str | None:
    """What h11 finds, in our words or their beginning; None where that is not HTTP to it."""
    reading = case.reading
    if reading.processing_is_final:
        return None
    if re.search(rb"chunked[ \t]*\t", case.data):  # not to our parser; at its end it is broken
        return None
    parser = h11.Connection(h11.CLIENT)
    parser.send(h11.Request(method="POST", target="/", headers=[("Host", "a")]))
    parser.send(h11.EndOfMessage())
    parser.receive_data(case.data[: reading.limit])
    to_come = case.breaks or len(case.data) >= reading.limit  # the end of the connection: not yet
    body = b""
    head: h11.Response | None = None
    try:
        while True:
            event = parser.next_event()
            if isinstance(event, h11.Response):
                head = event
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                return _answer(reading, head, body)
            elif event is h11.NEED_DATA and not to_come:
                to_come = True
                parser.receive_data(b"")
            elif event is h11.NEED_DATA and len(case.data) >= reading.limit:
                return _cut_off(reading, head, body)
            elif event is h11.NEED_DATA:
                return BROKEN
            else:
                return None
    except h11.RemoteProtocolError as error:
        return BROKEN if "peer closed connection" in str(error) else None


def _cut_off(reading: Reading, head: h11.Response | None, body: bytes) -> str | None:
    if head is None or (reading.only_whole and head.status_code < 300):
        return MALFORMED
    return _answer(reading, head, body)


def _answer(reading: Reading, head: h11.Response | None, body: bytes) -> str | None:
    if head is None or not 200 <= head.status_code < 600:
        return None
    waits = [value.decode("latin-1") for name, value in head.headers if name == b"retry-after"]
    while len(waits) > 1 and not waits[0]:  # an empty one in front of others says nothing
        del waits[0]
    kept = body[: reading.success_bytes if head.status_code < 300 else BODY_KEPT]
    return in_words(Answer(head.status_code, ", ".join(waits) if waits else None, kept))
