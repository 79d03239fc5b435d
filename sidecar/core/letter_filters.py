"""Filters for dead letters as people write them: times and keys as text.

Pure: what the command line and the admin surface take alike. Everything raises ValueError, with a
sentence for whoever wrote the text.
"""

from __future__ import annotations

import base64
import re
from datetime import UTC, datetime
from typing import Final

KEY_PREFIX: Final = "base64:"
AGO: Final = r"[0-9]{1,9}(\.[0-9]{1,3})?[smhdw]"

_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def parse_key(text: str) -> bytes:
    """Text stands for its UTF-8; any other bytes are base64:…"""
    if not text.startswith(KEY_PREFIX):
        return text.encode("utf-8", "surrogateescape")
    try:
        return base64.b64decode(text[len(KEY_PREFIX) :], validate=True)
    except ValueError:
        raise ValueError(f"{text!r} is not base64") from None


def key_text(key: bytes) -> str:
    """What parse_key reads as this key."""
    try:
        text = key.decode()
    except UnicodeDecodeError:
        text = KEY_PREFIX
    return KEY_PREFIX + base64.b64encode(key).decode() if text.startswith(KEY_PREFIX) else text


def parse_moment(text: str, now: float) -> int:
    """Unix milliseconds of a time, or of so long before now, which is in Unix seconds."""
    if re.fullmatch(AGO, text, re.ASCII):
        return round((now - float(text[:-1]) * _SECONDS[text[-1]]) * 1000)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"{text!r} is neither a time (2026-05-01T12:00Z; without a zone: UTC) nor so long ago"
            " (90s, 2h, 7d)"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def date_of(unix_ms: int) -> datetime | None:
    """None where it is not known, or is no time that a calendar has."""
    if unix_ms < 0:
        return None
    try:
        return datetime.fromtimestamp(unix_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return None
