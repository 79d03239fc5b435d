"""The ways a record can go to an application, each with an application to try it on."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import trustme
import uvloop

from sidecar.core.target import parse_target
from sidecar.delivery import TlsOptions, open_delivery
from sidecar.model import (
    Answer,
    Assignment,
    Failed,
    FailureKind,
    Header,
    Partition,
    Record,
    Result,
)
from sidecar.ports import Delivery, Slot
from tests.rig.hostile_app import App, Peer, Script, serving

DEADLINE_SECONDS = 60.0
ASSIGNMENT = Assignment(Partition("orders", 3), epoch=1)


def a_record(
    value: bytes | None = b"v",
    key: bytes | None = None,
    headers: list[Header] | None = None,
    offset: int = 42,
) -> Record:
    return Record(ASSIGNMENT, offset, 1_700_000_000_000, key, value, headers, size=0)


class Sender:
    """One slot, with futures for callbacks."""

    def __init__(self, slot: Slot) -> None:
        self.slot = slot

    def send(self, record: Record | None = None, attempt: int = 1) -> asyncio.Future[Result]:
        answered: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        returned = False

        def done(result: Result) -> None:
            assert returned, "done was called before send returned"
            answered.set_result(result)  # raises if it is called twice

        self.slot.send(a_record() if record is None else record, attempt, done)
        returned = True
        return answered


@dataclass
class Stage:
    """One application and one delivery to it."""

    app: App
    delivery: Delivery

    def slot(self) -> Sender:
        return Sender(self.delivery.open_slot())

    async def send(self, record: Record | None = None) -> Result:
        return await self.slot().send(record)


@dataclass
class Way:
    """name is client for httpx, which always has TLS, else wire."""

    name: str
    new_loop: Callable[[], asyncio.AbstractEventLoop]
    directory: Path
    unix: bool = False
    authority: trustme.CA | None = None
    protocol: str = "http/1.1"  # what the application chooses

    def run(self, play: Callable[[], Awaitable[Any]]) -> None:
        async def main() -> None:
            async with asyncio.timeout(DEADLINE_SECONDS):
                await play()

        with asyncio.Runner(loop_factory=self.new_loop) as runner:
            runner.run(main())

    def target(self, port: int) -> str:
        if self.unix:
            return f"unix://{self.directory}/app.sock:/events/{{topic}}"
        scheme = "https" if self.authority else "http"
        return f"{scheme}://127.0.0.1:{port}/events/{{topic}}"

    def tls(self) -> TlsOptions | None:
        if self.authority is None:
            return None
        ca_file = self.directory / "ca.pem"
        self.authority.cert_pem.write_to_path(str(ca_file))
        return TlsOptions(ca_file=ca_file)

    def delivery(self, port: int, **options: Any) -> Delivery:
        return open_delivery(
            target=parse_target(self.target(port)),
            loop=asyncio.get_running_loop(),
            content_type="application/octet-stream",
            max_header_bytes=options.pop("max_header_bytes", 16_384),
            tls=self.tls(),
            http2=self.name == "client",
            **options,
        )

    @asynccontextmanager
    async def stage(self, script: Script, **options: Any) -> AsyncIterator[Stage]:
        context = None
        if self.authority is not None:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            self.authority.issue_cert("127.0.0.1").configure_cert(context)
            context.set_alpn_protocols([self.protocol])
        path = self.directory / "app.sock" if self.unix else None
        async with serving(script, socket_path=path, tls=context) as app:
            delivery = self.delivery(app.port, **options)
            try:
                yield Stage(app, delivery)
            finally:
                await delivery.close()


def ways(name: str, directory: Path, authority: trustme.CA) -> Way:
    match name:
        case "wire-asyncio":
            return Way("wire", asyncio.new_event_loop, directory)
        case "wire-uvloop":
            return Way("wire", uvloop.new_event_loop, directory)
        case "wire-unix":
            return Way("wire", uvloop.new_event_loop, directory, unix=True)
        case "wire-tls":
            return Way("wire", uvloop.new_event_loop, directory, authority=authority)
        case "http2":
            loop = uvloop.new_event_loop
            return Way("client", loop, directory, authority=authority, protocol="h2")
        case _:
            return Way("client", uvloop.new_event_loop, directory, authority=authority)


def play(
    way: Way, script: Script, act: Callable[[Stage], Awaitable[None]], **options: object
) -> None:
    async def main() -> None:
        async with way.stage(script, **options) as stage:
            await act(stage)

    way.run(main)


def answering(*pieces: bytes, close: bool = True) -> Script:
    """Takes a request, sends the pieces, and closes (or waits for the other side)."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(*pieces)
        if not close:
            await peer.gone()

    return script


def result_of(way: Way, script: Script) -> Result:
    results: list[Result] = []

    async def act(stage: Stage) -> None:
        results.append(await stage.send())

    play(way, script, act)
    return results[0]


def answer(result: Result) -> tuple[int, str | None, bytes]:
    assert isinstance(result, Answer), result
    return result.status, result.retry_after, result.body


def failure(result: Result) -> tuple[FailureKind, bool]:
    assert isinstance(result, Failed), result
    assert result.detail
    return result.kind, result.sent


async def unanswered(answered: asyncio.Future[Result]) -> None:
    """A few turns of the loop, in which done must not be called."""
    for _ in range(20):
        await asyncio.sleep(0)
    assert not answered.done()


async def probed(stage: Stage) -> str | None:
    answered: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
    stage.delivery.probe(answered.set_result)
    return await answered
