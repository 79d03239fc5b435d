"""An application that speaks HTTP/2 and nothing else; what it answers is the test's."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, RequestReceived, StreamEnded

from tests.rig.hostile_app import Peer

# Called with a request that is whole; what it does not put into the connection it may send itself.
Answering = Callable[[H2Connection, int, Peer], Awaitable[None] | None]


class Http2App:
    """Keeps what it received; answers a request when it is whole. It may break the protocol."""

    def __init__(self, answer: Answering) -> None:
        self.answer = answer
        self.heads: list[list[tuple[bytes, bytes]]] = []
        self.bodies: list[bytes] = []
        self.whole = asyncio.Event()

    async def script(self, peer: Peer) -> None:
        http = H2Connection(
            H2Configuration(
                client_side=False,
                header_encoding=False,
                validate_outbound_headers=False,
                normalize_outbound_headers=False,
            )
        )
        bodies: dict[int, bytes] = {}
        http.initiate_connection()
        await peer.send(http.data_to_send())
        while data := await peer.reader.read(65_536):
            for event in http.receive_data(data):
                if isinstance(event, RequestReceived):
                    self.heads.append(list(event.headers or []))
                elif isinstance(event, DataReceived):
                    assert event.stream_id is not None
                    bodies[event.stream_id] = bodies.get(event.stream_id, b"") + (event.data or b"")
                    http.acknowledge_received_data(
                        event.flow_controlled_length or 0, event.stream_id
                    )
                elif isinstance(event, StreamEnded):
                    assert event.stream_id is not None
                    self.bodies.append(bodies.pop(event.stream_id, b""))
                    self.whole.set()
                    if (more := self.answer(http, event.stream_id, peer)) is not None:
                        await more
            await peer.send(http.data_to_send())


def no_content(http: H2Connection, stream: int, peer: Peer) -> None:
    http.send_headers(stream, [(":status", "204")], end_stream=True)
