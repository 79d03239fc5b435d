"""Dead letters as text and as JSON. Bytes are shown as text where they are text, else in base64.

Whoever can write to the topic wrote any of it, so all of it is made printable for a terminal.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from sidecar.cli.printable import printable
from sidecar.core.letter_filters import date_of
from sidecar.core.letters import Letter

_COLUMNS: Final = "{:<12}  {:<20}  {:<16}  {:>6}  {:>8}  {:<28}  {}"


def header_line() -> str:
    return _COLUMNS.format("LETTER", "PARKED", "REASON", "STATUS", "ATTEMPTS", "ORIGIN", "KEY")


def letter_line(letter: Letter) -> str:
    line = _COLUMNS.format(
        f"{letter.partition}/{letter.offset}",
        moment(letter.parked_ms) or "-",
        letter.reason,
        "-" if letter.status is None else letter.status,
        letter.attempts or "-",
        str(letter.origin or "-"),
        "-" if letter.key is None else _shown(letter.key),
    )
    return printable(f"{line}  (redriven)" if letter.redriven else line)


def letter_text(letter: Letter) -> str:
    """Everything about one, payload included."""
    lines = [
        ("letter", str(letter)),
        ("origin", str(letter.origin) if letter.origin else None),
        ("timestamp", moment(letter.origin.timestamp_ms) if letter.origin else None),
        ("parked", moment(letter.parked_ms)),
        ("redriven", "yes" if letter.redriven else "no"),
        ("group", letter.group or None),
        ("reason", letter.reason),
        ("detail", letter.detail or None),
        ("status", letter.status),
        ("attempts", letter.attempts or None),
        ("first attempt", moment(letter.first_attempt_ms)),
        ("last attempt", moment(letter.last_attempt_ms)),
        ("answer", _shown(letter.answer) if letter.answer else None),
        ("key", "null" if letter.key is None else _shown(letter.key)),
        *((f"header {name}", "null" if value is None else _shown(value))
          for name, value in letter.headers),
        ("value", "null" if letter.value is None else _shown(letter.value)),
    ]  # fmt: skip
    return "\n".join(printable(f"{name:<14} {text}") for name, text in lines if text is not None)


def letter_json(letter: Letter, *, payload: bool = False) -> dict[str, Any]:
    """payload: own headers, value and the application's answer as well."""
    origin = letter.origin
    told: dict[str, Any] = {
        "topic": letter.topic,
        "partition": letter.partition,
        "offset": letter.offset,
        "parked": moment(letter.parked_ms),
        "redriven": letter.redriven,
        "origin": None
        if origin is None
        else {
            "topic": origin.topic,
            "partition": origin.partition,
            "offset": origin.offset,
            "timestamp": moment(origin.timestamp_ms),
        },
        "group": letter.group or None,
        "reason": letter.reason,
        "detail": letter.detail or None,
        "status": letter.status,
        "attempts": letter.attempts or None,
        "first_attempt": moment(letter.first_attempt_ms),
        "last_attempt": moment(letter.last_attempt_ms),
        "key": plain(letter.key),
    }
    if payload:
        told["answer"] = plain(letter.answer)
        told["headers"] = [[name, plain(value)] for name, value in letter.headers]
        told["value"] = plain(letter.value)
    return told


def count_lines(counted: Counter[str | int | bytes | None]) -> Iterator[str]:
    for what, number in counted.most_common():
        name = _shown(what) if isinstance(what, bytes) else "-" if what is None else str(what)
        yield printable(f"{number:>9}  {name}")
    yield f"{counted.total():>9}  in all"


def plain(value: str | int | bytes | None) -> Any:
    """As JSON: bytes as text, or as {"base64": …} where they are none."""
    if not isinstance(value, bytes):
        return value
    text = _text(value)
    return {"base64": base64.b64encode(value).decode()} if text is None else text


def moment(unix_ms: int) -> str | None:
    date = date_of(unix_ms)
    return None if date is None else date.strftime("%Y-%m-%dT%H:%M:%SZ")


def _shown(value: bytes) -> str:
    text = _text(value)
    return f"base64:{base64.b64encode(value).decode()}" if text is None else text


def _text(value: bytes) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None
