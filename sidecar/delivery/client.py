"""Delivery through httpx: https:// targets, HTTP/2 where the application offers it.

Owned by a route, on the event loop. One client for all slots; its pool has no limit of its own,
because at most one request per slot runs: a slot never waits for another's connection. A task
per request; abort cancels it. Deadlines are the caller's, so httpx has none.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Coroutine
from typing import Any, Final

import httpx

from sidecar.core.target import Target
from sidecar.delivery.connection import ANSWER_LIMIT, BODY_KEPT, Done
from sidecar.delivery.probe import Probe
from sidecar.delivery.request import RequestEncoder, Unsendable, split_head
from sidecar.model import Answer, Failed, FailureKind, Record, Result

# httpx has one error for a closed connection and for bytes that are not HTTP.
_CLOSED: Final = ("disconnected", "closed connection", "ConnectionTerminated", "StreamReset")


class ClientSlot:
    """Implements ports.Slot."""

    __slots__ = ("_delivery", "_sent", "_task")

    def __init__(self, delivery: ClientDelivery) -> None:
        self._delivery: Final = delivery
        self._task: asyncio.Task[None] | None = None
        self._sent = False  # a byte of the running request may have left

    def send(self, record: Record, attempt: int, done: Done) -> None:
        self._sent = False
        self._task = self._delivery.start(self._run(record, attempt, done))

    def abort(self) -> bool:
        if self._task is None:
            return False
        self._task.cancel()
        self._task = None
        return self._sent

    def close(self) -> None:
        self.abort()

    async def _run(self, record: Record, attempt: int, done: Done) -> None:
        try:
            result: Result = await self._delivery.post(record, attempt, self._on_trace)
        except Unsendable as error:
            result = Failed(FailureKind.UNSENDABLE, str(error), sent=False)
        except httpx.HTTPError as error:
            result = Failed(_kind(error), str(error) or type(error).__name__, self._sent)
        # abort has the last word: it may have come while the answer was being closed.
        if self._task is asyncio.current_task():
            self._task = None
            done(result)

    async def _on_trace(self, event: str, _: dict[str, Any]) -> None:
        if event.endswith("send_request_headers.started"):
            self._sent = True


class ClientDelivery:
    """Implements ports.Delivery for https:// targets."""

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
    ) -> None:
        self._origin: Final = f"{target.scheme.value}://{target.authority}"
        self._encoder: Final = encoder
        self._loop: Final = loop
        self._probe: Final = probe
        self._tasks: Final[set[asyncio.Task[None]]] = set()
        self._client: Final = httpx.AsyncClient(
            verify=tls,
            http2=True,
            trust_env=False,
            follow_redirects=False,
            timeout=None,  # noqa: S113 the caller owns the deadline
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
        self, record: Record, attempt: int, trace: Callable[..., Coroutine[Any, Any, None]]
    ) -> Result:
        head = self._encoder.encode(record, attempt)
        # Not through the client's own builder, which adds headers.
        request = httpx.Request(
            "POST",
            self._origin + self._encoder.path(record.topic),
            headers=split_head(head),
            content=record.value or b"",
            extensions={"trace": trace},
        )
        response = await self._client.send(request, stream=True)
        try:
            return await _read(response)
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


async def _read(response: httpx.Response) -> Result:
    """The answer, read to its end or to the limit; not decoded, whatever it calls itself."""
    status = response.status_code
    if not 200 <= status < 600:
        return Failed(FailureKind.MALFORMED, f"an answer of status {status} makes no sense")
    length = 0
    body = b""
    async for chunk in response.aiter_raw():
        length += len(chunk)
        if status >= 300 and len(body) < BODY_KEPT:
            body += chunk[: BODY_KEPT - len(body)]
        if length >= ANSWER_LIMIT:
            break
    retry_after = response.headers.get_list("retry-after")
    return Answer(status, ", ".join(retry_after) if retry_after else None, body)


def _kind(error: httpx.HTTPError) -> FailureKind:
    if isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout)):
        return FailureKind.UNREACHABLE
    if isinstance(error, httpx.RemoteProtocolError):
        closed = any(sign in str(error) for sign in _CLOSED)
        return FailureKind.BROKEN if closed else FailureKind.MALFORMED
    return FailureKind.BROKEN
