"""An application in the test's own process: what it answers is a function, and it can go and come.

    with ScriptedApp(lambda request: 204) as app:
        ... app.url, app.requests

The function gets each request in a thread of its own and returns a status, or a (status, headers)
pair; it may wait for an event of the test. Closing lets go of every waiting request.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import NamedTuple, Self

from tests.rig.ports import free_ports
from tests.rig.waiting import PATIENCE_SECONDS


class Request(NamedTuple):
    """offset, partition and attempt as the sidecar says; at is monotonic seconds."""

    at: float
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def offset(self) -> int:
        return int(self.headers["Kafka-Offset"])

    @property
    def partition(self) -> int:
        return int(self.headers["Kafka-Partition"])

    @property
    def attempt(self) -> int:
        return int(self.headers["Sidecar-Attempt"])


Answer = int | tuple[int, Mapping[str, str]]
Behaviour = Callable[[Request], Answer]


def always_204(_: Request) -> Answer:
    return 204


def held_by(event: threading.Event, body: bytes | None = None) -> Behaviour:
    """204, to requests with this body (None: to all) not before the event is set."""

    def behaviour(request: Request) -> Answer:
        if body is None or request.body == body:
            event.wait(60)
        return 204

    return behaviour


class ScriptedApp:
    """Entering starts it; stop and start let it go away and come back on the same port."""

    def __init__(self, behaviour: Behaviour = always_204, port: int | None = None) -> None:
        self.behaviour = behaviour
        self.port = free_ports(1)[0] if port is None else port
        self.requests: list[Request] = []  # in order of arrival
        self.released = threading.Event()  # set when it stops
        self.most_at_once = 0  # requests that were being answered at one moment
        self._at_once = 0
        self._changed = threading.Condition()
        self._server: ThreadingHTTPServer | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/events/{{topic}}"

    def start(self) -> None:
        app = self
        self.released.clear()

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                app._answer(self, body)

            def log_message(self, *_: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 512

            def handle_error(self, *_: object) -> None:
                pass  # the sidecar was killed while it waited

        self._server = Server(("127.0.0.1", self.port), Handler)
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        self.released.set()
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def until(
        self, condition: Callable[[list[Request]], bool], within: float = PATIENCE_SECONDS
    ) -> None:
        """Wait until the requests seen satisfy the condition."""
        deadline = time.monotonic() + within
        with self._changed:
            while not condition(self.requests):
                if not self._changed.wait(deadline - time.monotonic()):
                    raise TimeoutError(f"not within {within:g} s; {len(self.requests)} requests")

    def offsets(self, partition: int = 0) -> list[int]:
        """Of every request so far, in order of arrival."""
        return [each.offset for each in list(self.requests) if each.partition == partition]

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def _answer(self, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        request = Request(time.monotonic(), handler.path, dict(handler.headers.items()), body)
        with self._changed:
            self.requests.append(request)
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
            self._changed.notify_all()
        answer = self.behaviour(request)
        with self._changed:
            self._at_once -= 1
        status, headers = answer if isinstance(answer, tuple) else (answer, {})
        handler.send_response_only(status)
        for name, value in headers.items():
            handler.send_header(name, value)
        if status != 204:
            handler.send_header("Content-Length", "0")
        handler.end_headers()
