"""What counts as an answer, whatever the application sends, and however it arrives."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import trustme
from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar.delivery.connection import ANSWER_LIMIT
from sidecar.model import FailureKind
from tests.contract.delivery.ways import (
    Stage,
    Way,
    answer,
    answering,
    failure,
    play,
    result_of,
    ways,
)
from tests.rig.hostile_app import NO_CONTENT, Peer

ENDLESS = 512 * 1024 * 1024


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
