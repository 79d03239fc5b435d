"""A steady load for the demo: small records into one topic, evenly paced.

Owner: whoever starts it stops it; the records are produced on a thread of its own. Invariant:
the record at offset n of a topic that nobody else writes was due at started_at + n / rate, which
is how old a record is that nobody has read yet.
"""

from __future__ import annotations

import threading
import time
from typing import Final

from confluent_kafka import Producer

_TICK_SECONDS: Final = 0.01
_FLUSH_SECONDS: Final = 2.0
_LINGER_MS: Final = 5  # several records a batch: the embedded broker keeps so many batches only


class SteadyLoad:
    """rate is in records per second; produced counts them. The topic has one partition."""

    def __init__(self, bootstrap_servers: str, topic: str, rate: float) -> None:
        self.produced = 0
        self.started_at = time.time()  # Unix seconds
        self._topic = topic
        self._rate = rate
        self._stop = threading.Event()
        self._producer = Producer(
            {"bootstrap.servers": bootstrap_servers, "linger.ms": _LINGER_MS, "log_level": 0}
        )
        self._thread = threading.Thread(target=self._run, name="demo-load", daemon=True)

    def start(self) -> None:
        self.started_at = time.time()
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(_FLUSH_SECONDS * 2)

    def age_of(self, offset: int) -> float:
        """How long ago the record at the offset was produced; 0 if it is still to come."""
        if offset >= self.produced:
            return 0.0
        return max(0.0, time.time() - self.started_at - offset / self._rate)

    def _run(self) -> None:
        began = time.monotonic()
        while not self._stop.wait(_TICK_SECONDS):
            due = int((time.monotonic() - began) * self._rate)
            try:
                while self.produced < due:
                    value = b'{"order": %d}' % self.produced
                    self._producer.produce(self._topic, value, partition=0)
                    self.produced += 1
            except BufferError:
                pass  # the queue is full: what is due is produced later
            self._producer.poll(0)
        self._producer.flush(_FLUSH_SECONDS)
