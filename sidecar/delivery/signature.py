"""Signed requests, by the Standard Webhooks scheme (symmetric, v1).

The id is the record's identity, so that it stays the same through retries; the time is that of
the attempt. A full stop separates what is signed, and the scheme relies on id and time to hold
none: in a topic's name it travels as %2E.
"""

from __future__ import annotations

import hmac
from binascii import b2a_base64
from collections.abc import Callable, Sequence


class Signer:
    """Signs with every key, so that the application may know any one of them."""

    __slots__ = ("_clock", "keys")

    def __init__(self, keys: Sequence[bytes], wall_clock: Callable[[], float]) -> None:
        self.keys = keys
        self._clock = wall_clock

    def __call__(self, identity: str, body: bytes) -> bytes:
        """The lines of the head that sign this attempt; identity is what it delivers."""
        signed_id = identity.replace(".", "%2E").encode()
        moment = int(self._clock())
        signed = b"%b.%d.%b" % (signed_id, moment, body)
        signatures = b" ".join(
            [
                b"v1," + b2a_base64(hmac.digest(key, signed, "sha256"), newline=False)
                for key in self.keys
            ]
        )
        return b"webhook-id: %b\r\nwebhook-timestamp: %d\r\nwebhook-signature: %b\r\n" % (
            signed_id,
            moment,
            signatures,
        )
