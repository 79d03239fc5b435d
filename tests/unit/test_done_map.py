"""The done-map: what one owner writes is what the next one reads, or nothing at all."""

from __future__ import annotations

import base64
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.core import done_map
from sidecar.core.done_map import MAX_CHARACTERS, DoneMap, Key

KEY = Key("orders", 3, "u4WPq1x3T0mS8m0ShUMe8g")
BASES = st.integers(0, 2**62)


def crafted(content: bytes, key: Key = KEY, base: int = 0) -> str:
    """A map with this content and a checksum that vouches for it."""
    bound = f"{key.topic}\0{key.partition}\0{key.topic_id}\0{base}\0".encode()
    crc = zlib.crc32(content, zlib.crc32(bound)).to_bytes(4, "big")
    return "sc1:" + base64.b85encode(content + crc).decode()


@given(
    base=BASES,
    steps=st.lists(st.one_of(st.integers(1, 3), st.integers(1, 10**6)), max_size=80),
    beyond=st.integers(0, 500),
)
def test_what_fits_is_read_back_as_it_was_written(base: int, steps: list[int], beyond: int) -> None:
    outstanding, at = [], base - 1
    for step in steps:
        at += step
        outstanding.append(at)
    highest = at + beyond
    text, described = done_map.encode(KEY, base, outstanding, highest)
    if highest < base:
        assert (text, described) == ("", base - 1)
        return
    assert described == highest
    assert done_map.decode(text, KEY, base) == DoneMap(highest, frozenset(outstanding))


@given(
    base=BASES,
    density=st.integers(1, 40),
    count=st.integers(2_000, 6_000),
)
def test_what_does_not_fit_is_cut_from_the_top(base: int, density: int, count: int) -> None:
    """The map stays true up to the offset that it says it describes, and within its size."""
    outstanding = list(range(base, base + count * density, density))
    highest = outstanding[-1] + 100_000
    text, described = done_map.encode(KEY, base, outstanding, highest)
    assert len(text) <= MAX_CHARACTERS
    assert text.isascii()
    assert base <= described <= highest
    expected = frozenset(offset for offset in outstanding if offset <= described)
    assert done_map.decode(text, KEY, base) == DoneMap(described, expected)


@pytest.mark.parametrize(
    ("outstanding", "highest"),
    [
        pytest.param([0], 10**15, id="one stuck head, any span"),
        pytest.param(list(range(0, 19_000, 2)), 19_000, id="every second one: a bitmap"),
        pytest.param(list(range(0, 10**7, 10**4)), 10**7, id="a thousand far apart: gaps"),
    ],
)
def test_what_is_worth_telling_fits_whole(outstanding: list[int], highest: int) -> None:
    text, described = done_map.encode(KEY, 0, outstanding, highest)
    assert described == highest
    assert len(text) <= MAX_CHARACTERS
    assert done_map.decode(text, KEY, 0) == DoneMap(highest, frozenset(outstanding))


def test_of_two_ways_to_say_everything_the_shorter_is_taken() -> None:
    few, _ = done_map.encode(KEY, 0, [0], 3_000)
    many, _ = done_map.encode(KEY, 0, list(range(0, 3_000, 2)), 3_000)
    assert len(few) < 30
    assert len(many) < 3_000 / 8 * 5 / 4 + 30


@pytest.mark.parametrize(
    ("key", "base"),
    [
        pytest.param(KEY, 101, id="other committed offset"),
        pytest.param(KEY._replace(topic_id="AAAAAAAAAAAAAAAAAAAAAA"), 100, id="topic made anew"),
        pytest.param(KEY._replace(topic_id=""), 100, id="the broker gives no id any more"),
        pytest.param(KEY._replace(topic="other"), 100, id="other topic"),
        pytest.param(KEY._replace(partition=4), 100, id="other partition"),
    ],
)
def test_it_says_nothing_where_it_was_not_written_for(key: Key, base: int) -> None:
    text, _ = done_map.encode(KEY, 100, [100, 107], 120)
    assert done_map.decode(text, KEY, 100) is not None
    assert done_map.decode(text, key, base) is None


def test_a_map_from_a_broker_without_topic_ids_is_still_read_after_its_upgrade() -> None:
    text, _ = done_map.encode(KEY._replace(topic_id=""), 100, [100], 120)
    assert done_map.decode(text, KEY, 100) == DoneMap(120, frozenset([100]))


@given(text=st.one_of(st.text(max_size=60), st.text(max_size=60).map("sc1:".__add__)))
def test_garbage_is_ignored(text: str) -> None:
    assert done_map.decode(text, KEY, 5) is None


@given(content=st.binary(min_size=2, max_size=80), base=BASES)
def test_content_that_makes_no_sense_never_raises(content: bytes, base: int) -> None:
    """Not even if the checksum vouches for it, as a later version's might."""
    flagged = crafted(content, KEY if content[0] & 2 else KEY._replace(topic_id=""), base)
    found = done_map.decode(flagged, KEY, base)
    assert found is None or (found.highest >= base and min(found.outstanding, default=base) >= base)


@given(data=st.data())
def test_a_changed_character_makes_it_unreadable(data: st.DataObject) -> None:
    text, _ = done_map.encode(KEY, 100, [100, 107, 300], 4_000)
    at = data.draw(st.integers(0, len(text) - 1))
    other = data.draw(st.characters().filter(lambda character: character != text[at]))
    assert done_map.decode(text[:at] + other + text[at + 1 :], KEY, 100) is None
    assert done_map.decode(text[:at], KEY, 100) is None


def test_a_text_that_is_too_long_is_not_looked_at() -> None:
    key = KEY._replace(topic_id="")
    for length, readable in ((2_000, True), (MAX_CHARACTERS, False)):
        text = crafted(b"\0\1" + b"\1" * length, key)
        assert (done_map.decode(text, KEY, 0) is not None) == readable
