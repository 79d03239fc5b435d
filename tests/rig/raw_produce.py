"""A record with header names that no client library writes: a Produce request by hand.

Kafka protocol: Produce version 3 (KIP-98), record batch of magic 2.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence

_CASTAGNOLI = 0x82F63B78


def produce_raw(
    address: str, topic: str, partition: int, value: bytes, headers: Sequence[tuple[bytes, bytes]]
) -> None:
    """One record to the leader at this address; raises OSError if it refuses."""
    host, _, port = address.rpartition(":")
    batch = _batch(_record(value, headers))
    body = struct.pack(">hhi", -1, -1, 10_000)  # no transaction, acks=all, timeout
    body += struct.pack(">i", 1) + _text(topic.encode())
    body += struct.pack(">iii", 1, partition, len(batch)) + batch
    request = struct.pack(">hhi", 0, 3, 1) + _text(b"rig") + body
    with socket.create_connection((host.rpartition("/")[2], int(port)), 10) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        answer = connection.makefile("rb")
        (length,) = struct.unpack(">i", answer.read(4))
        told = answer.read(length)
    at = 4 + 4 + 2 + len(topic) + 4 + 4  # correlation, one topic and its name, one partition
    (error,) = struct.unpack_from(">h", told, at)
    if error:
        raise OSError(f"the broker refused the record with error {error}")


def _text(value: bytes) -> bytes:
    return struct.pack(">h", len(value)) + value


def _varint(value: int) -> bytes:
    value = value << 1 ^ value >> 63  # zigzag
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _bytes(value: bytes) -> bytes:
    return _varint(len(value)) + value


def _record(value: bytes, headers: Sequence[tuple[bytes, bytes]]) -> bytes:
    told = b"\x00" + _varint(0) + _varint(0)  # attributes, timestamp and offset from the batch's
    told += _varint(-1) + _bytes(value) + _varint(len(headers))
    told += b"".join(_bytes(name) + _bytes(content) for name, content in headers)
    return _bytes(told)


def _batch(record: bytes) -> bytes:
    times = struct.pack(">qq", 1_700_000_000_000, 1_700_000_000_000)
    sealed = struct.pack(">hi", 0, 0) + times + struct.pack(">qhi", -1, -1, -1)
    sealed += struct.pack(">i", 1) + record
    behind = struct.pack(">ib", -1, 2) + struct.pack(">I", _crc32c(sealed)) + sealed
    return struct.pack(">qi", 0, len(behind)) + behind


def _crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (_CASTAGNOLI if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF
