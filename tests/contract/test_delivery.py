"""What every way to an application does, whatever the application does."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trustme
from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar.core.target import parse_target
from sidecar.delivery import open_delivery
from sidecar.delivery.connection import ANSWER_LIMIT
from sidecar.model import Answer, Failed, FailureKind, Result
from tests.contract.delivery_ways import Sender, Stage, Way, a_record, ways
from tests.rig.hostile_app import NO_CONTENT, Peer, Script, refusing, serving

ENDLESS = 512 * 1024 * 1024
BIG = b"x" * 8_000_000


@pytest.fixture(scope="session")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(params=["wire-asyncio", "wire-uvloop", "wire-unix", "wire-tls", "client"])
def way(request: pytest.FixtureRequest, tmp_path: Path, authority: trustme.CA) -> Way:
    return ways(request.param, tmp_path, authority)


@pytest.fixture(params=["wire-asyncio", "wire-uvloop", "wire-unix", "wire-tls"])
def wire(request: pytest.FixtureRequest, tmp_path: Path, authority: trustme.CA) -> Way:
    return ways(request.param, tmp_path, authority)


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


# --- answers ------------------------------------------------------------------------------------

WHOLE = {
    "204": (NO_CONTENT, (204, None, b"")),
    "no reason phrase": (b"HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", (200, None, b"")),
    "content-length": (b"HTTP/1.1 400 No\r\nContent-Length: 3\r\n\r\nbad", (400, None, b"bad")),
    "body of a success": (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", (200, None, b"")),
    "chunked": (
        b"HTTP/1.1 500 E\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1;x=y\r\nc\r\n0\r\n\r\n",
        (500, None, b"abc"),
    ),
    "trailer": (
        b"HTTP/1.1 503 E\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nRetry-After:9\r\n\r\n",
        (503, None, b"a"),
    ),
    "until the end": (b"HTTP/1.1 418 Tea\r\n\r\nshort", (418, None, b"short")),
    "HTTP/1.0": (b"HTTP/1.0 409 No\r\n\r\nold", (409, None, b"old")),
    "304": (b"HTTP/1.1 304 Not\r\nContent-Length: 9\r\n\r\n", (304, None, b"")),
    "redirect": (
        b"HTTP/1.1 302 Away\r\nLocation: http://127.0.0.1:9/\r\nContent-Length: 0\r\n\r\n",
        (302, None, b""),
    ),
    "interim": (
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nRetry-After: 1\r\n\r\n" + NO_CONTENT,
        (204, None, b""),
    ),
    "retry-after": (
        b"HTTP/1.1 429 Slow\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n",
        (429, "7", b""),
    ),
    "two retry-after": (
        b"HTTP/1.1 503 Slow\r\nRetry-After: 7\r\nretry-after: 9\r\nContent-Length: 0\r\n\r\n",
        (503, "7, 9", b""),
    ),
    "not gzip": (
        b"HTTP/1.1 400 No\r\nContent-Encoding: gzip\r\nContent-Length: 5\r\n\r\nplain",
        (400, None, b"plain"),
    ),
    "long body": (
        b"HTTP/1.1 500 E\r\nContent-Length: 9000\r\n\r\n" + b"abcde" * 1800,
        (500, None, (b"abcde" * 1800)[:1024]),
    ),
}


@pytest.mark.parametrize("name", WHOLE)
def test_a_whole_answer_is_the_result(way: Way, name: str) -> None:
    sent, expected = WHOLE[name]
    assert answer(result_of(way, answering(sent))) == expected


NO_ANSWER = {
    "nothing": (b"", FailureKind.BROKEN),
    "half a head": (b"HTTP/1.1 200 OK\r\nContent-Le", FailureKind.BROKEN),
    "half a body": (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", FailureKind.BROKEN),
    "half a chunk": (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nhalf",
        FailureKind.BROKEN,
    ),
    "interim only": (b"HTTP/1.1 100 Continue\r\n\r\n", FailureKind.BROKEN),
    "another protocol": (b"SSH-2.0-OpenSSH_9.2p1\r\n\r\n", FailureKind.MALFORMED),
    "no status": (b"HTTP/1.1 OK\r\n\r\n", FailureKind.MALFORMED),
    "two lengths": (
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        FailureKind.MALFORMED,
    ),
    "no chunk size": (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        FailureKind.MALFORMED,
    ),
    "101": (
        b"HTTP/1.1 101 Switch\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\n",
        FailureKind.MALFORMED,
    ),
    "999": (b"HTTP/1.1 999 What\r\nContent-Length: 0\r\n\r\n", FailureKind.MALFORMED),
    "long head": (
        b"HTTP/1.1 200 OK\r\nX-Long: " + b"a" * 200_000 + b"\r\nContent-Length: 0\r\n\r\n",
        FailureKind.MALFORMED,
    ),
}


@pytest.mark.parametrize("name", NO_ANSWER)
def test_what_is_not_an_answer_fails_as_sent(way: Way, name: str) -> None:
    sent, kind = NO_ANSWER[name]
    assert failure(result_of(way, answering(sent))) == (kind, True)


def test_a_reset_before_the_answer_is_broken(way: Way) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        peer.reset()

    assert failure(result_of(way, script)) == (FailureKind.BROKEN, True)


ANSWER_ENDS = [
    b"HTTP/1.1 204 No Content\r\n\r\n",
    b"HTTP/1.1 100 Go\r\n\r\nHTTP/1.1 400 No\r\nRetry-After: 3\r\nContent-Length: 4\r\n\r\nbody",
    b"HTTP/1.1 500 E\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\nT: v\r\n\r\n",
    b"HTTP/1.1 409 No\r\n\r\nuntil the end",
    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 500 stray\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort",
    b"no HTTP at all",
]


@pytest.mark.parametrize("raw", ANSWER_ENDS)
def test_the_result_does_not_depend_on_how_the_bytes_arrive(
    tmp_path: Path, authority: trustme.CA, raw: bytes
) -> None:
    way = ways("wire-uvloop", tmp_path, authority)
    expected = result_of(way, answering(raw))

    @settings(max_examples=15, deadline=None)
    @given(st.sets(st.integers(1, len(raw) - 1), max_size=8))
    def split(cuts: set[int]) -> None:
        ends = [0, *sorted(cuts), len(raw)]
        pieces = [raw[a:b] for a, b in itertools.pairwise(ends)]
        assert repr(result_of(way, answering(*pieces))) == repr(expected)

    split()


# --- applications that never end -------------------------------------------------------------


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 400 No\r\nContent-Length: %d\r\n\r\n" % ENDLESS,
        b"HTTP/1.1 400 No\r\n\r\n",
        b"HTTP/1.1 400 No\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n" % ENDLESS,
    ],
)
def test_a_flood_is_cut_and_the_status_decides(way: Way, head: bytes) -> None:
    poured = 0

    async def script(peer: Peer) -> None:
        nonlocal poured
        await peer.request()
        await peer.send(head)
        while poured < ENDLESS:
            await peer.send(b"f" * 65_536)
            poured += 65_536

    async def act(stage: Stage) -> None:
        slot = stage.slot()
        assert answer(await slot.send()) == (400, None, b"f" * 1024)
        slot.slot.close()

    play(way, script, act)
    assert poured < 64 * 1024 * 1024


def test_interim_answers_for_ever_are_cut(wire: Way) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        while True:
            await peer.send(b"HTTP/1.1 102 Processing\r\n\r\n")

    assert failure(result_of(wire, script)) == (FailureKind.MALFORMED, True)


def test_chunk_extensions_for_ever_are_cut(wire: Way) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;")
        while True:
            await peer.send(b"x" * 1000)

    assert answer(result_of(wire, script)) == (200, None, b"")


@pytest.mark.parametrize("extra", [-1, 0, 1])
def test_the_limit_counts_every_byte_of_an_answer(wire: Way, extra: int) -> None:
    """An answer of exactly the limit is whole, and its connection is kept."""
    head = b"HTTP/1.1 500 E\r\nContent-Length: %d\r\n\r\n"
    length = ANSWER_LIMIT - len(head % 65_000) + extra
    raw = head % length + b"b" * length

    async def script(peer: Peer) -> None:
        await peer.answer_all(raw)

    async def act(stage: Stage) -> None:
        slot = stage.slot()
        for _ in range(2):
            assert answer(await slot.send()) == (500, None, b"b" * 1024)
        assert stage.app.accepted == (1 if extra <= 0 else 2)

    play(wire, script, act)


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
    async def script(peer: Peer) -> None:
        await peer.answer_all()

    assert connections_for_two(way, script, idle_seconds=0.0) == 2


def test_a_connection_that_the_application_closed_is_never_used(way: Way) -> None:
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


@pytest.mark.parametrize("target", ["http://nowhere.invalid/", "unix:///nowhere/app.sock"])
def test_what_cannot_be_found_is_unreachable_and_not_sent(wire: Way, target: str) -> None:
    async def main() -> None:
        delivery = open_delivery(
            target=parse_target(target),
            loop=asyncio.get_running_loop(),
            content_type="text/plain",
            max_header_bytes=1000,
            connections=1,
        )
        failed = await Sender(delivery.open_slot()).send()
        assert failure(failed) == (FailureKind.UNREACHABLE, False)
        await delivery.close()

    wire.run(main)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_localhost_works_whatever_family_the_application_has(wire: Way, host: str) -> None:
    async def script(peer: Peer) -> None:
        await peer.answer_all()

    async def main() -> None:
        async with serving(script, host=host) as app:
            delivery = open_delivery(
                target=parse_target(f"http://localhost:{app.port}/"),
                loop=asyncio.get_running_loop(),
                content_type="text/plain",
                max_header_bytes=1000,
                connections=1,
            )
            assert answer(await Sender(delivery.open_slot()).send())[0] == 204
            await delivery.close()

    wire.run(main)


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


# --- abort -----------------------------------------------------------------------------------


async def unanswered(answered: asyncio.Future[Result]) -> None:
    """A few turns of the loop, in which done must not be called."""
    for _ in range(20):
        await asyncio.sleep(0)
    assert not answered.done()


def test_abort_while_connecting_sends_nothing(way: Way) -> None:
    async def script(peer: Peer) -> None:
        await peer.answer_all()

    async def act(stage: Stage) -> None:
        slot = stage.slot()
        answered = slot.send()
        assert slot.slot.abort() is False
        await unanswered(answered)
        assert answer(await slot.send())[0] == 204
        assert len(stage.app.received) == 1
        async with asyncio.timeout(0.5):  # what never began to connect holds up no end
            await stage.delivery.close()

    play(way, script, act)


def test_abort_in_any_turn_of_connecting_tells_the_truth(way: Way) -> None:
    """Whenever abort says that nothing was sent, nothing arrives."""

    async def script(peer: Peer) -> None:
        await peer.answer_all()

    async def act(stage: Stage) -> None:
        certain: list[int] = []
        for turns in range(40):
            slot = stage.slot()
            answered = slot.send(a_record(offset=turns))
            for _ in range(turns):
                await asyncio.sleep(0)
            if answered.done():
                continue
            if not slot.slot.abort():
                certain.append(turns)
            await unanswered(answered)
        assert certain
        assert answer(await stage.send())[0] == 204
        arrived = {int(each.values("kafka-offset")[0]) for each in stage.app.received}
        assert not arrived & set(certain)

    play(way, script, act)


def test_abort_while_the_body_is_written(way: Way) -> None:
    stuck, gone = asyncio.Event(), asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.head()
        stuck.set()
        await peer.gone()
        gone.set()

    async def act(stage: Stage) -> None:
        slot = stage.slot()
        answered = slot.send(a_record(value=BIG))
        await stuck.wait()
        assert slot.slot.abort() is True
        await unanswered(answered)
        await gone.wait()

    play(way, script, act)


@pytest.mark.parametrize(
    "sent", [b"", b"HTTP/1.1 200", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"]
)
def test_abort_while_the_answer_is_awaited_closes_the_connection(way: Way, sent: bytes) -> None:
    read, gone = asyncio.Event(), asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(sent)
        read.set()
        await peer.gone()
        gone.set()

    async def act(stage: Stage) -> None:
        slot = stage.slot()
        answered = slot.send()
        await read.wait()
        await unanswered(answered)
        assert slot.slot.abort() is True
        await unanswered(answered)
        await gone.wait()

    play(way, script, act)


def test_a_drip_is_ended_by_abort(way: Way) -> None:
    """Each byte restarts nothing: the caller's deadline is total."""
    dripped = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        for _ in range(100):
            await peer.send(b"d")
        dripped.set()
        await peer.gone()

    async def act(stage: Stage) -> None:
        slot = stage.slot()
        answered = slot.send()
        await dripped.wait()
        assert not answered.done()
        assert slot.slot.abort() is True
        await unanswered(answered)

    play(way, script, act)


