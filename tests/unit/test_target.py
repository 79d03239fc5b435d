"""A target is one line that is understood or refused with a reason."""

from __future__ import annotations

import re

import pytest

from sidecar.core.target import Scheme, Target, parse_target, target_pattern

UNDERSTOOD: list[tuple[str, Target, str]] = [
    (
        "http://127.0.0.1:8080/events/{topic}",
        Target(Scheme.HTTP, "127.0.0.1", 8080, "", "/events/{topic}"),
        "127.0.0.1:8080",
    ),
    ("http://app/x", Target(Scheme.HTTP, "app", 80, "", "/x"), "app"),
    ("HTTP://app", Target(Scheme.HTTP, "app", 80, "", "/"), "app"),
    ("https://app?a={topic}", Target(Scheme.HTTPS, "app", 443, "", "/?a={topic}"), "app"),
    ("https://a.b.:444/", Target(Scheme.HTTPS, "a.b.", 444, "", "/"), "a.b.:444"),
    ("http://[::1]:81/x", Target(Scheme.HTTP, "::1", 81, "", "/x"), "[::1]:81"),
    (
        "unix:///run/app.sock:/events/{topic}",
        Target(Scheme.UNIX, "localhost", 0, "/run/app.sock", "/events/{topic}"),
        "localhost",
    ),
    ("unix:///a", Target(Scheme.UNIX, "localhost", 0, "/a", "/"), "localhost"),
]


@pytest.mark.parametrize(("text", "target", "authority"), UNDERSTOOD)
def test_a_target_is_understood(text: str, target: Target, authority: str) -> None:
    assert parse_target(text) == target
    assert target.authority == authority
    assert parse_target(str(target)) == target


REFUSED: list[tuple[str, str]] = [
    ("", "begins with http"),
    ("app:8080/x", "begins with http"),
    ("ftp://app/", "begins with http"),
    ("http:///x", "host is missing"),
    ("http://user:pass@app/", "no user or password"),
    ("http://app/#part", "no fragment"),
    ("http://{topic}/", "not in the host"),
    ("unix:///run/{topic}.sock:/", "not in the socket's name"),
    ("http://app/{key}", "only placeholder"),
    ("http://app/{topic", "only placeholder"),
    ("http://app/a b", "escape it"),
    ("http://app/ä", "escape it"),
    ("http://app/a\r\nX: 1", "escape it"),
    ("http://app:0/", "not a port"),
    ("http://app:65536/", "not a port"),
    ("http://app:/", "not host or host:port"),
    ("http://::1/", "not host or host:port"),
    ("http://[::g]/", "not host or host:port"),
    ("http://[1::2::3]/", "not an IPv6 address"),
    ("http://a..b/", "not a host name"),
    ("http://-a/", "not a host name"),
    (f"http://{'a' * 64}/", "not a host name"),
    ("unix://run/app.sock:/", "absolute socket path"),
    ("unix:///run/app.sock:events", "begins with /"),
    (f"unix:///{'a' * 107}:/", "at most 107 bytes"),
]


@pytest.mark.parametrize(("text", "reason"), REFUSED)
def test_a_target_that_cannot_be_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_target(text)


def test_the_pattern_takes_what_is_understood_and_leaves_nothing_to_the_parser_but_ipv6() -> None:
    pattern = target_pattern()
    assert [text for text, _, _ in UNDERSTOOD if not re.fullmatch(pattern, text)] == []
    assert [text for text, _ in REFUSED if re.fullmatch(pattern, text)] == ["http://[1::2::3]/"]
    health = target_pattern(placeholder=False)
    assert re.fullmatch(health, "http://app/healthz?a=1")
    assert not re.fullmatch(health, "http://app/{topic}")
