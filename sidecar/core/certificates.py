"""When a certificate ends. Pure: reads the few bytes of X.509 that say so, and trusts nobody.

What is not understood is None: whoever makes the connection tells more.
"""

from __future__ import annotations

import binascii
import re
from base64 import b64decode
from datetime import UTC, datetime
from typing import Final

_PEM: Final = re.compile(r"-----BEGIN CERTIFICATE-----(.*?)-----END CERTIFICATE-----", re.DOTALL)
_SEQUENCE: Final = 0x30
_VERSION: Final = 0xA0
_UTC_TIME: Final = 0x17
_GENERALIZED_TIME: Final = 0x18


def not_after(pem: str) -> datetime | None:
    """The end of the first certificate of the text, which is the holder's own."""
    found = _PEM.search(pem)
    try:
        return None if found is None else _not_after(b64decode(found[1]))
    except (ValueError, IndexError, binascii.Error):
        return None


def _not_after(der: bytes) -> datetime | None:
    _, certificate, _ = _read(der, 0)
    _, signed, _ = _read(certificate, 0)
    kind, _, at = _read(signed, 0)
    if kind == _VERSION:
        _, _, at = _read(signed, at)  # the serial number
    for _ in ("algorithm", "issuer"):
        _, _, at = _read(signed, at)
    kind, validity, _ = _read(signed, at)
    if kind != _SEQUENCE:
        return None
    _, _, at = _read(validity, 0)
    kind, moment, _ = _read(validity, at)
    text = moment.decode("ascii")
    if kind == _UTC_TIME:  # two digits of the year: 1950 to 2049
        text = ("19" if text >= "50" else "20") + text
    elif kind != _GENERALIZED_TIME:
        return None
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)


def _read(data: bytes, at: int) -> tuple[int, bytes, int]:
    """The value that begins there: its kind, its content, and where it ends."""
    kind, length, at = data[at], data[at + 1], at + 2
    if length & 0x80:
        size = length & 0x7F
        length, at = int.from_bytes(data[at : at + size], "big"), at + size
    if at + length > len(data):
        raise ValueError("cut short")
    return kind, data[at : at + length], at + length
