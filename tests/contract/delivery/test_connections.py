"""When a connection is kept, replaced, or not to be had; bodies of any size."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest
import trustme
import uvloop

from sidecar.core.target import parse_target
from sidecar.delivery import open_delivery
from sidecar.model import UNREADABLE_HEADERS, Answer, FailureKind
from sidecar.ports import Delivery
from tests.contract.delivery.ways import (
    Sender,
    Stage,
    Way,
    a_record,
    answer,
    answering,
    failure,
    play,
    probed,
    unanswered,
    ways,
)
from tests.rig.hostile_app import NO_CONTENT, Peer, Script, refusing, serving

BIG = b"x" * 8_000_000


# --- the connection: kept or replaced --------------------------------------------------------


def connections_for_two(way: Way, script: Script, **options: object) -> int:
    """How many connections two records take, one after the other."""
    accepted = 0

    async def act(stage: Stage) -> None:
        nonlocal accepted
        slot = stage.slot()
        for _ in range(2):
            result = await slot.send()
            assert isinstance(result, Answer), result
        accepted = stage.app.accepted

    play(way, script, act, **options)
    return accepted


KEPT = [
    NO_CONTENT,
    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    b"HTTP/1.1 500 E\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\n" + NO_CONTENT,
]
ENDED = [
    b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n",
]
SPOILT = [
    NO_CONTENT + b"stray",
    NO_CONTENT + NO_CONTENT,
    NO_CONTENT + b"HTTP/1.1 ",
]


@pytest.mark.parametrize("raw", KEPT)
def test_a_connection_is_used_again(way: Way, raw: bytes) -> None:
    async def script(peer: Peer) -> None:
        await peer.answer_all(raw)

    assert connections_for_two(way, script) == 1


@pytest.mark.parametrize("raw", ENDED)
def test_a_connection_that_the_answer_ends_is_replaced(way: Way, raw: bytes) -> None:
    async def script(peer: Peer) -> None:
        await peer.answer_all(raw)

    assert connections_for_two(way, script) == 2


@pytest.mark.parametrize("raw", SPOILT)
def test_a_connection_with_bytes_behind_the_answer_is_replaced(wire: Way, raw: bytes) -> None:
    async def script(peer: Peer) -> None:
        await peer.answer_all(raw)

    assert connections_for_two(wire, script) == 2


def test_a_connection_idle_for_too_long_is_replaced(way: Way) -> None:
    """WIRE-1."""

    async def script(peer: Peer) -> None:
        await peer.answer_all()

    assert connections_for_two(way, script, idle_seconds=0.0) == 2


def test_a_connection_that_the_application_closed_is_never_used(way: Way) -> None:
    """WIRE-1."""
    closed = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(NO_CONTENT)
        peer.writer.close()
        await peer.gone()
        closed.set()

    async def act(stage: Stage) -> None:
        slot = stage.slot()
        for _ in range(3):
            closed.clear()
            assert answer(await slot.send())[0] == 204
            await closed.wait()

    play(way, script, act, idle_seconds=60.0)


def test_bytes_on_an_idle_connection_end_it(wire: Way) -> None:
    """What arrives between two requests is never taken for the next answer."""
    gone = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(NO_CONTENT)
        if peer.number == 1:
            await peer.reader.read(0)
            await peer.send(b"HTTP/1.1 500 Late\r\nContent-Length: 0\r\n\r\n")
        await peer.gone()
        gone.set()

    async def act(stage: Stage) -> None:
        slot = stage.slot()
        assert answer(await slot.send())[0] == 204
        await gone.wait()
        assert answer(await slot.send())[0] == 204

    play(wire, script, act, idle_seconds=60.0)


def test_a_race_with_the_application_closing_is_broken_and_not_resent(wire: Way) -> None:
    """WIRE-1."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(NO_CONTENT)
        await peer.head()
        peer.reset()

    async def act(stage: Stage) -> None:
        slot = stage.slot()
        assert answer(await slot.send())[0] == 204
        assert failure(await slot.send()) == (FailureKind.BROKEN, True)
        assert stage.app.accepted == 1

    play(wire, script, act)


# --- large bodies ----------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 65_536, 65_537, len(BIG)])
def test_bodies_of_any_size_arrive(way: Way, size: int) -> None:
    async def act(stage: Stage) -> None:
        slot = stage.slot()
        for _ in range(2):
            assert answer(await slot.send(a_record(value=BIG[:size])))[0] == 204
        assert [each.body for each in stage.app.received] == [BIG[:size]] * 2

    async def script(peer: Peer) -> None:
        await peer.answer_all()

    play(way, script, act)


def test_an_early_answer_is_taken_and_the_connection_closed(wire: Way) -> None:
    """The rest of the request must not be taken for the next one."""

    async def script(peer: Peer) -> None:
        await peer.head()
        await peer.send(b"HTTP/1.1 413 Large\r\nContent-Length: 3\r\n\r\nbig")
        await peer.gone()

    async def act(stage: Stage) -> None:
        slot = stage.slot()
        for _ in range(2):
            assert answer(await slot.send(a_record(value=BIG))) == (413, None, b"big")
        assert stage.app.accepted == 2

    play(wire, script, act)


@pytest.mark.parametrize("size", [70_000, 500_000, len(BIG)])
def test_an_answer_before_a_reset_is_taken(wire: Way, size: int) -> None:
    """An application that refuses a large body answers and closes without reading it."""
    if wire.authority:
        pytest.skip("what TLS has not decrypted when a write fails is lost")

    async def main() -> None:
        path = wire.directory / "app.sock" if wire.unix else None
        with refusing(b"HTTP/1.1 413 Large\r\nContent-Length: 3\r\n\r\nbig", path) as port:
            delivery = wire.delivery(port)
            for _ in range(50):
                result = await Sender(delivery.open_slot()).send(a_record(value=BIG[:size]))
                assert answer(result) == (413, None, b"big")
            await delivery.close()

    wire.run(main)


