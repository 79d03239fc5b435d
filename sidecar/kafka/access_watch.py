"""Notices that certificates, keys or passwords of Kafka were replaced, and says so once they work.

Purpose: librdkafka reads its files when a client is made, and a mounted secret is replaced while
the clients run. Blocking, on a thread of its own.

Owner: the runtime. Invariants: nothing is said of what the brokers refuse, so a spoiled file costs
no connection that works; nor of what has not stayed the same from one look to the next, as one
file is replaced before another.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from sidecar.kafka.check import cannot_connect
from sidecar.logs import RateLimited, gist
from sidecar.settings import Settings

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 10.0


class AccessWatch:
    """changed is called on the watching thread. What is in use is what there is by now."""

    def __init__(
        self,
        settings: Settings,
        changed: Callable[[], object],
        refused: Callable[[Settings], str | None] = cannot_connect,
        look_seconds: float | None = None,
    ) -> None:
        self._settings: Final = settings
        self._changed: Final = changed
        self._refused: Final = refused
        self._look_seconds: Final = LOOK_SECONDS if look_seconds is None else look_seconds
        self._repeating: Final = RateLimited(log)
        self._stop: Final = threading.Event()
        self._in_use = fingerprint(settings.kafka_files)
        self._seen = self._in_use

    def start(self) -> None:
        """Begin, if there is anything to look at."""
        if self._settings.kafka_files and not self._settings.embedded_broker:
            threading.Thread(target=self._run, name="kafka-access", daemon=True).start()

    def stop(self) -> None:
        self._stop.set()

    def _run(self) -> None:
        while not self._stop.wait(self._look_seconds):
            self.look()

    def look(self) -> None:
        """One turn."""
        found = fingerprint(self._settings.kafka_files)
        settled, self._seen = found == self._seen, found
        if found == self._in_use or not settled:
            return
        reason = self._refused(self._settings)
        if reason is None:
            self._in_use = found
            log.info("the files of the access to Kafka have changed: its clients are made anew")
            self._changed()
        else:
            key = ("refused", gist(reason))
            text = "the files of the access to Kafka have changed, and do not work yet: %s"
            self._repeating.limited(key, logging.WARNING, text, reason)


def fingerprint(files: Iterable[Path]) -> bytes:
    """Of what the files, and the files of the directories, hold."""
    digest = hashlib.sha256()
    for file in files:
        try:
            held = sorted(file.iterdir()) if file.is_dir() else [file]
        except OSError:  # gone between two questions
            held = [file]
        for each in held:
            digest.update(f"\0{each}\0".encode())
            try:
                digest.update(each.read_bytes())
            except OSError as error:
                digest.update(type(error).__name__.encode())
    return digest.digest()
