"""Records that are hard to carry: every byte and every name that has broken something.

A case is (key, value, headers). What a service must have decoded is the case itself; only the
names of headers that came as HTTP headers are compared without case.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from sidecar.model import Header

TRACE: Final = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
ALL_BYTES: Final = bytes(range(256))
TEN_KB: Final = bytes(range(256)) * 40


class Case(NamedTuple):
    name: str
    key: bytes | None = b"k"
    value: bytes | None = b"v"
    headers: tuple[Header, ...] = ()


# Each goes out as a key and as a header of a plain name.
BYTES: Final = {
    "empty": b"",
    "plain": b"customer 1",
    "comma": b"a, b,,c;d=\"e\" 'f'",
    "percent": b"100%25 %d %s",
    "colon": b":",
    "colon first": b":looks/like+base64==:",
    "colon last": b"a:",
    "leading space": b" lead",
    "trailing space": b"trail ",
    "tab": b"tab\there",
    "line feed": b"a\nX-Injected: 1",
    "carriage return": b"a\r\nX-Injected: 1\r\n\r\nGET / HTTP/1.1",
    "NUL": b"\x00",
    "DEL": b"\x7f",
    "all bytes": ALL_BYTES,
    "UTF-8": "Кириллица 漢字 \U0001f600".encode(),
    "broken UTF-8": b"\xc3\x28",
    "Latin-1": b"caf\xe9",
    "Avro": b"\x00\x00\x01\x86\xa0H5",
    "10 kB": b"x" * 10_000,
}

# Names that HTTP cannot carry, that mean something to it, or that JSON has to escape.
NAMES: Final = (
    "",
    " ",
    "with space",
    "Ünï",
    "\U0001f600",
    "urn:x:claims/name",
    "under_score",
    "dot.ted",
    "x\r\nInjected: 1",
    "NUL \x00",
    'quote"back\\slash/',
    "],[",
    '"],["',
    "\\u0041",
    "\\n",
    "\u2028",
    "__proto__",
    "Content-Length",
    "Transfer-Encoding",
    "Host",
    "Connection",
    "Expect",
    "Upgrade",
    "Trailer",
    "TE",
    "Content-Encoding",
    "Content-Type",
    "Cookie",
    "Authorization",
    "X-Forwarded-For",
    "Kafka-Key",
    "Kafka-Headers",
    "Kafka-Tombstone",
    "Idempotency-Key",
    "s",
    "-",
    "0",
    "length",
    "constructor",
    "UPPER",
    "MiXed-cAse",
)

CASES: Final = (
    *(
        Case(f"key {key!r}, value {value!r}", key, value)
        for key in (None, b"")
        for value in (None, b"")
    ),
    *(Case(f"key: {name}", content) for name, content in BYTES.items()),
    *(Case(f"header: {name}", headers=(("h", content),)) for name, content in BYTES.items()),
    *(Case(f"name: {name!r}", headers=((name, b"1"), ("x", b"2"))) for name in NAMES),
    Case("all names", headers=tuple((name, name.encode()) for name in NAMES)),
    Case("binary value", value=TEN_KB),
    Case("value that looks like a request", value=b"0\r\n\r\nPOST / HTTP/1.1\r\n\r\n"),
    Case("value of a megabyte", value=TEN_KB * 100),
    Case("value that looks carried", value=b":YQ==:"),
    Case("repeated", headers=(("a", b"1"), ("b", b"2"), ("a", b"3"), ("A", b"4"), ("a", b""))),
    Case("repeated, with commas", headers=(("a", b"1,2"), ("a", b"3"), ("a", b", "))),
    Case("repeated, null between", headers=(("a", b"1"), ("b", None), ("a", b"3"), ("a", None))),
    Case("null", headers=(("a", None),)),
    Case("null and empty", headers=(("a", None), ("a", b""), ("b", b""))),
    Case("trace of a tombstone", b"k1", None, (("traceparent", TRACE), ("baggage", b"a=1"))),
    Case("own type", headers=(("content-type", b'text/plain; charset="utf-8"'),)),
    Case(
        "form", value=b"a=1&b=2", headers=(("content-type", b"application/x-www-form-urlencoded"),)
    ),
    Case("multipart", value=b"--", headers=(("content-type", b"multipart/form-data; boundary=x"),)),
    Case("JSON that is none", value=b"{", headers=(("content-type", b"application/json"),)),
    Case("long names", headers=(("n" * 200, b"1"), ("é" * 700, b"2"), ('"' * 2_000, b"3"))),
    Case("many", headers=tuple((f"h{number}", b"%d" % number) for number in range(600))),
)
