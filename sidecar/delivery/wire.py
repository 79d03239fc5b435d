"""Delivery over HTTP/1.1, by TCP (with TLS or without) or a Unix socket: the fast path.

Owned by a route, on the event loop. Every slot owns one connection and replaces it when it was
idle for longer than idle_seconds: application servers close idle connections, and a request that
lands on a closing one may or may not have been processed.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from sidecar.core.target import Target
from sidecar.delivery.connection import JUST_NOW, JUST_STATUS, Connection, Done, LastAnswer, Reading
from sidecar.delivery.opening import open_transport
from sidecar.delivery.probe import Probe
from sidecar.delivery.request import RequestEncoder, Unsendable
from sidecar.model import Failed, FailureKind, Record

_CLOSE_SECONDS: Final = 1.0


class WireSlot:
    """Implements ports.Slot."""

    __slots__ = (
        "_connection",
        "_delivery",
        "_encode",
        "_encode_batch",
        "_idle_seconds",
        "_time",
        "_unsendable",
    )

    def __init__(
        self, delivery: WireDelivery, encoder: RequestEncoder, idle_seconds: float
    ) -> None:
        self._delivery: Final = delivery
        self._encode: Final = encoder.encode
        self._encode_batch: Final = encoder.encode_batch
        self._idle_seconds: Final = idle_seconds
        self._time: Final = delivery.loop.time
        self._connection: Connection | None = None
        self._unsendable: asyncio.Handle | None = None

    def send(self, record: Record, attempt: int, done: Done) -> None:
        try:
            head, body = self._encode(record, attempt)
        except Unsendable as error:
            self._refuse(error, done)
            return
        # Not by a method of its own: this runs for every record.
        connection = self._connection
        if connection is None or connection.fresh_since is not JUST_NOW:
            connection = self._fresh()
        connection.request(head, body, done)

    def send_batch(self, batch: Sequence[tuple[Record, int]], done: Done) -> None:
        try:
            head, body = self._encode_batch(batch)
        except Unsendable as error:
            self._refuse(error, done)
            return
        self._fresh().request(head, body, done)

    def _refuse(self, error: Unsendable, done: Done) -> None:
        failed = Failed(FailureKind.UNSENDABLE, str(error), sent=False)
        self._unsendable = self._delivery.loop.call_soon(done, failed)

    def _fresh(self) -> Connection:
        """The connection, or a new one in place of one that may not be used any more."""
        connection = self._connection
        since = None if connection is None else connection.fresh_since
        if (
            connection is not None
            and since is not None
            and (since is JUST_NOW or self._time() - since < self._idle_seconds)
        ):
            return connection
        return self._renew()

    def _renew(self) -> Connection:
        if self._connection is not None:
            self._connection.abort()
        self._connection = self._delivery.connect()
        return self._connection

    def abort(self) -> bool:
        if self._unsendable is not None:
            self._unsendable.cancel()
            self._unsendable = None
        connection, self._connection = self._connection, None
        return connection is not None and connection.abort()

    def close(self) -> None:
        self.abort()


class WireDelivery:
    """Implements ports.Delivery. tls is for https:// targets."""

    def __init__(
        self,
        target: Target,
        encoder: RequestEncoder,
        loop: asyncio.AbstractEventLoop,
        *,
        idle_seconds: float,
        probe: Probe,
        tls: ssl.SSLContext | None = None,
        reading: Reading = JUST_STATUS,
    ) -> None:
        self.loop: Final = loop
        self._target: Final = target
        self._encoder: Final = encoder
        self._idle_seconds: Final = idle_seconds
        self._probe: Final = probe
        self._tls: Final = tls
        self._reading: Final = reading
        self._last: Final = LastAnswer()
        self._connections: Final[set[Connection]] = set()
        self._all_gone: Final = asyncio.Event()

    def open_slot(self) -> WireSlot:
        return WireSlot(self, self._encoder, self._idle_seconds)

    def connect(self) -> Connection:
        """A connection that is being made; it is the caller's."""
        connection = Connection(self.loop, self._open, self._gone, self._reading, self._last)
        self._connections.add(connection)
        return connection

    def probe(self, done: Callable[[str | None], None]) -> None:
        self._probe.start(done)

    async def close(self) -> None:
        """Abort whatever is left, and wait until it is gone."""
        self._probe.cancel()
        for connection in tuple(self._connections):
            connection.abort()
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                while self._connections:
                    self._all_gone.clear()
                    await self._all_gone.wait()

    async def _open(self, protocol: Connection) -> None:
        await open_transport(self.loop, self._target, lambda: protocol, self._tls)

    def _gone(self, connection: Connection) -> None:
        self._connections.discard(connection)
        if not self._connections:
            self._all_gone.set()
