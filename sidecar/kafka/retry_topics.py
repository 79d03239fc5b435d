"""Makes the retry topics of a route that are missing.

Purpose: a route's retries work from the first start on, without anybody's help where that is
allowed. Blocking, on a thread of its own: the fetch thread waits a moment for it, because a topic
that is there when the group is joined is read at once, and goes on without it while the broker is
away.

Owner: the fetch thread of one route. Invariants: what exists is left as it is; what is not
permitted is said once, with the names, and not asked for again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from sidecar.kafka.errors import describe, kafka_error
from sidecar.logs import WithFields
from sidecar.model import RetryTopic

log = logging.getLogger(__name__)

WAIT_SECONDS: Final = 5.0  # of the fetch thread
# Assignors share out partitions, not load: were these as many as those of the sources, a member
# that joins could be given all of the sources, or none.
PARTITIONS: Final = 1
KEPT_SECONDS: Final = 7 * 86_400  # beyond the delay: for an application that is away for a week
_REQUEST_SECONDS: Final = 10.0
_AGAIN_SECONDS: Final = 2.0
_LOOK_SECONDS: Final = 0.1
_FINAL: Final = frozenset(
    {
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.INVALID_CONFIG,
        KafkaError.INVALID_REPLICATION_FACTOR,
        KafkaError.POLICY_VIOLATION,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
    }
)


def topic_config(topic: RetryTopic) -> dict[str, str]:
    """What a retry topic needs, whatever the broker's defaults are."""
    kept = topic.delay_seconds + KEPT_SECONDS
    return {"cleanup.policy": "delete", "retention.ms": str(round(kept * 1000))}


def new_topic(topic: RetryTopic) -> NewTopic:
    """As whoever finds it missing makes it."""
    return NewTopic(topic.name, PARTITIONS, replication_factor=-1, config=topic_config(topic))


class RetryTopicMaker:
    """config is librdkafka's, for any client."""

    def __init__(
        self, config: Mapping[str, object], route: str, topics: Sequence[RetryTopic]
    ) -> None:
        self._config: Final[dict[str, Any]] = {**config, "log_level": "0"}
        self._route: Final = route
        self._log: Final = WithFields(log, {"route": route})
        self._topics: Final = topics
        self._refused: Final[set[str]] = set()  # for good
        self._made: Final[set[str]] = set()

    def start(self, wait_seconds: float = WAIT_SECONDS) -> None:
        """Begin, and wait a moment for the end. It gives up when the calling thread has ended."""
        thread = threading.Thread(
            target=self._run,
            args=(threading.current_thread(),),
            name=f"fetch-{self._route}-topics",
            daemon=True,
        )
        thread.start()
        thread.join(wait_seconds)

    def _run(self, caller: threading.Thread) -> None:
        told = ""
        try:
            admin = AdminClient(self._config)
        except KafkaException:
            return  # the consumer, made of the same and right afterwards, tells what is wrong
        pause = look = _LOOK_SECONDS
        while caller.is_alive():
            try:
                if not (missing := self._missing(admin)):
                    return
                self._make(admin, missing)
                pause, look = look, min(2 * look, _AGAIN_SECONDS)
            except KafkaException as error:
                trouble = describe(kafka_error(error))
                if trouble != told:
                    self._log.warning("the retry topics cannot be looked for yet: %s", trouble)
                told, pause = trouble, _AGAIN_SECONDS
            caller.join(pause)

    def _missing(self, admin: AdminClient) -> list[NewTopic]:
        """Those to be made; a broker may know one that was made a moment after it was made."""
        topics = admin.list_topics(timeout=_REQUEST_SECONDS).topics
        known = {name for name, each in topics.items() if each.error is None}
        return [
            new_topic(topic)
            for topic in self._topics
            if topic.name not in known and topic.name not in self._refused
        ]

    def _make(self, admin: AdminClient, missing: list[NewTopic]) -> None:
        new = [topic for topic in missing if topic.topic not in self._made]
        if not new:
            return
        answers = admin.create_topics(new, request_timeout=_REQUEST_SECONDS)
        made, there, refused, reason = [], [], [], ""
        for name, answer in answers.items():
            try:
                answer.result(2 * _REQUEST_SECONDS)
            except KafkaException as error:
                code = kafka_error(error).code()
                if code in _FINAL:
                    refused.append(name)
                    reason = describe(kafka_error(error))
                elif code == KafkaError.TOPIC_ALREADY_EXISTS:
                    there.append(name)  # seen in a moment, or never, where that is not permitted
                else:
                    raise
            else:
                made.append(name)
        self._made.update(made, there)
        self._refused.update(refused)
        if made:
            self._log.info("made the retry topics %s", ", ".join(made))
        if refused:
            self._log.error(
                "retry topics are missing and cannot be made (%s): %s. What is to go there waits"
                " here until somebody makes them",
                reason,
                ", ".join(refused),
            )
