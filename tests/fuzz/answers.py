"""Answers that no application should give: valid ones, cut, joined and spoiled.

Everything is drawn from one Random, so that a number stands for a case.
"""

from __future__ import annotations

import re
from random import Random
from typing import Final, NamedTuple

from sidecar.delivery.connection import ANSWER_LIMIT, JUST_STATUS, Reading
from tests.fuzz.spoiling import spoiled

VALID: Final = (
    b"HTTP/1.1 204 No Content\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
    b"HTTP/1.0 200 OK\r\n\r\nuntil the end",
    b"HTTP/1.1 200 OK\r\n\r\nuntil the end",
    (
        b"HTTP/1.1 500 E\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"2\r\nab\r\n1;x=y\r\nc\r\n0\r\nT: v\r\n\r\n"
    ),
    b"HTTP/1.1 503 Busy\r\nRetry-After: 30\r\nContent-Length: 4\r\n\r\nbusy",
    b"HTTP/1.1 429 \r\nRetry-After: Wed, 21 Oct 2015 07:28:00 GMT\r\nContent-Length:0\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 Created\r\nContent-Length: 1\r\n\r\n{",
    b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 204 N\r\n\r\n",
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 5\r\n\r\nplain",
    b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
    b"HTTP/1.1 102 Processing\r\n\r\n",
    b"HTTP/1.1 304 Not Modified\r\nContent-Length: 10\r\n\r\n",
    b"HTTP/1.1 999 Odd\r\nContent-Length: 0\r\n\r\n",
)
# The small limits cut most of what comes; more than 64 bytes the oracle needs itself.
READINGS: Final = (
    Reading(success_bytes=ANSWER_LIMIT),
    JUST_STATUS,
    Reading(success_bytes=3, limit=80),
    Reading(limit=300),
    Reading(success_bytes=80, limit=80, only_whole=True),
    Reading(processing_is_final=True),
)
PIECES: Final = (
    b"\r\n",
    b"\n",
    b"\r",
    b"\x00",
    b"\xff",
    b": ",
    b"0\r\n\r\n",
    b"ffffffffffffffff\r\n",
    b"-1",
    b"99999999999999999999",
    b"Content-Length: ",
    b"Transfer-Encoding: chunked\r\n",
    b"Transfer-Encoding: gzip\r\n",
    b"Connection: close\r\n",
    b"HTTP/1.1 ",
    b" ",
    b"A" * 5000,
    b"X: y\r\n" * 2000,
)


class Case(NamedTuple):
    """data comes in pieces of these lengths; then the application closes, or breaks off."""

    data: bytes
    cuts: tuple[int, ...]
    breaks: bool
    again: bool  # a second request, if the connection allows one
    reading: Reading

    def pieces(self) -> list[bytes]:
        ends = [*self.cuts, len(self.data)]
        starts = [0, *self.cuts]
        return [self.data[a:b] for a, b in zip(starts, ends, strict=True) if a < b]


def case(number: int) -> Case:
    random = Random(number)
    data = random.choice(VALID)
    for _ in range(random.choice((0, 0, 1, 1, 2, 5))):
        data = spoiled(random, data, PIECES, VALID)
    if random.random() < 0.2:
        data += random.choice(VALID)
    if random.random() < 0.05:
        data = b"HTTP/1.1 100 Continue\r\n\r\n" + data
    count = random.choice((0, 1, 2, 10, len(data)))
    cuts = sorted(random.randrange(1, max(2, len(data))) for _ in range(min(count, 200)))
    if random.random() < 0.2:  # an answer in each piece
        cuts = [each.start() for each in re.finditer(b"HTTP/", data) if each.start()]
    breaks, again = random.random() < 0.3, random.random() < 0.5
    return Case(data, tuple(cuts), breaks, again, random.choice(READINGS))
