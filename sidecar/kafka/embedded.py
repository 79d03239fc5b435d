"""A broker inside this process: librdkafka's mock cluster, for the demo and for quick tests.

Purpose: Kafka's protocol without Kafka. Other processes on the machine can connect to it; what
it holds is in memory and gone with close.

Owner: whoever starts it closes it; any thread may.

Invariants:
* All use of ctypes is here. The functions are librdkafka's public but experimental mock API,
  taken from the library that the binding has loaded already.
* Where the functions are hidden the cluster is made by a producer's test setting instead: it
  works, but every topic has FALLBACK_PARTITIONS partitions and a group's first member waits three
  seconds; can_create_topics says so.

What it cannot do: keep more than 5 MiB or 100 000 batches of a partition, administer topics,
authenticate, and answer a long poll at once when data arrives (hence client_overrides).
"""

from __future__ import annotations

import ctypes
import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType, TracebackType
from typing import Final, Self

from confluent_kafka import KafkaException, Producer, cimpl

from sidecar.errors import SourceError
from sidecar.kafka.retry_topics import PARTITIONS
from sidecar.settings import Settings

log = logging.getLogger(__name__)

FALLBACK_PARTITIONS: Final = 4
_START_SECONDS: Final = 10.0
_ERROR_BYTES: Final = 512
_PRODUCER: Final = 0
_LOG_ERRORS_ONLY: Final = b"3"
_SILENT: Final = {"log_level": 3}


class EmbeddedBroker:
    """Start it, give bootstrap_servers to clients, close it. A context manager."""

    # A fetch on it does not wake for new data, and its classic rebalance lasts the session
    # timeout less one second.
    client_overrides: Final[Mapping[str, int]] = {
        "fetch.wait.max.ms": 10,
        "heartbeat.interval.ms": 200,
        "session.timeout.ms": 2000,
    }

    def __init__(self, brokers: int = 1) -> None:
        self._brokers: Final = brokers
        self._library: ctypes.CDLL | None = _library()
        self._client: int | None = None
        self._cluster: int | None = None
        self._producer: Producer | None = None
        self._address = ""

    @property
    def bootstrap_servers(self) -> str:
        """host:port, comma separated; empty unless it runs."""
        return self._address

    @property
    def can_create_topics(self) -> bool:
        return self._library is not None

    def start(self) -> str:
        """Start and return bootstrap_servers."""
        if not self._address:
            if self._library is not None:
                self._start_cluster(self._library)
            else:
                self._start_producer()
        return self._address

    def create_topic(self, name: str, partitions: int) -> int:
        """Create a topic; the number of partitions it has then, which fallback mode decides."""
        if self._library is None:
            assert self._producer is not None, "not started"
            self._producer.list_topics(name, _START_SECONDS)
            return FALLBACK_PARTITIONS
        assert self._cluster is not None, "not started"
        code = self._library.rd_kafka_mock_topic_create(
            self._cluster, name.encode(), partitions, self._brokers
        )
        if code != 0:
            raise SourceError(f"the embedded broker did not create {name} (code {code})")
        return partitions

    def close(self) -> None:
        if self._library is not None and self._cluster is not None:
            self._library.rd_kafka_mock_cluster_destroy(self._cluster)
            self._library.rd_kafka_destroy(self._client)
        self._client = self._cluster = self._producer = None
        self._address = ""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _start_cluster(self, library: ctypes.CDLL) -> None:
        configuration = library.rd_kafka_conf_new()
        message = ctypes.create_string_buffer(_ERROR_BYTES)
        library.rd_kafka_conf_set(
            configuration, b"log_level", _LOG_ERRORS_ONLY, message, _ERROR_BYTES
        )
        self._client = library.rd_kafka_new(_PRODUCER, configuration, message, _ERROR_BYTES)
        if self._client is None:
            raise SourceError(f"the embedded broker did not start: {message.value.decode()}")
        self._cluster = library.rd_kafka_mock_cluster_new(self._client, self._brokers)
        if self._cluster is None:
            library.rd_kafka_destroy(self._client)
            self._client = None
            raise SourceError("the embedded broker did not start: no mock cluster")
        library.rd_kafka_mock_group_initial_rebalance_delay_ms(self._cluster, 0)
        address: bytes = library.rd_kafka_mock_cluster_bootstraps(self._cluster)
        self._address = address.decode()

    def _start_producer(self) -> None:
        try:
            self._producer = Producer(
                {"bootstrap.servers": "unused", "test.mock.num.brokers": self._brokers, **_SILENT}
            )
            brokers = self._producer.list_topics(timeout=_START_SECONDS).brokers.values()
        except KafkaException as error:
            raise SourceError(f"the embedded broker did not start: {error}") from error
        self._address = ",".join(f"{each.host}:{each.port}" for each in brokers)


@contextmanager
def embedded_broker(settings: Settings) -> Iterator[Settings]:
    """Start a broker with the routes' topics; the settings that reach it, and its address told."""
    with EmbeddedBroker() as broker:
        for topic, partitions in _topics(settings).items():
            broker.create_topic(topic, partitions)
        address = broker.bootstrap_servers
        log.info("embedded broker at %s", address, extra={"bootstrap_servers": address})
        sys.stdout.write(
            f"embedded broker at {address}: produce to it with any Kafka client on this machine."
            " It is for trying out: it keeps 5 MiB of a partition, and nothing after the end.\n"
        )
        sys.stdout.flush()
        defaults = EmbeddedBroker.client_overrides
        if settings.kafka_text("group.protocol").lower() == "consumer":
            # The broker decides on these then, and the client refuses to be told.
            defaults = {"fetch.wait.max.ms": defaults["fetch.wait.max.ms"]}
        kafka = {**defaults, **settings.kafka, "bootstrap.servers": address}
        yield settings.model_copy(update={"kafka": MappingProxyType(kafka)})


def _topics(settings: Settings) -> dict[str, int]:
    """Their numbers of partitions by name."""
    topics: dict[str, int] = {}
    for route in settings.routes:
        topics |= dict.fromkeys(route.topics or (), FALLBACK_PARTITIONS)
        if route.dead_letter is not None:
            topics[route.dead_letter.topic] = FALLBACK_PARTITIONS
        topics |= {topic.name: PARTITIONS for topic in settings.retry_topics(route)}
    return topics


def _library() -> ctypes.CDLL | None:
    """librdkafka as the binding loaded it, or None where it shows no mock API."""
    handle, text, number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
    try:
        # A symbol is looked up in what the binding's own module was linked with, too.
        library = ctypes.CDLL(cimpl.__file__)
        for name, result, arguments in (
            ("rd_kafka_conf_new", handle, []),
            ("rd_kafka_conf_set", number, [handle, text, text, text, ctypes.c_size_t]),
            ("rd_kafka_new", handle, [number, handle, text, ctypes.c_size_t]),
            ("rd_kafka_destroy", None, [handle]),
            ("rd_kafka_mock_cluster_new", handle, [handle, number]),
            ("rd_kafka_mock_cluster_destroy", None, [handle]),
            ("rd_kafka_mock_cluster_bootstraps", text, [handle]),
            ("rd_kafka_mock_topic_create", number, [handle, text, number, number]),
            ("rd_kafka_mock_group_initial_rebalance_delay_ms", None, [handle, ctypes.c_int32]),
        ):
            function = getattr(library, name)
            function.restype = result
            function.argtypes = arguments
    except (OSError, AttributeError):
        return None
    return library