def test_a_request_may_follow_from_inside_done(way: Way) -> None:
    async def script(peer: Peer) -> None:
        await peer.answer_all()

    async def act(stage: Stage) -> None:
        slot = stage.delivery.open_slot()
        finished: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        count = 0

        def done(result: Result) -> None:
            nonlocal count
            count += 1
            if count < 50:
                slot.send(a_record(offset=count), 1, done)
            else:
                finished.set_result(count)

        slot.send(a_record(offset=0), 1, done)
        await finished
        offsets = [int(each.values("kafka-offset")[0]) for each in stage.app.received]
        assert offsets == list(range(50))
        assert stage.app.accepted == 1

    play(way, script, act)


def test_giving_up_again_and_again_leaks_nothing(way: Way) -> None:
    """After a churn of aborted requests all slots work, on no more connections than slots."""
    slow = True

    async def script(peer: Peer) -> None:
        while True:
            await peer.request()
            if slow:
                await peer.gone()
                return
            await peer.send(NO_CONTENT)

    async def act(stage: Stage) -> None:
        nonlocal slow
        slots = [stage.slot() for _ in range(8)]
        for turn in range(12):
            for slot in slots:
                slot.send()
            for _ in range(turn):
                await asyncio.sleep(0)
            for slot in slots:
                slot.slot.abort()
        slow = False
        for _ in range(5):
            results = await asyncio.gather(*(slot.send() for slot in slots))
            assert [answer(each)[0] for each in results] == [204] * 8
        await stage.app.until(lambda: stage.app.open <= len(slots))

    play(way, script, act, idle_seconds=60.0)


