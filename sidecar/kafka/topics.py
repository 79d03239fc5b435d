"""What the cluster says about topics, asked by a client of its own.

Owner: the record source. Its own consumer must not be asked for metadata inside a rebalance
callback: the binding keeps one call state per thread and client, the question would clear that of
the poll that runs the callback, and the next callback would abort the process.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Mapping
from typing import Any, Final

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from sidecar.kafka.errors import kafka_error, source_error
from sidecar.model import Partition

_RETRY_SECONDS: Final = 60.0
# What a client needs to reach the cluster; the rest of a consumer's settings means nothing to an
# AdminClient, which would complain about each on stderr.
_CONNECTION_SETTINGS: Final = (
    "bootstrap.servers",
    "broker.",
    "client.dns.lookup",
    "client.id",
    "enable.ssl.certificate.verification",
    "metadata.broker.list",
    "oauth_cb",
    "reconnect.",
    "sasl.",
    "security.protocol",
    "socket.",
    "ssl.",
)


def connection_settings(config: Mapping[str, object]) -> dict[str, Any]:
    """What of a consumer's settings an AdminClient needs to reach the same cluster."""
    found = {key: value for key, value in config.items() if key.startswith(_CONNECTION_SETTINGS)}
    found["log_level"] = "0"  # what matters comes back as an error
    return found


class Topics:
    """Asks with an admin client that lives for one question.

    with_ids: the broker may have ids of topics; a topic deleted and made again has another.
    """

    def __init__(self, config: Mapping[str, object], *, with_ids: bool) -> None:
        self._connection: Final = connection_settings(config)
        self._with_ids: Final = with_ids
        self._silent_until = 0.0

    def partitions(self, topic: str, timeout: float) -> list[Partition]:
        """The topic's partitions, none if there is no such topic. Raises SourceError."""
        try:
            known = AdminClient(self._connection).list_topics(topic, timeout).topics.get(topic)
        except KafkaException as error:
            raise source_error(kafka_error(error)) from error
        return [] if known is None else [Partition(topic, number) for number in known.partitions]

    def ids(self, topics: Collection[str], timeout: float) -> dict[str, str]:
        """The ids of the topics that have one. A hint that everything works without: no error."""
        if not topics or not self._with_ids or time.monotonic() < self._silent_until:
            return {}
        started = time.monotonic()
        found: dict[str, str] = {}
        try:
            admin = AdminClient(self._connection)
            started = (
                time.monotonic()
            )  # where tokens are signed, making one takes a second by itself
            wanted = TopicCollection(list(topics))
            answers = admin.describe_topics(wanted, request_timeout=timeout)
        except Exception:  # noqa: BLE001 - a hint
            return found
        for topic, answer in answers.items():
            left = started + timeout - time.monotonic()
            with contextlib.suppress(Exception):
                if topic_id := answer.result(max(left, 0)).topic_id:
                    found[topic] = str(topic_id)
        if time.monotonic() - started >= timeout:
            # A broker that does not know the request costs the whole timeout: once is enough.
            self._silent_until = time.monotonic() + _RETRY_SECONDS
        return found
