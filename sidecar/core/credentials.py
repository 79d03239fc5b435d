"""What the sidecar shows an application to be known by: header lines and signing keys.

Nothing said here repeats a value: it may be a secret.
"""

from __future__ import annotations

import re
from binascii import Error, a2b_base64
from typing import Final

_is_token: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+").fullmatch
_is_field: Final = re.compile(r"(?:[!-~](?:[ -~]*[!-~])?)?").fullmatch
_is_bearer: Final = re.compile(r"[!-~]+").fullmatch

_FRAMING: Final = frozenset(
    ("connection", "content-length", "content-type", "host", "te", "trailer", "transfer-encoding")
)
_OWN: Final = frozenset(
    ("baggage", "expect", "idempotency-key", "pubsubname", "traceparent", "tracestate", "upgrade")
)
_OWN_BEGINNINGS: Final = ("__", "ce-", "kafka-", "sidecar-", "webhook-")

_CREDENTIAL: Final = re.compile(
    r"authorization|cookie|token|secret|passw|credential|signature|(api|access|auth|private)-?key"
    r"|(^|-)auth(-|$)"
)

_KEY_PREFIX: Final = "whsec_"
_KEY_BYTES: Final = range(24, 65)


def header_line(name: str, value: str) -> bytes:
    """A line of a request's head. Raises ValueError for what is none."""
    if not _is_token(name):
        raise ValueError(f"{name!r} is not a legal header name")
    if not _is_field(value):
        raise ValueError(
            f"the value of {name!r} is not a legal header: visible ASCII, with blanks inside only"
        )
    return f"{name}: {value}\r\n".encode("ascii")


def is_own_header(name: str) -> bool:
    """True for headers that the sidecar writes itself."""
    lowered = name.lower()
    return lowered in _FRAMING or lowered in _OWN or lowered.startswith(_OWN_BEGINNINGS)


def is_credential(name: str) -> bool:
    """True for headers that by their name hold what nobody else is to read."""
    return _CREDENTIAL.search(name.lower()) is not None


def bearer_value(token: str) -> str:
    """The value of Authorization. Raises ValueError."""
    if not _is_bearer(token):
        raise ValueError("a bearer token must hold visible ASCII without spaces, and not be empty")
    return f"Bearer {token}"


def signing_keys(text: str) -> tuple[bytes, ...]:
    """The keys of one or more Standard Webhooks secrets, blanks between. Raises ValueError."""
    keys = tuple(_signing_key(secret) for secret in text.split())
    if not keys:
        raise ValueError("a signing secret must not be empty")
    return keys


def _signing_key(secret: str) -> bytes:
    if not secret.startswith(_KEY_PREFIX):
        raise ValueError(f"a signing secret must begin with {_KEY_PREFIX}")
    try:
        key = a2b_base64(secret.removeprefix(_KEY_PREFIX).encode("ascii"), strict_mode=True)
    except (Error, UnicodeEncodeError):
        raise ValueError(f"a signing secret must be base64 after {_KEY_PREFIX}") from None
    if len(key) not in _KEY_BYTES:
        raise ValueError(
            f"a signing secret must hold {_KEY_BYTES[0]} to {_KEY_BYTES[-1]} bytes, not {len(key)}"
        )
    return key
