"""Clients that take too much: the admin server stays within its bounds and answers the others."""

from __future__ import annotations

import asyncio
import contextlib
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator

import pytest

from sidecar.admin import connections
from sidecar.admin.connections import HEAD_BYTES, MOST, PIPELINED
from tests.fakes.admin import TOKEN, Served, run, serving

WAIT = b"GET /v1/drained?wait_seconds=60 HTTP/1.1\r\nHost: localhost\r\n\r\n"
GET = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Clients:
    """Connections to the server, all closed at the end."""

    def __init__(self, served: Served) -> None:
        self._address = served.address
        self._writers: list[StreamWriter] = []

    async def connect(self) -> tuple[StreamReader, StreamWriter]:
        reader, writer = await asyncio.open_connection(self._address.host, self._address.port)
        self._writers.append(writer)
        return reader, writer

    def close(self) -> None:
        for writer in self._writers:
            writer.transport.abort()


@contextlib.asynccontextmanager
async def attacked() -> AsyncIterator[tuple[Served, Clients]]:
    async with serving() as served:
        with contextlib.closing(Clients(served)) as clients:
            yield served, clients


async def ends(reader: StreamReader, within: float = 5) -> bytes:
    """What is left to be read until the other side is gone."""
    try:
        return await asyncio.wait_for(reader.read(), within)
    except ConnectionResetError:
        return b""


def test_500_idle_connections_keep_nobody_out() -> None:
    """The oldest are closed; the others stay."""

    async def main() -> None:
        async with attacked() as (served, clients):
            opened = [await clients.connect() for _ in range(500)]
            assert (await served.get("/livez")).status_code == 200
            assert await ends(opened[0][0]) == b""
            reader, writer = opened[-1]
            writer.write(GET)
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")
            alive = [each for each, _ in opened if not each.at_eof() and each.exception() is None]
            assert len(alive) <= MOST

    run(main())


def test_waiting_requests_keep_nobody_out() -> None:
    async def main() -> None:
        async with attacked() as (served, clients):
            opened = []
            for _ in range(MOST + 20):
                reader, writer = await clients.connect()
                writer.write(WAIT)
                opened.append((reader, writer))
            assert (await served.get("/livez")).status_code == 200
            assert await ends(opened[0][0]) == b""

    run(main())


@pytest.mark.parametrize(
    "sent",
    [b"", b"GET /livez HT", GET[:-2], b"PUT /v1/log-level HTTP/1.1\r\ncontent-length: 9\r\n\r\n{"],
    ids=["nothing", "half a line", "half a head", "half a body"],
)
def test_slow_requests_are_cut(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "REQUEST_SECONDS", 0.1)

    async def main() -> None:
        async with attacked() as (_, clients):
            reader, writer = await clients.connect()
            writer.write(sent)
            assert await ends(reader) == b""

    run(main())


def test_a_second_slow_request_is_cut_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "REQUEST_SECONDS", 0.3)

    async def main() -> None:
        async with attacked() as (_, clients):
            reader, writer = await clients.connect()
            writer.write(GET)
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")
            writer.write(GET[:20])
            assert b"200" not in (await ends(reader)).split(b'{"status":"ok"}')[1]

    run(main())


