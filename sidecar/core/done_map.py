"""The done-map: what is settled above the watermark, told to the next owner in a commit.

It is a hint. A reader that cannot make sense of it, or finds that it was written for another
offset or another incarnation of the topic, ignores it and repeats some records.

Layout, version 1: the text "sc1:" and, in base85, one byte of flags, the distance from the
base (the committed offset) to the highest offset described as a varint, the outstanding
offsets, and a CRC-32. The outstanding offsets are either varint gaps (each from the offset
after the one before) or a bitmap with a bit for every offset from the base on, whichever says
more or, if both say everything, is shorter. The checksum also covers the base, the partition
and, where flagged, the topic's id, none of which is repeated in the text.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Sequence
from typing import NamedTuple

MAX_CHARACTERS = 3072

_PREFIX = "sc1:"
_BITMAP = 1
_TOPIC_ID = 2
_CRC_BYTES = 4
_MAX_BYTES = (MAX_CHARACTERS - len(_PREFIX)) * 4 // 5
_MAX_VARINT_BYTES = 9
_MOST = 2**63 - 1  # offsets have no more bits
_BODY_BYTES = _MAX_BYTES - 1 - _MAX_VARINT_BYTES - _CRC_BYTES


class DoneMap(NamedTuple):
    """Every offset up to highest that is not outstanding is done."""

    highest: int
    outstanding: frozenset[int]

    def is_done(self, offset: int) -> bool:
        return offset <= self.highest and offset not in self.outstanding


class Key(NamedTuple):
    """What a map is bound to; it reads as nothing under any other key."""

    topic: str
    partition: int
    topic_id: str


def encode(key: Key, base: int, outstanding: Sequence[int], highest: int) -> tuple[str, int]:
    """The map as text, and the highest offset it describes: less than asked if it was cut.

    outstanding is ascending and holds no offset below base. The text is "" (and the offset
    base - 1) where there is nothing to tell.
    """
    if highest < base:
        return "", base - 1
    gaps, gaps_highest = _encode_gaps(base, outstanding, highest)
    bits_highest = min(highest, base + _BODY_BYTES * 8 - 1)
    bits_length = (bits_highest - base) // 8 + 1
    use_bitmap = (bits_highest, -bits_length) > (gaps_highest, -len(gaps))
    described = bits_highest if use_bitmap else gaps_highest
    body = _encode_bits(base, outstanding, described) if use_bitmap else gaps
    flags = (_BITMAP if use_bitmap else 0) | (_TOPIC_ID if key.topic_id else 0)
    payload = bytes([flags]) + _varint(described - base) + body
    payload += _checksum(key, base, payload).to_bytes(_CRC_BYTES, "big")
    return _PREFIX + base64.b85encode(payload).decode("ascii"), described


def decode(text: str, key: Key, base: int) -> DoneMap | None:
    """The map for a partition whose committed offset is base, or None if it says nothing."""
    if not text.startswith(_PREFIX) or len(text) > MAX_CHARACTERS:
        return None
    try:
        payload = base64.b85decode(text[len(_PREFIX) :])
    except ValueError:
        return None
    if len(payload) < 1 + 1 + _CRC_BYTES:
        return None
    content, crc = payload[:-_CRC_BYTES], int.from_bytes(payload[-_CRC_BYTES:], "big")
    bound = key if content[0] & _TOPIC_ID else key._replace(topic_id="")
    if _checksum(bound, base, content) != crc:
        return None
    distance, at = _read_varint(content, 1)
    if base + distance > _MOST:
        return None
    if content[0] & _BITMAP:
        offsets = [
            base + 8 * byte + bit
            for byte, bits in enumerate(content[at:])
            for bit in range(8)
            if bits >> bit & 1
        ]
    else:
        offsets, following = [], base
        while at < len(content):
            gap, at = _read_varint(content, at)
            offsets.append(following + gap)
            following = offsets[-1] + 1
    return DoneMap(base + distance, frozenset(offsets))


def _encode_gaps(base: int, outstanding: Sequence[int], highest: int) -> tuple[bytes, int]:
    body = bytearray()
    following = base
    for offset in outstanding:
        if offset > highest:
            break
        gap = _varint(offset - following)
        if len(body) + len(gap) > _BODY_BYTES:
            return bytes(body), offset - 1
        body += gap
        following = offset + 1
    return bytes(body), highest


def _encode_bits(base: int, outstanding: Sequence[int], highest: int) -> bytes:
    bits = bytearray((highest - base) // 8 + 1)
    for offset in outstanding:
        if offset > highest:
            break
        bits[(offset - base) >> 3] |= 1 << ((offset - base) & 7)
    return bytes(bits)


def _checksum(key: Key, base: int, content: bytes) -> int:
    bound = f"{key.topic}\0{key.partition}\0{key.topic_id}\0{base}\0".encode()
    return zlib.crc32(content, zlib.crc32(bound))


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def _read_varint(content: bytes, at: int) -> tuple[int, int]:
    """The number at an index, and the index after it. The checksum vouches for the bytes."""
    number = shift = 0
    while at < len(content):
        byte = content[at]
        at += 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    return number, at
