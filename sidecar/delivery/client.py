"""Delivery through httpx: applications that want HTTP/2.

Owned by a route, on the event loop. A task per request; deadlines are the caller's. Invariants:

* A slot has a connection of its own. Streams that shared one would share its end and its window:
  an application that breaks the protocol for one record would break it for all.
* A connection is used again only if the last answer was read to its end. httpx resets no stream
  that it leaves, and what is sent on one that was left counts against the window for good.
* Whatever httpx raises, the request ends with a result.

What httpx cannot do and the wire can: take an answer that comes before the request was written,
notice bytes behind an answer (HTTP/1.1), and miss a status (HTTP/2: it makes 200 of none).
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import httpx

from sidecar.core.target import Target
from sidecar.delivery.connection import BODY_KEPT, JUST_STATUS, Done, Reading, cut_off
from sidecar.delivery.opening import addresses
from sidecar.delivery.probe import Probe
from sidecar.delivery.request import RequestEncoder, Unsendable, split_head
from sidecar.model import Answer, Failed, FailureKind, Record, Result

# httpx has one error for a closed connection and for bytes that are not HTTP.
_CLOSED: Final = ("disconnected", "closed connection", "ConnectionTerminated", "StreamReset")
_CONNECT_SECONDS: Final = 10.0  # also of what was given up meanwhile


Encoded = tuple[bytes, bytes]  # head and body


class _Attempt:
    """One request. While it connects it is not cancelled: httpx would leave the socket behind."""

    __slots__ = ("_done", "_given_up", "_slot", "_task", "sent")

    def __init__(
        self, slot: ClientSlot, topic: str, encode: Callable[[], Encoded], done: Done
    ) -> None:
        self.sent = False  # a byte of it may have left
        self._done: Final = done
        self._given_up = False
        self._slot: Final = slot
        self._task: Final = slot.delivery.start(self._run(topic, encode))

    def abort(self) -> bool:
        self._given_up = True
        if self.sent:
            self._task.cancel()
        return self.sent

    async def _run(self, topic: str, encode: Callable[[], Encoded]) -> None:
        if self._given_up:
            return
        slot = self._slot
        delivery = slot.delivery
        transport = slot.take()
        whole = False
        try:
            encoded = encode()
            result, whole = await delivery.post(transport, topic, encoded, self._on_trace)
        except Unsendable as error:
            result = Failed(FailureKind.UNSENDABLE, str(error), sent=False)
            whole = True
        except httpx.HTTPError as error:
            result = Failed(_kind(error), str(error) or type(error).__name__, self.sent)
        except Exception as error:  # noqa: BLE001 - h2's own, ValueError for a status: not mapped
            detail = f"{type(error).__name__}: {error}"
            result = Failed(FailureKind.MALFORMED, detail, self.sent)
        finally:
            if whole and not self._given_up:
                slot.idle = transport
            else:
                delivery.discard(transport)
        if not self._given_up:
            self._done(result)

    async def _on_trace(self, event: str, _: dict[str, Any]) -> None:
        if event.endswith("send_request_headers.started"):
            if self._given_up:
                raise asyncio.CancelledError
            self.sent = True


class ClientSlot:
    """Implements ports.Slot."""

    __slots__ = ("_attempt", "delivery", "idle")

    def __init__(self, delivery: ClientDelivery) -> None:
        self.delivery: Final = delivery
        self.idle: httpx.AsyncHTTPTransport | None = None  # ready for another request
        self._attempt: _Attempt | None = None

    def send(self, record: Record, attempt: int, done: Done) -> None:
        encode = partial(self.delivery.encoder.encode, record, attempt)
        self._attempt = _Attempt(self, record.original.topic, encode, done)

    def send_batch(self, batch: Sequence[tuple[Record, int]], done: Done) -> None:
        encode = partial(self.delivery.encoder.encode_batch, batch)
        self._attempt = _Attempt(self, batch[0][0].original.topic, encode, done)

    def take(self) -> httpx.AsyncHTTPTransport:
        """It is the caller's until it puts it back or has it discarded."""
        transport, self.idle = self.idle, None
        return transport or self.delivery.open_transport()

    def abort(self) -> bool:
        attempt, self._attempt = self._attempt, None
        return attempt is not None and attempt.abort()

    def close(self) -> None:
        self.abort()
        if self.idle is not None:
            self.delivery.discard(self.idle)
            self.idle = None


