"""Logs: one line each on standard error, JSON for machines or text for people.

Owner: the process sets them up once; modules log through the standard library and give fields
with `extra`. Invariants: an entry is one line whatever it holds; an object whose text hides a
secret stays hidden; the same trouble again and again is one line per interval, with a count.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, MutableMapping
from typing import Any, Final, TextIO

_OWN_FIELDS: Final = frozenset(
    {*logging.LogRecord("", 0, "", 0, "", (), None).__dict__, "message", "asctime", "taskName"}
)
# At debug these tell the heads of requests, so keys, headers of records, and tokens.
_TALKATIVE: Final = ("hpack", "h2", "httpcore", "httpx", "urllib3")
_CONTROL: Final = {
    code: rf"\x{code:02x}" for code in (*range(32), *range(127, 160), 0x2028, 0x2029)
} | {10: r"\n", 13: r"\r", 9: r"\t"}


def set_up(log_format: str, level: str, stream: TextIO | None = None) -> None:
    """Send everything that is logged to the stream, as "json", "text" or "auto" (by terminal)."""
    stream = sys.stderr if stream is None else stream
    text = log_format == "text" or (log_format == "auto" and stream.isatty())
    handler = logging.StreamHandler(stream)
    handler.setFormatter(TextFormatter() if text else JsonFormatter())
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)
    logging.captureWarnings(capture=True)
    for library in _TALKATIVE:
        logging.getLogger(library).setLevel(logging.INFO)


def level() -> str:
    """The least severe level that is written."""
    return logging.getLevelName(logging.getLogger().level).lower()


def set_level(name: str) -> None:
    logging.getLogger().setLevel(name.upper())


class JsonFormatter(logging.Formatter):
    """{"time", "level", "logger", "message", fields …, "error", "traceback"}"""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, Any] = {
            "time": _utc(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        entry.update((name, value) for name, value in _fields(record).items() if name not in entry)
        if record.exc_info and (error := record.exc_info[1]) is not None:
            entry["error"] = f"{type(error).__name__}: {error}"
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str, ensure_ascii=True)


class TextFormatter(logging.Formatter):
    """time LEVEL logger  message  field=value …; a traceback follows in the same line's wake."""

    def format(self, record: logging.LogRecord) -> str:
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        level = record.levelname[:4]
        line = f"{clock}.{int(record.msecs):03d} {level} {record.name}  {record.getMessage()}"
        fields = "".join(f"  {name}={value}" for name, value in _fields(record).items())
        if record.exc_info and (error := record.exc_info[1]) is not None:
            fields += f"  error={type(error).__name__}: {error}"
            if record.levelno >= logging.ERROR:
                # A person at a terminal reads a traceback better in its own lines.
                return (
                    (line + fields).translate(_CONTROL)
                    + "\n"
                    + self.formatException(record.exc_info)
                )
        return (line + fields).translate(_CONTROL)


_VARYING: Final = re.compile(r" \(after .*|\d+")


def gist(text: str) -> str:
    """What reports of one trouble have in common: no numbers, nothing from "(after 3 ms …" on."""
    return _VARYING.sub("", text)


class WithFields(logging.LoggerAdapter[logging.Logger]):
    """A logger that gives each entry the same fields, besides those of the entry."""

    def process(
        self, msg: Any, kwargs: MutableMapping[str, Any]
    ) -> tuple[Any, MutableMapping[str, Any]]:
        kwargs["extra"] = {**(self.extra or {}), **(kwargs.get("extra") or {})}
        return msg, kwargs


class RateLimited:
    """A logger for trouble that repeats: the first line at once, then one per interval.

    A key names one trouble (say ("commit", "orders")); keys that were quiet longest are forgotten
    beyond max_keys. May be called from any thread.
    """

    def __init__(
        self,
        logger: logging.Logger | logging.LoggerAdapter[logging.Logger],
        interval_seconds: float = 30.0,
        max_keys: int = 256,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._logger = logger
        self._interval = interval_seconds
        self._max_keys = max_keys
        self._clock = clock
        self._lock = threading.Lock()
        # key -> (when the next line is due, how many were held back)
        self._keys: OrderedDict[object, tuple[float, int]] = OrderedDict()

    def limited(
        self,
        key: object,
        level: int,
        message: str,
        *args: object,
        exc_info: BaseException | None = None,
    ) -> bool:
        """Log, or count it if the same key was logged lately; True if there is a line."""
        if not self._logger.isEnabledFor(level):
            return False
        with self._lock:
            now = self._clock()
            due, held = self._keys.pop(key, (now, 0))
            if now < due:
                self._keys[key] = (due, held + 1)
                return False
            self._keys[key] = (now + self._interval, 0)
            if len(self._keys) > self._max_keys:
                self._keys.popitem(last=False)
        extra = {"repeated": held} if held else None
        self._logger.log(level, message, *args, extra=extra, exc_info=exc_info)
        return True


def _fields(record: logging.LogRecord) -> dict[str, object]:
    return {name: value for name, value in record.__dict__.items() if name not in _OWN_FIELDS}


def _utc(record: logging.LogRecord) -> str:
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{seconds}.{int(record.msecs):03d}Z"
