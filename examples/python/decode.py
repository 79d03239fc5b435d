"""The Kafka record that a request of the sidecar carries."""

import json
from base64 import b64decode
from collections.abc import Sequence

Header = tuple[str, bytes | None]


def unwrap(text: bytes) -> bytes:
    return b64decode(text[1:-1]) if text.startswith(b":") else text


def decode(
    fields: Sequence[tuple[bytes, bytes]], body: bytes
) -> tuple[bytes | None, bytes | None, list[Header]]:
    """Key, value and headers; fields are the request's headers, names in lower case."""
    sent = dict(fields)
    key = unwrap(sent[b"kafka-key"]) if b"kafka-key" in sent else None
    value = None if b"kafka-tombstone" in sent else body
    headers: list[Header]
    if b"kafka-headers" in sent:
        pairs = json.loads(unwrap(sent[b"kafka-headers"]))
        headers = [(name, None if data is None else b64decode(data)) for name, data in pairs]
    else:
        prefix = b"kafka-header-"
        own = [(name[len(prefix) :], text) for name, text in fields if name.startswith(prefix)]
        headers = [(name.decode(), unwrap(text)) for name, text in own]
    return key, value, headers
