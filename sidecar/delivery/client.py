"""Delivery through httpx: applications that want HTTP/2.

Owned by a route, on the event loop. One client for all slots; its pool has no limit of its own,
because at most one request per slot runs: a slot never waits for another's connection. A task
per request; deadlines are the caller's. What httpx cannot do and the wire can: take an answer
that comes before the request was written, and notice bytes behind an answer (HTTP/1.1).
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Final

import httpx

from sidecar.core.target import Target
from sidecar.delivery.connection import BODY_KEPT, JUST_STATUS, Done, Reading, cut_off
from sidecar.delivery.probe import Probe
from sidecar.delivery.request import RequestEncoder, Unsendable, split_head
from sidecar.model import Answer, Failed, FailureKind, Record, Result

# httpx has one error for a closed connection and for bytes that are not HTTP.
_CLOSED: Final = ("disconnected", "closed connection", "ConnectionTerminated", "StreamReset")
_CONNECT_SECONDS: Final = 10.0  # also of what was given up meanwhile


Encoded = tuple[bytes, bytes]  # head and body


class _Attempt:
    """One request. While it connects it is not cancelled: httpx would leave the socket behind."""

    __slots__ = ("_done", "_given_up", "_task", "sent")

    def __init__(
        self, delivery: ClientDelivery, topic: str, encode: Callable[[], Encoded], done: Done
    ) -> None:
        self.sent = False  # a byte of it may have left
        self._done: Final = done
        self._given_up = False
        self._task: Final = delivery.start(self._run(delivery, topic, encode))

    def abort(self) -> bool:
        self._given_up = True
        if self.sent:
            self._task.cancel()
        return self.sent

    async def _run(
        self, delivery: ClientDelivery, topic: str, encode: Callable[[], Encoded]
    ) -> None:
        try:
            result: Result = await delivery.post(topic, encode(), self._on_trace)
        except Unsendable as error:
            result = Failed(FailureKind.UNSENDABLE, str(error), sent=False)
        except httpx.HTTPError as error:
            result = Failed(_kind(error), str(error) or type(error).__name__, self.sent)
        if not self._given_up:
            self._done(result)

    async def _on_trace(self, event: str, _: dict[str, Any]) -> None:
        if event.endswith("send_request_headers.started"):
            if self._given_up:
                raise asyncio.CancelledError
            self.sent = True


class ClientSlot:
    """Implements ports.Slot."""

    __slots__ = ("_attempt", "_delivery")

    def __init__(self, delivery: ClientDelivery) -> None:
        self._delivery: Final = delivery
        self._attempt: _Attempt | None = None

    def send(self, record: Record, attempt: int, done: Done) -> None:
        encode = partial(self._delivery.encoder.encode, record, attempt)
        self._attempt = _Attempt(self._delivery, record.topic, encode, done)

    def send_batch(self, batch: Sequence[tuple[Record, int]], done: Done) -> None:
        encode = partial(self._delivery.encoder.encode_batch, batch)
        self._attempt = _Attempt(self._delivery, batch[0][0].topic, encode, done)

    def abort(self) -> bool:
        attempt, self._attempt = self._attempt, None
        return attempt is not None and attempt.abort()

    def close(self) -> None:
        self.abort()


class ClientDelivery:
    """Implements ports.Delivery for https:// targets with HTTP/2."""

    def __init__(
        self,
        target: Target,
        encoder: RequestEncoder,
        loop: asyncio.AbstractEventLoop,
        *,
        idle_seconds: float,
        connections: int,
        probe: Probe,
        tls: ssl.SSLContext,
        reading: Reading = JUST_STATUS,
    ) -> None:
        self._origin: Final = f"{target.scheme.value}://{target.authority}"
        self.encoder: Final = encoder
        self._loop: Final = loop
        self._probe: Final = probe
        self._reading: Final = reading
        self._tasks: Final[set[asyncio.Task[None]]] = set()
        self._client: Final = httpx.AsyncClient(
            verify=tls,
            http2=True,
            trust_env=False,
            follow_redirects=False,
            timeout=httpx.Timeout(None, connect=_CONNECT_SECONDS),
            limits=httpx.Limits(
                max_connections=None,
                max_keepalive_connections=connections,
                keepalive_expiry=idle_seconds,
            ),
        )

    def open_slot(self) -> ClientSlot:
        return ClientSlot(self)

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def post(
        self, topic: str, encoded: Encoded, trace: Callable[..., Coroutine[Any, Any, None]]
    ) -> Result:
        head, body = encoded
        # Not through the client's own builder, which adds headers.
        request = httpx.Request(
            "POST",
            self._origin + self.encoder.path(topic),
            headers=split_head(head),
            content=body,
            extensions={"trace": trace},
        )
        response = await self._client.send(request, stream=True)
        try:
            return await _read(response, self._reading)
        finally:
            await response.aclose()

    def probe(self, done: Callable[[str | None], None]) -> None:
        self._probe.start(done)

    async def close(self) -> None:
        self._probe.cancel()
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._client.aclose()


async def _read(response: httpx.Response, reading: Reading) -> Result:
    """The answer, read to its end or to the limit; not decoded, whatever it calls itself."""
    status = response.status_code
    if not 200 <= status < 600:
        return Failed(FailureKind.MALFORMED, f"an answer of status {status} makes no sense")
    wanted = BODY_KEPT if status >= 300 else reading.success_bytes
    length = 0
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
    if isinstance(error, httpx.RemoteProtocolError):
        closed = any(sign in str(error) for sign in _CLOSED)
        return FailureKind.BROKEN if closed else FailureKind.MALFORMED
    return FailureKind.BROKEN
