"""Log entries as they reach the stream."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from sidecar.logs import JsonFormatter, RateLimited, TextFormatter, set_up


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    """The root logger, put back as it was."""
    logger = logging.getLogger()
    before = (logger.handlers[:], logger.level)
    yield logger
    logging.captureWarnings(capture=False)
    logger.handlers[:], level = before
    logger.setLevel(level)


def entry(message: str, *args: object, **fields: Any) -> logging.LogRecord:
    return logging.getLogger("sidecar.x").makeRecord(
        "sidecar.x", logging.WARNING, "", 0, message, args, None, extra=fields
    )


def test_a_stream_gets_json_with_fields(root: logging.Logger) -> None:
    stream = io.StringIO()
    set_up("auto", "info", stream)
    logging.getLogger("sidecar.x").info("commit of %d", 3, extra={"route": "orders"})
    logging.getLogger("sidecar.x").debug("not asked for")
    (line,) = stream.getvalue().splitlines()
    told = json.loads(line)
    assert told.pop("time").endswith("Z")
    assert told == {
        "level": "info", "logger": "sidecar.x", "message": "commit of 3", "route": "orders",
    }  # fmt: skip


def test_a_terminal_gets_text_unless_json_is_asked_for(root: logging.Logger) -> None:
    for wanted, starts_with_brace in (("auto", False), ("json", True), ("text", False)):
        stream = Terminal()
        set_up(wanted, "info", stream)
        logging.getLogger("sidecar.x").info("hello", extra={"route": "orders"})
        assert stream.getvalue().startswith("{") is starts_with_brace
        assert "orders" in stream.getvalue()


def test_debug_does_not_tell_the_heads_of_requests(root: logging.Logger) -> None:
    """They hold keys and headers of records, and tokens."""
    stream = io.StringIO()
    set_up("json", "debug", stream)
    logging.getLogger("sidecar.x").debug("this is asked for")
    for library in ("hpack.hpack", "hpack.table", "httpcore.http2", "urllib3.connectionpool"):
        logging.getLogger(library).debug("authorization: Bearer secret")
    assert len(stream.getvalue().splitlines()) == 1


def test_a_failure_is_one_json_line_with_its_traceback() -> None:
    record = entry("it failed")
    error = RuntimeError("two\nlines")
    record.exc_info = (RuntimeError, error, None)
    line = JsonFormatter().format(record)
    assert "\n" not in line
    assert json.loads(line)["error"] == "RuntimeError: two\nlines"
    assert "RuntimeError" in json.loads(line)["traceback"]


@pytest.mark.parametrize(("level", "lines"), [(logging.WARNING, 1), (logging.ERROR, 2)])
def test_a_terminal_shows_the_traceback_of_errors_only(level: int, lines: int) -> None:
    record = entry("it failed")
    record.levelno = level
    record.exc_info = (RuntimeError, RuntimeError("why"), None)
    told = TextFormatter().format(record).splitlines()
    assert len(told) == lines
    assert told[0].endswith("it failed  error=RuntimeError: why")


@given(st.text(), st.text())
def test_an_entry_is_one_line_whatever_it_holds(message: str, value: str) -> None:
    record = entry("%s", message, field=value)
    for formatter in (JsonFormatter(), TextFormatter()):
        assert len(formatter.format(record).splitlines()) == 1
    assert json.loads(JsonFormatter().format(record))["field"] == value


def test_secrets_and_odd_objects_are_written_as_their_text() -> None:
    line = JsonFormatter().format(entry("login", token=SecretStr("hush"), some=object))
    assert "hush" not in line
    assert "hush" not in TextFormatter().format(entry("login", token=SecretStr("hush")))


def test_a_field_cannot_replace_the_message() -> None:
    assert json.loads(JsonFormatter().format(entry("true", level="fake")))["level"] == "warning"


class Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[str, int]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.told.append((record.getMessage(), getattr(record, "repeated", 0)))


class Limits:
    def __init__(self, max_keys: int = 256) -> None:
        self.now = 0.0
        logger = logging.getLogger("limited")
        logger.setLevel(logging.INFO)
        self.lines = Lines()
        logger.handlers = [self.lines]
        self.log = RateLimited(logger, 30, max_keys, lambda: self.now)

    def trouble(self, key: str = "a") -> bool:
        return self.log.limited(key, logging.WARNING, "trouble with %s", key)


def test_repeated_trouble_is_one_line_per_interval_with_a_count() -> None:
    limits = Limits()
    assert [limits.trouble() for _ in range(5)] == [True, False, False, False, False]
    limits.now = 29.9
    assert not limits.trouble()
    limits.now = 30.0
    assert limits.trouble()
    assert limits.lines.told == [("trouble with a", 0), ("trouble with a", 5)]


def test_different_trouble_is_told_at_once() -> None:
    limits = Limits()
    assert limits.trouble("a")
    assert limits.trouble("b")


def test_the_number_of_keys_is_bounded() -> None:
    """The key that was quiet longest is forgotten, so its trouble is told again."""
    limits = Limits(max_keys=2)
    for key in ("a", "b", "a", "c"):
        limits.trouble(key)
    assert not limits.trouble("a")
    assert limits.trouble("b")


def test_what_nobody_would_see_is_not_counted() -> None:
    limits = Limits()
    assert not limits.log.limited("a", logging.DEBUG, "detail")
    assert limits.trouble("a")
