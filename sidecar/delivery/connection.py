"""One HTTP/1.1 connection to the application, from before it is made until it is gone.

Owned by a slot (or a probe), on the event loop. There is no task and no future per request:
`request` writes, `data_received` calls back. Invariants:

* It carries one request at a time, and the next one only if the last answer was whole, allows
  it, came after the whole request was written and had nothing behind it.
* A request is written once: nothing is ever resent here.
* At most so many bytes are read of an answer as its Reading allows; behind that the status alone
  decides, or the answer is none.
* A sequence of bytes gives the same result however it was split.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from math import inf
from typing import Final, NamedTuple, cast

from httptools import HttpParserError, HttpResponseParser

from sidecar.core.answers import AnswerTable
from sidecar.delivery.opening import describe
from sidecar.model import Answer, Failed, FailureKind, Outcome, Result

ANSWER_LIMIT: Final = 65_536  # its head and interim answers included
BATCH_ANSWER_LIMIT: Final = 1_048_576
BODY_KEPT: Final = 1_024  # of an answer that is not a success
_REMEMBERED_BYTES: Final = 1_024
_PROCESSING: Final = 102
_JOINED_BYTES: Final = 65_536  # up to here copying a body behind its head beats a second write
_CHUNK_BYTES: Final = 262_144  # what the transport is given at a time
JUST_NOW: Final = inf

Done = Callable[[Result], None]


class Reading(NamedTuple):
    """What is wanted of an answer beyond its status."""

    success_bytes: int = 0  # of the body of a success
    processing_is_final: bool = False  # 102 is an answer, and not a word in between
    limit: int = ANSWER_LIMIT  # bytes that are read, the head and interim answers included
    only_whole: bool = False  # a success is none unless all of it was read


JUST_STATUS: Final = Reading()


def reading_of(answers: AnswerTable, *, batches: bool = False) -> Reading:
    """What a table needs to see; the answer to a batch may name each of its records."""
    processing = answers.by_status.get(_PROCESSING)
    limit = BATCH_ANSWER_LIMIT if batches else ANSWER_LIMIT
    return Reading(
        success_bytes=limit if batches or answers.read is not None else 0,
        processing_is_final=processing is not None and processing.outcome is Outcome.DELIVERED,
        limit=limit,
        only_whole=batches,
    )


def cut_off(status: int, reading: Reading) -> Failed | None:
    """What an answer is that was not read to its end; None: its status decides."""
    if reading.only_whole and 200 <= status < 300:
        detail = f"the answer to a batch is longer than {reading.limit} bytes"
        return Failed(FailureKind.MALFORMED, detail)
    return None


class LastAnswer:
    """The last whole answer of one application that came in one piece, byte for byte.

    Applications answer most records alike, up to a date that changes once a second. What a parser
    makes of the same bytes from the same start is the same, so it need not be asked again.
    """

    __slots__ = ("answer", "data")

    def __init__(self) -> None:
        self.data = b""
        self.answer = Answer(0)


class Connection(asyncio.Protocol):
    """fresh_since is when it was last ready for a request, or None if it is not.

    It is JUST_NOW while an answer is told: what is sent then needs no look at the clock.
    """

    __slots__ = (
        "_allowance",
        "_body",
        "_connecting",
        "_done",
        "_framed",
        "_keep",
        "_last",
        "_limit",
        "_on_gone",
        "_parser",
        "_pending",
        "_reading",
        "_retry_after",
        "_status",
        "_success_bytes",
        "_time",
        "_transport",
        "_unwritten",
        "_whole",
        "_writable",
        "fresh_since",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        opener: Callable[[Connection], Awaitable[object]],
        on_gone: Callable[[Connection], None],
        reading: Reading = JUST_STATUS,
        last: LastAnswer | None = None,
    ) -> None:
        """last is shared by the connections to one application that read alike."""
        self._last: Final = LastAnswer() if last is None else last
        self._reading: Final = reading
        self._limit: Final = reading.limit
        self._success_bytes: Final = reading.success_bytes
        self.fresh_since: float | None = None
        self._time: Final = loop.time
        self._on_gone: Final = on_gone
        self._transport: asyncio.Transport | None = None  # only while it is open
        self._parser: HttpResponseParser | None = None
        # The running request; there is none while _done is None.
        self._done: Done | None = None
        self._pending: tuple[bytes, bytes] | None = None  # asked for before it was made
        self._unwritten: memoryview | None = None  # not yet given to the transport
        self._writable = True
        # Its answer, as far as it is known.
        self._allowance = self._limit  # bytes that may still be read
        self._status = 0  # 0 until the head of the final answer is complete
        self._framed = False  # its end is told by its own bytes
        self._retry_after: str | None = None
        self._body: Final = bytearray()  # grows in place: a chunk may be a single byte
        self._whole = False
        self._keep = False  # it allows another request; asked when it is whole
        self._connecting: Final = loop.create_task(self._connect(opener))
        self._connecting.add_done_callback(self._connected)

    def request(self, head: bytes, body: bytes, done: Done) -> None:
        """Write it, or have it written when the connection is made. Only new or fresh ones."""
        self._done = done
        self.fresh_since = None
        self._allowance = self._limit
        self._status = 0
        self._whole = False
        if self._transport is None:
            self._pending = (head, body)
        elif len(body) <= _JOINED_BYTES:
            self._transport.write(head + body)
        else:
            self._write(self._transport, head, body)

    def abort(self) -> bool:
        """Close at once and call nobody. False if no byte of a request can have left."""
        self._done = self._pending = None
        if self._transport is None:
            self._connecting.cancel()
            return False
        self._drop()
        return True

    # --- connecting ---------------------------------------------------------------------------

    async def _connect(self, opener: Callable[[Connection], Awaitable[object]]) -> None:
        try:
            await opener(self)
        except OSError as error:
            self._finish(Failed(FailureKind.UNREACHABLE, describe(error), sent=False))

    def _connected(self, _: asyncio.Task[None]) -> None:
        if self._transport is None:  # not made, or lost again already
            self._on_gone(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        opened = cast("asyncio.Transport", transport)
        pending, self._pending = self._pending, None
        if pending is None:  # given up when it was as good as made
            opened.abort()
            return
        self._transport = opened
        self._parser = HttpResponseParser(self)
        self._write(self._transport, *pending)

    # --- writing ------------------------------------------------------------------------------

    def _write(self, transport: asyncio.Transport, head: bytes, body: bytes) -> None:
        if len(body) <= _JOINED_BYTES:
            transport.write(head + body)
            return
        self._unwritten = memoryview(body)
        transport.write(head)
        self._write_on()

    def _write_on(self) -> None:
        transport = self._transport
        while self._unwritten is not None and self._writable:
            if transport is None or transport.is_closing():
                return
            chunk, rest = self._unwritten[:_CHUNK_BYTES], self._unwritten[_CHUNK_BYTES:]
            self._unwritten = rest or None
            transport.write(chunk)

    def pause_writing(self) -> None:
        self._writable = False

    def resume_writing(self) -> None:
        self._writable = True
        self._write_on()

    # --- reading ------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        parser = self._parser
        if self._done is None or parser is None:
            if data.strip(b"\r\n"):  # empty lines in front of an answer are no part of it
                self._drop()
            return
        whole = self._allowance == self._limit  # nothing was read of this answer before
        if whole and data == self._last.data:
            self._answer(self._last.answer)
            return
        cut = False
        if len(data) > self._allowance:
            cut = bool(data[self._allowance :].strip(b"\r\n"))
            data = data[: self._allowance]
        self._allowance -= len(data)
        try:
            parser.feed_data(data)
        except HttpParserError as error:
            cut = True
            if not self._whole:
                self._drop()
                reason = str(error.__context__ or error)
                self._finish(Failed(FailureKind.MALFORMED, reason))
                return
        if self._whole:
            answer = self._parsed()
            if cut or not self._keep:
                self._drop()
            elif whole and len(data) <= _REMEMBERED_BYTES:
                self._last.data, self._last.answer = data, answer
            self._answer(answer)
        elif not self._allowance:
            self._drop()
            self._cut_off()

    def _cut_off(self) -> None:
        """Nothing more is read of the answer."""
        if self._status:
            self._finish(cut_off(self._status, self._reading) or self._parsed())
        else:
            reason = f"the head of the answer is longer than {self._limit} bytes"
            self._finish(Failed(FailureKind.MALFORMED, reason))

    def on_message_begin(self) -> None:
        if self._whole:
            raise HttpParserError("bytes after the answer")
        self._framed = False
        self._retry_after = None
        self._body.clear()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._status:  # a trailer
            return
        name = name.lower()
        if name == b"content-length":
            self._framed = True
        elif name == b"transfer-encoding":
            self._framed = value.rstrip().lower().endswith(b"chunked")
        elif name == b"retry-after":
            text = value.rstrip().decode("latin-1")
            self._retry_after = f"{self._retry_after}, {text}" if self._retry_after else text

    def on_headers_complete(self) -> None:
        assert self._parser is not None
        status = self._parser.get_status_code()
        if 200 <= status < 600 or (status == _PROCESSING and self._reading.processing_is_final):
            self._status = status
        elif status == 101 or not 100 <= status < 200:
            raise HttpParserError(f"an answer of status {status} makes no sense")

    def on_body(self, chunk: bytes) -> None:
        wanted = BODY_KEPT if self._status >= 300 else self._success_bytes
        if len(self._body) < wanted:
            self._body.extend(chunk[: wanted - len(self._body)])

    def on_message_complete(self) -> None:
        if self._status:  # an interim answer is followed by another
            assert self._parser is not None
            self._whole = True
            # Behind an answer of 102 another one may follow, which must not meet the next request.
            self._keep = self._status >= 200 and self._parser.should_keep_alive()

    # --- the end of a request, and of the connection --------------------------------------------

    def _parsed(self) -> Answer:
        return Answer(self._status, self._retry_after, bytes(self._body))

    def _answer(self, answer: Answer) -> None:
        """The answer is known. The connection is kept unless it was dropped."""
        transport = self._transport
        if transport is not None and not transport.is_closing():
            if self._unwritten is None and not transport.get_write_buffer_size():
                self.fresh_since = JUST_NOW
            else:  # it came early: what is left of the request must not be taken for the next
                self._drop()
        done, self._done = self._done, None
        try:
            if done is not None:
                done(answer)
        finally:
            if self.fresh_since is JUST_NOW:  # mostly the next request is on its way already
                self.fresh_since = self._time()

    def _finish(self, result: Result) -> None:
        done, self._done = self._done, None
        if done is not None:
            done(result)

    def _drop(self) -> None:
        self.fresh_since = None
        self._unwritten = None
        if self._transport is not None:
            self._transport.abort()

    def eof_received(self) -> None:
        self._ended(None)

    def connection_lost(self, error: Exception | None) -> None:
        if error is not None and self._done is not None:
            self._read_last_words()
        self._ended(error)
        self._transport = self._parser = None
        self._on_gone(self)

    def _read_last_words(self) -> None:
        """Read what came before the connection broke, which the loop does no more.

        An application that refuses a large body answers and closes without reading it. Our
        next write fails, and its answer, which says why, would be lost unread.
        """
        transport = self._transport
        if transport is None or transport.get_extra_info("ssl_object") is not None:
            return
        descriptor = transport.get_extra_info("socket").fileno()
        with suppress(OSError):
            while self._done is not None and (data := os.read(descriptor, ANSWER_LIMIT)):
                self.data_received(data)

    def _ended(self, error: Exception | None) -> None:
        self._drop()
        if self._done is None:
            return
        if error is None and self._status and not self._framed:
            self._answer(self._parsed())
        else:
            what = "the connection was closed" if error is None else describe(error)
            when = "in the answer" if self._allowance < self._limit else "before an answer"
            self._finish(Failed(FailureKind.BROKEN, f"{what} {when}"))
