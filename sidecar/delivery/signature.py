"""Signed requests, by the Standard Webhooks scheme (symmetric, v1).

The id is the record's identity, so that it stays the same through retries; the time is that of
the attempt. A full stop separates what is signed, and the scheme relies on id and time to hold
none: in a topic's name it travels as %2E.
"""

from __future__ import annotations

import hmac
from binascii import b2a_base64
from collections.abc import Callable, Sequence

from sidecar.delivery.request import identity_of
from sidecar.model import Record


class Signer:
    """Signs with every key, so that the application may know any one of them."""

    __slots__ = ("_clock", "keys")

    def __init__(self, keys: Sequence[bytes], wall_clock: Callable[[], float]) -> None:
        self.keys = keys
        self._clock = wall_clock

    def __call__(self, record: Record, body: bytes) -> bytes:
        """The lines of the head that sign this attempt."""
        identity = identity_of(record).replace(".", "%2E").encode()
        moment = int(self._clock())
        signed = b"%b.%d.%b" % (identity, moment, body)
        signatures = b" ".join(
            [
                b"v1," + b2a_base64(hmac.digest(key, signed, "sha256"), newline=False)
                for key in self.keys
            ]
        )
        return b"webhook-id: %b\r\nwebhook-timestamp: %d\r\nwebhook-signature: %b\r\n" % (
            identity,
            moment,
            signatures,
        )
