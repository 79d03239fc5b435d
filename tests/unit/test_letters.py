"""Dead letters as they are read, what filters take, and how they are shown."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from sidecar.cli.letter_text import count_lines, letter_json, letter_line, letter_text
from sidecar.core.letters import OTHERS, By, Letter, Origin, Selection, counted, read_letter
from sidecar.core.retry_mark import RetryMark
from sidecar.kafka.dead_letters import told_headers
from sidecar.model import Assignment, Header, Partition, Record
from sidecar.ports import Story

OWN: list[Header] = [("a", b"1"), ("b", None), ("a", b"2")]
STORY = Story("timeout", "deadline", 504, 3, 1.5, 2.25, b"no \xff")


def headers(own: list[Header] = OWN, story: Story = STORY, timestamp_ms: int = 7) -> list[Header]:
    record = Record(Assignment(Partition("orders", 2), 1), 17, timestamp_ms, None, None, own, 0)
    return told_headers(record, story, "billing")


def letter(found: list[Header] | None = None, **more: Any) -> Letter:
    given: dict[str, Any] = {"key": b"k", "value": b"v", "parked_ms": 5000, **more}
    return read_letter("dlq", 0, 9, headers=headers() if found is None else found, **given)


def test_a_letter_is_what_was_written() -> None:
    found = letter()
    assert found == Letter(
        "dlq", 0, 9, 5000, b"k", b"v", OWN, Origin("orders", 2, 17, 7), "billing", "timeout",
        "deadline", 504, 3, 1500, 2250, b"no \xff",
    )  # fmt: skip
    assert found.mark() == RetryMark("orders", 2, 17, 7, 3, 1500, 0)
    assert str(found) == "dlq/0/9"
    assert str(found.origin) == "orders/2/17"


def test_what_is_not_told_is_unknown() -> None:
    found = letter(headers(timestamp_ms=-1, story=STORY._replace(status=None, answer=b"")))
    assert found.origin == Origin("orders", 2, 17, -1)
    assert (found.status, found.answer) == (None, b"")
    assert found.mark().timestamp_ms == -1


@pytest.mark.parametrize(
    "found",
    [
        [],
        [("x", b"y")],
        [each for each in headers() if each[0] != "sidecar-dlq-topic"],
        [*headers(), ("sidecar-dlq-offset", b"-1")],
        [*headers(), ("sidecar-dlq-offset", None)],
        [*headers(), ("sidecar-dlq-partition", b"\xb2")],
        [*headers(), ("sidecar-dlq-partition", b"9" * 50)],
    ],
    ids=repr,
)
def test_what_no_sidecar_wrote_has_no_origin(found: list[Header]) -> None:
    foreign = letter(found)
    assert foreign.origin is None
    assert foreign.reason == "unknown"
    assert all(not name.startswith("sidecar-dlq-") for name, _ in foreign.headers)
    assert By.TOPIC.of(foreign) is None


@pytest.mark.parametrize(
    ("selection", "takes"),
    [
        (Selection(), True),
        (Selection(reasons=frozenset({"timeout", "x"})), True),
        (Selection(reasons=frozenset({"x"})), False),
        (Selection(statuses=(range(500, 600),)), True),
        (Selection(statuses=(range(400, 500), range(504, 505))), True),
        (Selection(statuses=(range(400, 500),)), False),
        (Selection(keys=frozenset({b"k"})), True),
        (Selection(keys=frozenset({b"x"})), False),
        (Selection(topics=frozenset({"orders"})), True),
        (Selection(topics=frozenset({"dlq"})), False),
        (Selection(since_ms=5000, until_ms=5001), True),
        (Selection(since_ms=5001), False),
        (Selection(until_ms=5000), False),
        (Selection(reasons=frozenset({"timeout"}), keys=frozenset({b"x"})), False),
    ],
)
def test_a_selection_takes_what_fits_everything(selection: Selection, takes: bool) -> None:
    assert selection.takes(letter()) is takes


def test_what_was_redriven_is_taken_only_when_asked_for() -> None:
    assert not Selection().takes(letter(redriven=True))
    assert Selection(redriven=True).takes(letter(redriven=True))
    assert Selection(redriven=True).takes(letter())


def test_letters_without_a_status_or_key_fit_no_such_filter() -> None:
    bare = letter([], key=None)
    assert not Selection(statuses=(range(100, 600),)).takes(bare)
    assert not Selection(keys=frozenset({b""})).takes(bare)
    assert not Selection(topics=frozenset({""})).takes(bare)
    assert Selection(reasons=frozenset({"unknown"})).takes(bare)


def test_bytes_on_a_terminal_do_nothing() -> None:
    hostile = letter(key=b"a\x1b[2J\nb", value=b"\xff")
    assert r"a\x1b[2J\nb" in letter_line(hostile)
    assert letter_text(hostile).splitlines()[-1] == f"{'value':<14} base64:/w=="
    assert "\x1b" not in letter_text(hostile)


def test_what_others_wrote_of_a_letter_does_nothing_either() -> None:
    """Anybody who may write to the topic may have made up its story."""
    escape = "\x1b]0;x\x07\nkey  fake"
    made_up = replace(
        letter(),
        reason=escape,
        detail=escape,
        group=escape,
        origin=Origin(escape, 0, 1, -1),
        headers=[(escape, b"")],
    )
    shown = [letter_line(made_up), *letter_text(made_up).split("\n")]
    shown += count_lines(Counter({escape: 1}))
    assert all(line.isprintable() for line in shown)
    assert sum(line.startswith("key ") for line in shown) == 1


def test_json_tells_bytes_text_and_null_apart() -> None:
    told = letter_json(letter(key=None, value=b"\xff"), payload=True)
    assert told["key"] is None
    assert told["value"] == {"base64": "/w=="}
    assert told["headers"] == [["a", "1"], ["b", None], ["a", "2"]]
    assert told["answer"] == {"base64": "bm8g/w=="}
    assert json.dumps(told)
    assert "value" not in letter_json(letter())


def test_times_beyond_any_calendar_are_left_out() -> None:
    assert letter_json(letter(parked_ms=10**18))["parked"] is None


def test_values_without_end_are_counted_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever writes to the topic chooses the keys: they must not fill the memory."""
    monkeypatch.setattr("sidecar.core.letters.ROOM_BYTES", 2000)
    keys = [b"k", *(b"%d" % number for number in range(100)), b"x" * 5000, b"k"]
    letters = [read_letter("d", 0, 0, 0, key, None, None) for key in keys]
    counts = counted(letters, By.KEY)
    assert counts.total() == len(keys)
    assert counts[b"k"] == 2
    assert counts[OTHERS] > 80
    assert sum(len(each) for each in counts if isinstance(each, bytes)) < 2000
