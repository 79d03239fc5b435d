"""Bodies: small, JSON, and here before a handler runs.

A body is read as a whole, within BODY_BYTES; that it comes in time is the connection's affair. What
goes beyond is refused without being read.
"""

from __future__ import annotations

from typing import Final

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sidecar.admin.problems import problem_response

BODY_BYTES: Final = 16_384
JSON: Final = "application/json"


class BodyCheck:
    """ASGI middleware."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        length = headers.get(b"content-length", "0")
        too_large = len(length) > 9 or int(length) > BODY_BYTES  # the parser takes digits only
        try:
            body = None if too_large else await _body(receive)
        except ClientDisconnect:
            return
        if body is None:
            # What else comes of it is thrown away by the connection, for as long as it may last.
            refusal = problem_response(413, f"a body has {BODY_BYTES} bytes at most")
            await refusal(scope, receive, send)
        elif body and headers.get(b"content-type", "").partition(";")[0].strip().lower() != JSON:
            await problem_response(415, f"a body is {JSON}")(scope, receive, send)
        else:
            await self._app(scope, _replay(body, receive), send)


async def _body(receive: Receive) -> bytes | None:
    """None if there is more of it than is taken."""
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        body += message.get("body", b"")
        if len(body) > BODY_BYTES:
            return None
        if not message.get("more_body", False):
            return bytes(body)


def _replay(body: bytes, receive: Receive) -> Receive:
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again
