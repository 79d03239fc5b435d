"""How bytes are spoiled: cut, joined, repeated, and strewn with pieces that mean something."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random


def spoiled(random: Random, data: bytes, pieces: Sequence[bytes], others: Sequence[bytes]) -> bytes:
    """The data with one thing done to it; others: what its end may be exchanged with."""
    at = random.randrange(len(data) + 1)
    to = min(len(data), at + random.choice((1, 2, 8, 40)))
    match random.randrange(6):
        case 0:
            return data[:at] + random.choice(pieces) + data[at:]
        case 1:
            return data[:at] + data[to:]
        case 2:
            return data[:at] + data[at:to] * random.choice((2, 3, 50)) + data[to:]
        case 3 if data:
            at = random.randrange(len(data))
            return data[:at] + bytes([random.randrange(256)]) + data[at + 1 :]
        case 4:
            other = random.choice(others)
            return data[:at] + other[random.randrange(len(other) + 1) :]
        case _:
            return data[:at] + random.randbytes(random.choice((1, 4, 60))) + data[at:]


def several(random: Random, data: bytes, pieces: Sequence[bytes], others: Sequence[bytes]) -> bytes:
    """Spoiled no times, once, or up to five times."""
    for _ in range(random.choice((0, 1, 1, 2, 5))):
        data = spoiled(random, data, pieces, others)
    return data