class ClientDelivery:
    """Implements ports.Delivery for https:// targets with HTTP/2."""

    def __init__(
        self,
        target: Target,
        encoder: RequestEncoder,
        loop: asyncio.AbstractEventLoop,
        *,
        idle_seconds: float,
        probe: Probe,
        tls: ssl.SSLContext,
        reading: Reading = JUST_STATUS,
    ) -> None:
        self._host: Final = target.host
        self._origins: Final = [  # the one that was reached last comes first
            f"{target.scheme.value}://{replace(target, host=host).authority}"
            for host in addresses(target.host)
        ]
        self.encoder: Final = encoder
        self._loop: Final = loop
        self._probe: Final = probe
        self._reading: Final = reading
        self._tls: Final = tls
        self._limits: Final = httpx.Limits(max_connections=1, keepalive_expiry=idle_seconds)
        self._transports: Final[set[httpx.AsyncHTTPTransport]] = set()
        self._attempts: Final[set[asyncio.Task[None]]] = set()
        self._closing: Final[set[asyncio.Task[None]]] = set()

    def open_slot(self) -> ClientSlot:
        return ClientSlot(self)

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return self._task(work, self._attempts)

    def open_transport(self) -> httpx.AsyncHTTPTransport:
        """One connection, once it is used. It follows no redirects and keeps no cookies."""
        transport = httpx.AsyncHTTPTransport(
            verify=self._tls, http2=True, trust_env=False, limits=self._limits
        )
        self._transports.add(transport)
        return transport

    def discard(self, transport: httpx.AsyncHTTPTransport) -> None:
        """Close it; no request may be running on it."""
        self._transports.discard(transport)
        self._task(transport.aclose(), self._closing)

    def _task(
        self, work: Coroutine[Any, Any, None], kept: set[asyncio.Task[None]]
    ) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        kept.add(task)
        task.add_done_callback(kept.discard)
        return task

    async def post(
        self,
        transport: httpx.AsyncHTTPTransport,
        topic: str,
        encoded: Encoded,
        trace: Callable[..., Coroutine[Any, Any, None]],
    ) -> tuple[Result, bool]:
        """The result, and whether the answer was read to its end."""
        response = await self._reach(transport, self.encoder.path(topic), encoded, trace)
        try:
            result = await _read(response, self._reading)
            return result, response.is_closed
        finally:
            await response.aclose()

    async def _reach(
        self,
        transport: httpx.AsyncHTTPTransport,
        path: str,
        encoded: Encoded,
        trace: Callable[..., Coroutine[Any, Any, None]],
    ) -> httpx.Response:
        """The answer of the first address that can be connected to: its head."""
        head, body = encoded
        first: httpx.ConnectError | None = None
        for origin in tuple(self._origins):
            # Not through httpx's client, which adds headers and keeps cookies.
            request = httpx.Request(
                "POST",
                origin + path,
                headers=split_head(head),
                content=body,
                extensions={
                    "trace": trace,
                    "timeout": {"connect": _CONNECT_SECONDS},
                    "sni_hostname": self._host,
                },
            )
            try:
                response = await transport.handle_async_request(request)
            except httpx.ConnectError as error:
                first = first or error
            else:
                if origin != self._origins[0]:
                    self._origins.reverse()
                return response
        assert first is not None
        raise first

    def probe(self, done: Callable[[str | None], None]) -> None:
        self._probe.start(done)

    async def close(self) -> None:
        self._probe.cancel()
        for attempt in tuple(self._attempts):
            attempt.cancel()
        await asyncio.gather(*self._attempts, return_exceptions=True)
        for transport in tuple(self._transports):
            self.discard(transport)
        await asyncio.gather(*self._closing, return_exceptions=True)


async def _read(response: httpx.Response, reading: Reading) -> Result:
    """The answer, read to its end or to the limit; not decoded, whatever it calls itself."""
    status = response.status_code
    if not 200 <= status < 600:
        return Failed(FailureKind.MALFORMED, f"an answer of status {status} makes no sense")
    wanted = BODY_KEPT if status >= 300 else reading.success_bytes
    length = sum(len(name) + len(value) for name, value in response.headers.raw)
    body = bytearray()
    async for chunk in response.aiter_raw():
        length += len(chunk)
        if len(body) < wanted:
            body += chunk[: wanted - len(body)]
        if length >= reading.limit:
            if failed := cut_off(status, reading):
                return failed
            break
    retry_after = response.headers.get_list("retry-after")
    return Answer(status, ", ".join(retry_after) if retry_after else None, bytes(body))


def _kind(error: httpx.HTTPError) -> FailureKind:
    if isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout)):
        return FailureKind.UNREACHABLE
    if isinstance(error, httpx.ProtocolError):  # of h2's the most are called local
        closed = any(sign in str(error) for sign in _CLOSED)
        return FailureKind.BROKEN if closed else FailureKind.MALFORMED
    return FailureKind.BROKEN
