"""What a client of the admin server may take: connections, time and memory, all of it bounded.

Whoever opens too many connections, sends slowly or reads nothing is cut off; the others are
answered, and the dispatch, which runs on the same loop, does not notice.

Invariants:
* No more than MOST connections by TCP: one more, and the oldest that waits for nothing is closed,
  or else the oldest of all. The Unix socket is not counted: the operator always gets in.
* A request is here within REQUEST_SECONDS of its first byte, or of the connection's beginning, its
  head within HEAD_BYTES; an answer that is not taken for WRITE_SECONDS ends the connection.
* Fields behind a body in chunks are passed over, and are no more than a head may be. No more than
  PIPELINED requests wait for the answer before theirs.
* Whoever answers a request learns that its connection is gone, whatever was sent after it.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict
from http import HTTPStatus
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from sidecar.admin.problems import MEDIA_TYPE, problem

MOST: Final = 100
HEAD_BYTES: Final = 16_384
IDLE_SECONDS: Final = 1.0
REQUEST_SECONDS: Final = 10.0
WRITE_SECONDS: Final = 10.0
PIPELINED: Final = 64
_MALFORMED: Final = 400
_HEAD_TOO_LARGE: Final = 431


class BoundedProtocol(HttpToolsProtocol):
    """One connection."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.began = self.loop.time()
        self.leaving = False  # cut, and not gone yet
        self._head_bytes = 0
        self._in_head = True  # or behind a chunk, where there may be fields as well
        self._in_chunks = False
        self._status = _MALFORMED
        self._answered: RequestResponseCycle | None = None  # cycle is the last one that came
        self._deadline: asyncio.TimerHandle | None = None
        self._write_deadline: asyncio.TimerHandle | None = None

    # --- connections --------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect()
        if self._counted:
            self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        self._arrived()
        self._written()
        super().connection_lost(exc)
        if (cycle := self._answered) is not None and not cycle.response_complete:
            cycle.disconnected = True
            cycle.message_event.set()

    @property
    def _counted(self) -> bool:
        return self.server is not None and self.server[1] is not None

    @property
    def waits(self) -> bool:
        """Whether a request of it is being answered."""
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not cycle.response_complete

    def _make_room(self) -> None:
        others = [
            each
            for each in self.connections
            if isinstance(each, BoundedProtocol)
            and each._counted
            and not each.leaving
            and each is not self
        ]
        if len(others) < MOST:
            return
        young = self.began - IDLE_SECONDS  # its request may be on the way
        oldest = min(others, key=lambda each: (each.waits or each.began > young, each.began))
        oldest._cut()

    # --- what comes in ------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self._in_head:
            self._head_bytes += len(data)
        super().data_received(data)
        if self._in_head and self._head_bytes > HEAD_BYTES and not self.transport.is_closing():
            self._status = _HEAD_TOO_LARGE
            self.send_400_response("")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._expect()

    def on_headers_complete(self) -> None:
        self._in_head = False
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if size > HEAD_BYTES:
            self._status = _HEAD_TOO_LARGE
            raise ValueError("the head is too large")  # told as the parser's own mistakes are
        if len(self.pipeline) >= PIPELINED:
            self._cut()
            raise ValueError("too many requests wait")
        super().on_headers_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._answered = cycle
        super()._start_asgi_task(cycle, app)

    def on_chunk_header(self) -> None:
        self._in_chunks = True
        self._in_head = True
        self._head_bytes = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_chunks:
            super().on_header(name, value)

    def on_body(self, body: bytes) -> None:
        self._in_head = False
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._arrived()
        self._in_chunks = False
        self._head_bytes = 0
        self._in_head = True
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Of what never became a request, in the form of every other error."""
        if self.leaving:
            return
        text = f"the head has {HEAD_BYTES} bytes at most" if self._status != _MALFORMED else msg
        body = json.dumps(asdict(problem(self._status, text))).encode()
        reason = HTTPStatus(self._status).phrase
        head = (
            f"HTTP/1.1 {self._status} {reason}\r\ncontent-type: {MEDIA_TYPE}\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode("ascii") + body)
        self.transport.close()

    # --- what goes out ------------------------------------------------------------------------

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._write_deadline is None:
            self._write_deadline = self.loop.call_later(WRITE_SECONDS, self._cut)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._written()

    # --- time ---------------------------------------------------------------------------------

    def _expect(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(REQUEST_SECONDS, self._cut)

    def _arrived(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _written(self) -> None:
        if self._write_deadline is not None:
            self._write_deadline.cancel()
            self._write_deadline = None

    def _cut(self) -> None:
        self.leaving = True
        self.transport.abort()
