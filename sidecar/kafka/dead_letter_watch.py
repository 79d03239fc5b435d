"""Looks whether a route's dead-letter topic is there.

Purpose: whoever forgot it learns of it when the route starts, and not when the first record waits
to be parked. Blocking, on a thread of its own that ends when the topic is seen.

Owner: the fetch thread of one route. Invariant: nothing is said as long as it is not known, nor
where the brokers make a topic with its first record.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from sidecar.kafka.errors import kafka_error

AGAIN_SECONDS: Final = 10.0
_REQUEST_SECONDS: Final = 10.0
_AUTO_CREATE: Final = "auto.create.topics.enable"
_UNANSWERED: Final = (KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError.REQUEST_TIMED_OUT)


class DeadLetterWatch:
    """config is librdkafka's, for any client; missing is told from the watching thread."""

    def __init__(
        self,
        config: Mapping[str, object],
        route: str,
        topic: str,
        missing: Callable[[bool], object],
    ) -> None:
        self._config: Final[dict[str, Any]] = {**config, "log_level": "0"}
        self._route: Final = route
        self._topic: Final = topic
        self._missing: Final = missing

    def start(self) -> None:
        """Begin. It gives up when the calling thread has ended."""
        threading.Thread(
            target=self._run,
            args=(threading.current_thread(),),
            name=f"fetch-{self._route}-dead-letters",
            daemon=True,
        ).start()

    def _run(self, caller: threading.Thread) -> None:
        try:
            admin = AdminClient(self._config)
        except KafkaException:
            return  # the consumer, made of the same, tells what is wrong
        told = False
        while caller.is_alive():
            try:
                is_there = self._is_there(admin)
            except KafkaException:
                pass  # the consumer tells that, too
            else:
                if is_there is told:
                    told = not is_there
                    self._missing(told)
                if is_there:
                    return
            caller.join(AGAIN_SECONDS)

    def _is_there(self, admin: AdminClient) -> bool:
        """Or would be as soon as it is needed."""
        cluster = admin.list_topics(timeout=_REQUEST_SECONDS)
        known = cluster.topics.get(self._topic)
        if known is not None and known.error is None:
            return True
        asked = ConfigResource(ResourceType.BROKER, str(cluster.controller_id))
        try:
            settings = admin.describe_configs([asked], request_timeout=_REQUEST_SECONDS)
            entry = settings[asked].result().get(_AUTO_CREATE)
        except KafkaException as error:
            if kafka_error(error).code() in _UNANSWERED:
                raise
            return False  # it is not everybody's to know
        return entry is not None and entry.value == "true"
