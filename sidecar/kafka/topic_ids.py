"""The broker's ids of topics: a topic deleted and made again has another.

Owner: the record source. A hint that everything works without, so nothing here raises.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient

_RETRY_SECONDS: Final = 60.0
# What a client needs to reach the cluster; the rest of a consumer's settings means nothing to an
# AdminClient, which would complain about each on stderr.
_CONNECTION_SETTINGS: Final = (
    "bootstrap.servers",
    "broker.",
    "client.dns.lookup",
    "client.id",
    "enable.ssl.certificate.verification",
    "log_level",
    "metadata.broker.list",
    "oauth_cb",
    "reconnect.",
    "sasl.",
    "security.protocol",
    "socket.",
    "ssl.",
)


class TopicIds:
    """Asks with an admin client that lives for one question."""

    def __init__(self, config: Mapping[str, object]) -> None:
        self._connection: Final[dict[str, Any]] = {
            key: value for key, value in config.items() if key.startswith(_CONNECTION_SETTINGS)
        }
        self._silent_until = 0.0

    def ask(self, topic: str, timeout: float) -> str:
        """The topic's id, or ""."""
        if time.monotonic() < self._silent_until:
            return ""
        started = time.monotonic()
        try:
            admin = AdminClient(self._connection)
            answers = admin.describe_topics(TopicCollection([topic]), request_timeout=timeout)
            return str(answers[topic].result(timeout).topic_id or "")
        except Exception:  # noqa: BLE001 - see the module
            now = time.monotonic()
            if now - started >= timeout:
                # A broker that does not know the request costs the whole timeout: once is enough.
                self._silent_until = now + _RETRY_SECONDS
            return ""