def test_a_waiting_request_is_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what does not arrive is: an answer may be waited for."""
    monkeypatch.setattr(connections, "REQUEST_SECONDS", 0.05)

    async def main() -> None:
        async with serving() as served:
            answer = await served.get("/v1/drained?wait_seconds=0.3")
            assert answer.json() == {"drained": False}

    run(main())


def test_who_reads_nothing_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """OBS: a scraper that asks and asks, and never takes an answer."""
    monkeypatch.setattr(connections, "WRITE_SECONDS", 0.1)
    monkeypatch.setattr(connections, "REQUEST_SECONDS", 600.0)  # it is not that which cuts

    async def main() -> None:
        async with attacked() as (served, clients):
            reader, writer = await clients.connect()
            reader._transport.pause_reading()  # type: ignore[attr-defined]

            async def ask() -> None:
                request = (
                    GET[:-2].replace(b"livez", b"openapi.json") + b"x: " + b"x" * 8000 + b"\r\n\r\n"
                )
                for _ in range(10_000):
                    writer.write(request)
                    await writer.drain()

            with pytest.raises((ConnectionError, BrokenPipeError)):
                await asyncio.wait_for(ask(), 60)
            assert (await served.get("/livez")).status_code == 200

    run(main())


@pytest.mark.parametrize("whole", [True, False])
def test_large_heads_are_refused(whole: bool) -> None:
    async def main() -> None:
        async with attacked() as (_, clients):
            reader, writer = await clients.connect()
            head = b"GET /livez HTTP/1.1\r\nHost: localhost\r\nx: " + b"x" * HEAD_BYTES * 2
            writer.write(head + b"\r\n\r\n" * whole)
            told = await ends(reader)
            assert told.startswith(b"HTTP/1.1 431 ")
            assert b"application/problem+json" in told

    run(main())


def test_what_is_no_http_is_told_so() -> None:
    async def main() -> None:
        async with attacked() as (_, clients):
            reader, writer = await clients.connect()
            writer.write(b"\x16\x03\x01 hello\r\n\r\n")
            told = await ends(reader)
            assert told.startswith(b"HTTP/1.1 400 ")
            assert b"application/problem+json" in told

    run(main())


CHUNKED = (
    b"POST /v1/routes/orders/pause HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n"
)


@pytest.mark.parametrize("field", [b"x: y\r\n", b"x"], ids=["many", "one"])
def test_fields_without_an_end_behind_a_body_are_cut(field: bytes) -> None:
    async def main() -> None:
        async with attacked() as (served, clients):
            reader, writer = await clients.connect()
            writer.write(CHUNKED + b"\r\n0\r\n" + field * HEAD_BYTES * 40)
            await ends(reader)
            assert (await served.get("/livez")).status_code == 200

    run(main())


def test_fields_behind_a_body_say_nothing() -> None:
    async def main() -> None:
        async with attacked() as (_, clients):
            reader, writer = await clients.connect()
            token = b"authorization: Bearer " + TOKEN.encode() + b"\r\n"
            for before, behind, status in ((b"", token, b"401"), (token, b"x: y\r\n", b"200")):
                writer.write(CHUNKED + before + b"\r\n0\r\n" + behind + b"\r\n" + GET)
                for expected in (status, b"200"):
                    assert (await reader.readline()).startswith(b"HTTP/1.1 " + expected)
                    head = await reader.readuntil(b"\r\n\r\n")
                    await reader.readexactly(
                        int(head.split(b"content-length: ")[1].split(b"\r")[0])
                    )

    run(main())


def test_who_asks_too_much_at_once_is_cut() -> None:
    async def main() -> None:
        async with attacked() as (served, clients):
            reader, writer = await clients.connect()
            writer.write(WAIT + GET * (PIPELINED + 1))
            assert await ends(reader) == b""
            assert (await served.get("/livez")).status_code == 200

    run(main())


@pytest.mark.parametrize("behind", [b"", GET], ids=["alone", "with another behind it"])
@pytest.mark.parametrize("path", [b"drained?wait_seconds=3600", b"events"])
def test_nothing_is_done_for_who_has_left(
    path: bytes, behind: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """Else whoever asks and leaves, again and again, would fill the memory."""

    async def main() -> None:
        async with attacked() as (served, clients):
            before = asyncio.all_tasks()
            reader, writer = await clients.connect()
            writer.write(WAIT.replace(b"drained?wait_seconds=60", path) + behind)
            await (served.view.waiting.wait() if b"drained" in path else reader.readline())
            asked = asyncio.all_tasks() - before
            assert asked
            writer.transport.abort()
            _, still = await asyncio.wait(asked, timeout=5)
            assert not still

    run(main())
    assert not caplog.records