# --- probes ----------------------------------------------------------------------------------


async def probed(stage: Stage) -> str | None:
    answered: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
    stage.delivery.probe(answered.set_result)
    return await answered


def test_a_probe_is_content_with_a_connection(way: Way) -> None:
    async def act(stage: Stage) -> None:
        assert await probed(stage) is None

    async def script(peer: Peer) -> None:
        await peer.gone()

    play(way, script, act)


@pytest.mark.parametrize(("status", "fine"), [(200, True), (204, True), (302, False), (503, False)])
def test_a_health_url_wants_a_success(way: Way, status: int, fine: bool) -> None:
    heads: list[bytes] = []

    async def script(peer: Peer) -> None:
        heads.append(await peer.head())
        await peer.send(b"HTTP/1.1 %d S\r\nContent-Length: 0\r\n\r\n" % status)

    async def main() -> None:
        async with way.stage(script) as stage:
            health = way.target(stage.app.port).replace("/events/{topic}", "/healthz?deep")
            asking = Stage(stage.app, way.delivery(stage.app.port, health=health))
            reason = await probed(asking)
            await asking.delivery.close()
        assert (reason is None) is fine
        assert reason is None or str(status) in reason
        assert heads[0].startswith(b"GET /healthz?deep HTTP/1.1\r\nHost: ")

    way.run(main)


def test_a_probe_is_bounded_in_time(way: Way) -> None:
    async def script(peer: Peer) -> None:
        await peer.gone()

    async def main() -> None:
        async with way.stage(script) as stage:
            health = way.target(stage.app.port).replace("{topic}", "healthz")
            asking = Stage(
                stage.app, way.delivery(stage.app.port, health=health, probe_seconds=0.05)
            )
            assert await probed(asking) == "no answer within 0.05 s"
            await asking.delivery.close()

    way.run(main)


def test_closing_ends_everything_that_runs(way: Way) -> None:
    """Nobody is called, and the application sees its connections end."""

    async def script(peer: Peer) -> None:
        await peer.gone()

    async def act(stage: Stage) -> None:
        answers = [stage.slot().send() for _ in range(3)]
        await stage.app.until(lambda: stage.app.accepted == 3)
        await stage.delivery.close()
        assert not any(each.done() for each in answers)
        await stage.app.until(lambda: not stage.app.open)

    play(way, script, act)
