"""Filters for dead letters as text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.core.letter_filters import date_of, key_text, parse_key, parse_moment


@given(st.binary() | st.text().map(str.encode) | st.just(b"base64:AA=="))
def test_every_key_can_be_asked_for(key: bytes) -> None:
    assert parse_key(key_text(key)) == key


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("90s", 910_000),
        ("0.5m", 970_000),
        ("2h", 1_000_000 - 7_200_000),
        ("1970-01-01T00:00:01Z", 1000),
        ("1970-01-01T01:00:01.5+01:00", 1500),
        ("1970-01-02", 86_400_000),
    ],
)
def test_times_are_moments_or_so_long_ago(text: str, moment: int) -> None:
    assert parse_moment(text, 1000.0) == moment


@pytest.mark.parametrize("text", ["", "yesterday", "5", "-5s", "1e9s", "٣s", "2026-02-30"])
def test_what_is_no_time_is_told_so(text: str) -> None:
    with pytest.raises(ValueError, match="neither a time"):
        parse_moment(text, 0.0)


@given(st.integers(-(2**63), 2**63))
def test_any_number_is_a_date_or_none(unix_ms: int) -> None:
    date = date_of(unix_ms)
    assert date is None or date.year <= 9999