def test_a_half_closed_connection_still_answers(way: Way) -> None:
    """An application that ends its side right behind the answer has answered."""
    if way.authority:
        pytest.skip("TLS has no half-closed connections")
    gone = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        peer.writer.write(NO_CONTENT)
        peer.writer.write_eof()
        await peer.gone()
        gone.set()

    async def act(stage: Stage) -> None:
        slot = stage.slot()
        for _ in range(2):
            gone.clear()
            assert answer(await slot.send())[0] == 204
            await gone.wait()

    play(way, script, act, idle_seconds=60.0)


# --- unreachable -----------------------------------------------------------------------------


def test_a_refused_connection_is_unreachable_and_not_sent(way: Way) -> None:
    async def main() -> None:
        async with way.stage(answering()) as stage:
            port = stage.app.port
        if way.unix:
            (way.directory / "app.sock").unlink(missing_ok=True)
        delivery = way.delivery(port)
        assert failure(await Stage(stage.app, delivery).send()) == (FailureKind.UNREACHABLE, False)
        await delivery.close()

    way.run(main)


def opened(target: str, way: Way) -> Delivery:
    return open_delivery(
        target=parse_target(target),
        loop=asyncio.get_running_loop(),
        content_type="text/plain",
        max_header_bytes=1000,
        tls=way.tls(),
        http2=way.name == "client",
    )


@pytest.mark.parametrize("path", ["missing.sock", "file", "directory", "file/app.sock"])
def test_a_socket_that_is_none_is_unreachable_and_not_sent(tmp_path: Path, path: str) -> None:
    (tmp_path / "file").write_text("no socket")
    (tmp_path / "directory").mkdir()
    way = Way("wire", uvloop.new_event_loop, tmp_path)

    async def main() -> None:
        delivery = opened(f"unix://{tmp_path}/{path}:/", way)
        for _ in range(2):
            result = await Sender(delivery.open_slot()).send()
            assert failure(result) == (FailureKind.UNREACHABLE, False)
        await delivery.close()

    way.run(main)


def test_a_host_that_cannot_be_found_is_unreachable_and_not_sent(way: Way) -> None:
    async def main() -> None:
        delivery = opened(f"http{'s' if way.authority else ''}://nowhere.invalid/", way)
        failed = await Sender(delivery.open_slot()).send()
        assert failure(failed) == (FailureKind.UNREACHABLE, False)
        await delivery.close()

    way.run(main)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_localhost_works_whatever_family_the_application_has(way: Way, host: str) -> None:
    async def script(peer: Peer) -> None:
        await peer.answer_all()

    async def main() -> None:
        context = None
        if way.authority:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            way.authority.issue_cert("localhost").configure_cert(context)
        async with serving(script, host=host, tls=context) as app:
            delivery = opened(f"http{'s' if way.authority else ''}://localhost:{app.port}/", way)
            slot = Sender(delivery.open_slot())
            for _ in range(2):
                assert answer(await slot.send())[0] == 204
            assert app.received[0].values("host") == [f"localhost:{app.port}".encode()]
            assert app.accepted == 1
            await delivery.close()

    way.run(main)


@pytest.mark.parametrize("name", ["wire-tls", "client"])
def test_an_untrusted_certificate_is_unreachable_and_not_sent(
    tmp_path: Path, authority: trustme.CA, name: str
) -> None:
    way = ways(name, tmp_path, authority)

    async def act(stage: Stage) -> None:
        way.authority = trustme.CA()
        stranger = Stage(stage.app, way.delivery(stage.app.port))
        assert failure(await stranger.send()) == (FailureKind.UNREACHABLE, False)
        assert await probed(stranger) is not None
        await stranger.delivery.close()

    play(way, answering(NO_CONTENT), act)


# --- unsendable ------------------------------------------------------------------------------


def test_a_head_above_the_limit_is_not_sent(way: Way) -> None:
    async def script(peer: Peer) -> None:
        await peer.answer_all()

    async def act(stage: Stage) -> None:
        slot = stage.slot()
        failed = await slot.send(a_record(headers=[("n", b"v" * 2_000)]))
        assert failure(failed) == (FailureKind.UNSENDABLE, False)
        assert answer(await slot.send())[0] == 204

    play(way, script, act, max_header_bytes=1_000)


def test_an_unsendable_record_can_be_given_up(way: Way) -> None:
    async def act(stage: Stage) -> None:
        slot = stage.slot()
        answered = slot.send(a_record(headers=[("n", b"v" * 2_000)]))
        assert slot.slot.abort() is False
        await unanswered(answered)

    play(way, answering(), act, max_header_bytes=1_000)


def test_headers_that_the_client_library_could_not_read_are_not_sent(way: Way) -> None:
    async def script(peer: Peer) -> None:
        await peer.answer_all()

    async def act(stage: Stage) -> None:
        slot = stage.slot()
        failed = await slot.send(a_record(headers=UNREADABLE_HEADERS))
        assert failure(failed) == (FailureKind.UNSENDABLE, False)
        assert "not UTF-8" in repr(failed)
        assert answer(await slot.send(a_record(headers=list(UNREADABLE_HEADERS))))[0] == 204
        assert len(stage.app.received) == 1

    play(way, script, act)
