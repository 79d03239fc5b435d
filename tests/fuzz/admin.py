"""Bytes on the socket of the admin API: requests, spoiled, in pieces, several on a connection.

What must hold: whatever is answered is HTTP to an independent parser (h11) and no 5xx, nothing is
logged as an error, and the server goes on answering. The Unix socket is used, whose clients may
change everything and do not wait for their turn.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

import h11
import uvloop

from tests.fakes.admin import Served, serving
from tests.fuzz.corpus import kept
from tests.fuzz.spoiling import several

AT_ONCE: Final = 12
SILENCE_SECONDS: Final = 0.02
LONGEST_SECONDS: Final = 5.0
PIECES: Final = (
    b"\r\n",
    b"\n",
    b"\x00",
    b"\xff",
    b" ",
    b"/",
    b"//",
    b"/../",
    b"%00",
    b"%ff",
    b"%2e%2e/",
    b"?",
    b"#",
    b"&count=-1",
    b"?limit=9" + b"9" * 400,
    b"?payload=1&payload=true",
    b"9" * 5000,
    b"-1",
    b"1e999",
    b"null",
    b"[" * 3000,
    b'{"count":',
    b"Transfer-Encoding: chunked\r\n",
    b"Content-Length: 5\r\n",
    b"Content-Length: 99999999999999999999\r\n",
    b"Content-Type: application/json\r\n",
    b"Expect: 100-continue\r\n",
    b"Upgrade: websocket\r\nConnection: upgrade\r\n",
    b"If-Match: *\r\n",
    b"Host: a\r\n",
    b"Authorization: Bearer \xe9\r\n",
    b"X: y\r\n" * 3000,
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
)


class Case(NamedTuple):
    """What comes on each connection, in pieces."""

    connections: tuple[tuple[bytes, ...], ...]


def case(number: int) -> Case:
    random = Random(number)
    return Case(tuple(_pieces(random) for _ in range(AT_ONCE)))


def kept_case(_name: str, data: bytes) -> Case:
    """An input of the corpus, at once and byte by byte."""
    return Case(((data,), tuple(data[at : at + 1] for at in range(len(data)))))


@cache
def _seeds() -> tuple[bytes, ...]:
    return tuple(kept("admin").values())


def _pieces(random: Random) -> tuple[bytes, ...]:
    data = several(random, random.choice(_seeds()), PIECES, _seeds())
    if random.random() < 0.2:
        data += random.choice(_seeds())
    count = random.choice((0, 0, 1, 3))
    cuts = sorted(random.randrange(len(data) + 1) for _ in range(count))
    ends = [*cuts, len(data)]
    return tuple(data[a:b] for a, b in zip([0, *cuts], ends, strict=True))


def judge(case: Case) -> None:
    """Raises Wrong."""
    _Server.get().judge(case)


class _Errors(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())


class _Server:
    """The admin server over fakes, and its loop; for as long as the process lives."""

    _only: _Server | None = None

    @classmethod
    def get(cls) -> _Server:
        if cls._only is None:
            cls._only = cls()
        return cls._only

    @classmethod
    def stop(cls) -> None:
        if cls._only is not None:
            cls._only._stop()
            cls._only = None

    def __init__(self) -> None:
        self._runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        self._stack = contextlib.AsyncExitStack()
        self._directory = tempfile.TemporaryDirectory(prefix="sidecar-fuzz-")
        self._path = Path(self._directory.name) / "admin.sock"
        self._errors = _Errors()
        logging.getLogger().addHandler(self._errors)
        self._served: Served = self._runner.run(self._start())
        self._runner.get_loop().set_exception_handler(self._on_loop_error)

    async def _start(self) -> Served:
        return await self._stack.enter_async_context(serving(self._path))

    def _stop(self) -> None:
        logging.getLogger().removeHandler(self._errors)
        self._runner.run(self._stack.aclose())
        self._runner.close()
        self._directory.cleanup()

    def _on_loop_error(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self._errors.said.append(str(context))

    def judge(self, case: Case) -> None:
        self._runner.run(self._judge(case))

    async def _judge(self, case: Case) -> None:
        answers = await asyncio.wait_for(
            asyncio.gather(*map(self._exchange, case.connections)), LONGEST_SECONDS
        )
        for pieces, answer in zip(case.connections, answers, strict=True):
            _is_http(answer, b"".join(pieces))
        assert self._errors.said == [], self._errors.said
        control = self._served.control
        control.asked.clear()
        self._served.letters.asked.clear()
        control.level, control.held = "info", True
        answer = await self._exchange((b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n",))
        assert answer.startswith(b"HTTP/1.1 200 "), "it goes on answering"

    async def _exchange(self, pieces: Sequence[bytes]) -> bytes:
        """What comes back until nothing does for a moment."""
        reader, writer = await asyncio.open_unix_connection(str(self._path))
        said = b""
        try:
            for piece in pieces:
                if writer.is_closing():
                    break
                writer.write(piece)
                await asyncio.sleep(0)
            while True:
                part = await asyncio.wait_for(reader.read(1 << 16), SILENCE_SECONDS)
                said += part
                if not part or len(said) > 1 << 20:
                    break
        except (TimeoutError, ConnectionError, RuntimeError):
            pass  # the last one is uvloop's word for a transport that has just been closed
        finally:
            writer.transport.abort()
        return said


def _is_http(answer: bytes, request: bytes) -> None:
    """As far as it has come: every answer in it, and none of them a failure of ours.

    One to HEAD has no body, whatever length it tells: where there was one, both readings may fit.
    """
    if not answer:
        return
    try:
        _is_http(_behind_first(answer, b"GET"), request)
    except h11.RemoteProtocolError:
        if b"HEAD " not in request:
            raise
        _is_http(_behind_first(answer, b"HEAD"), request)


def _behind_first(answer: bytes, method: bytes) -> bytes:
    """What comes behind the first answer, if that is here as a whole."""
    parser = h11.Connection(h11.CLIENT, max_incomplete_event_size=1 << 21)
    parser.send(h11.Request(method=method, target="/", headers=[("Host", "a")]))
    parser.send(h11.EndOfMessage())
    parser.receive_data(answer)
    while True:
        event = parser.next_event()
        if isinstance(event, h11.Response):
            assert event.status_code < 500 or event.status_code == 503, event
        elif event is h11.NEED_DATA:
            return b""
        elif isinstance(event, h11.EndOfMessage | h11.ConnectionClosed) or event is h11.PAUSED:
            return parser.trailing_data[0]
