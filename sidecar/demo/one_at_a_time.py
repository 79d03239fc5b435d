"""The consumer to compare with: takes a record, POSTs it, waits for the answer, takes the next.

The same record source and the same application as the sidecar, a group of its own; only the
buffer and the executors are missing. Owner: whoever starts it stops it. Everything but the
counters, start and stop belongs to its thread.
"""

from __future__ import annotations

import http.client
import logging
import threading
from collections.abc import Sequence
from typing import Final

from sidecar.errors import SourceError
from sidecar.model import Partition
from sidecar.ports import Message, RecordSource

log = logging.getLogger(__name__)

_POLL_SECONDS: Final = 0.05
_BOUNDS_SECONDS: Final = 5.0
_AGAIN_SECONDS: Final = 0.2
_STOP_SECONDS: Final = 5.0


class OneAtATime:
    """position is the next offset to deliver; expired counts what the broker dropped unread."""

    def __init__(self, source: RecordSource, port: int, timeout_seconds: float) -> None:
        self.delivered = 0
        self.position = 0
        self.expired = 0
        self._source = source
        self._stop = threading.Event()
        self._timeout_seconds = timeout_seconds
        self._app = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout_seconds)
        self._thread = threading.Thread(target=self._run, name="demo-one-at-a-time", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ends after the running request."""
        self._stop.set()
        self._thread.join(self._timeout_seconds + _STOP_SECONDS)

    def _run(self) -> None:
        try:
            self._source.subscribe(self)
            while not self._stop.is_set():
                for message in self._source.poll(1, _POLL_SECONDS):
                    self._deliver(message)
            self._source.close()
        except SourceError as error:
            log.warning("the one-at-a-time consumer ended: %s", error)
        finally:
            self._app.close()

    def _deliver(self, message: Message) -> None:
        headers = {"Kafka-Offset": str(message.offset)}
        while not self._stop.is_set():
            try:
                self._app.request("POST", "/", message.value, headers)
                self._app.getresponse().read()
            except (OSError, http.client.HTTPException):
                self._app.close()
                self._stop.wait(_AGAIN_SECONDS)
                continue
            self.delivered += 1
            self.position = message.offset + 1
            self._source.commit_later({message.partition: (self.position, "")}, lambda error: None)
            return

    # --- ports.SourceListener -----------------------------------------------------------------

    def on_assign(self, partitions: Sequence[Partition]) -> None:
        self._source.assign(dict.fromkeys(partitions, self.position))

    def on_revoke(self, partitions: Sequence[Partition]) -> None:
        pass

    def on_lost(self, partitions: Sequence[Partition]) -> None:
        pass

    def on_out_of_range(self, partition: Partition, reason: str) -> None:
        """It is so far behind that the broker has dropped what would be next."""
        first, _ = self._source.watermarks(partition, _BOUNDS_SECONDS)
        self.expired += max(0, first - self.position)
        self.position = first
        self._source.seek(partition, first)

    def on_trouble(self, description: str) -> None:
        log.warning("kafka: %s", description)
