"""What the librdkafka clients are told: the operator's properties, our defaults, what is forced.

Pure. Invariants: nothing but the fetcher stores or commits an offset; a missing position is an
error for the fetcher to decide on; what the client prefetches is bounded by bytes, whatever the
number of partitions (docs/configuration.md, "Memory", has the formula); a pattern does not read
the topics that dead letters are written to.
"""

from __future__ import annotations

from typing import Any, Final

from sidecar.core.kafka_properties import properties
from sidecar.kafka.msk_iam import with_tokens
from sidecar.settings import RouteSettings, Settings
from sidecar.settings.topics import excluded

QUEUE_KBYTES: Final = 8_192
# As it travels: what compresses well unfolds after the queue's bound was looked at.
FETCH_BYTES: Final = 1_048_576
_LEAST_PREFETCH: Final = 2_000
_MOST_PREFETCH: Final = 100_000

_CLIENT_DEFAULTS: Final = {
    "socket.keepalive.enable": "true",
    # New topics and partitions are seen after this long, instead of five minutes.
    "topic.metadata.refresh.interval.ms": "30000",
}

_CONSUMER_DEFAULTS: Final = {
    # One fetch is in flight per broker: what is assigned or resumed meanwhile waits for its end.
    "fetch.wait.max.ms": "100",
    # A full queue is looked at again after this long; the default second would be a stall.
    "fetch.queue.backoff.ms": "10",
    "queued.max.messages.kbytes": str(QUEUE_KBYTES),
}

_CONSUMER_FORCED: Final = {
    "enable.auto.commit": "false",
    "enable.auto.offset.store": "false",
    "enable.partition.eof": "false",
    "auto.offset.reset": "error",
}

_PRODUCER: Final = {
    "enable.idempotence": "true",
    "acks": "all",
    # With more than one, a first batch that is refused and sent again behind a later one is taken
    # for a duplicate by the broker, and for written by librdkafka: it is in no log.
    "max.in.flight.requests.per.connection": "1",
    # The caller tries again and shows it; a park must not hang for the default five minutes.
    "message.timeout.ms": "30000",
    # The same partition for a key as with the Java clients.
    "partitioner": "murmur2_random",
}
_PRODUCER_MESSAGE_BYTES: Final = "67108864"


def client_config(settings: Settings) -> dict[str, Any]:
    """The properties any client of the cluster needs: addresses, security, sockets."""
    known = properties()
    given = {
        name: settings.kafka_text(name)
        for name in settings.kafka
        if known[name].consumer and known[name].producer
    }
    return with_tokens({"client.id": "sidecar", **_CLIENT_DEFAULTS, **given})


def consumer_config(settings: Settings, route: RouteSettings) -> dict[str, Any]:
    """The final properties of the route's consumer; secrets are in the clear."""
    given = {name: settings.kafka_text(name) for name in settings.kafka}
    config = {
        "client.id": f"sidecar-{route.name}",
        **_CLIENT_DEFAULTS,
        **_CONSUMER_DEFAULTS,
        "queued.min.messages": str(min(max(route.threshold, _LEAST_PREFETCH), _MOST_PREFETCH)),
        # librdkafka refuses a fetch limit below the message limit.
        "fetch.max.bytes": str(max(FETCH_BYTES, int(given.get("message.max.bytes", "0")))),
        **given,
        **_CONSUMER_FORCED,
        "group.id": settings.group_of(route),
    }
    # librdkafka takes it in any case, those who read it here compare.
    config["group.protocol"] = given.get("group.protocol", "classic").lower()
    if config["group.protocol"] == "classic":
        config.setdefault("partition.assignment.strategy", "cooperative-sticky")
    if "group.instance.id" in given:
        config["group.instance.id"] = f"{given['group.instance.id']}-{route.name}"
    if left_out := excluded(settings, route):
        # Expressions, separated by commas, neither of which a topic's name can hold but for dots.
        ours = [f"^{topic.replace('.', '[.]')}$" for topic in left_out]
        config["topic.blacklist"] = ",".join([*filter(None, [given.get("topic.blacklist")]), *ours])
    return with_tokens(config)


def producer_config(settings: Settings, route: RouteSettings) -> dict[str, Any]:
    """The final properties of the producer of parked records; secrets are in the clear."""
    # Whether a record is too large is for the broker of its topic to say.
    config = {"message.max.bytes": _PRODUCER_MESSAGE_BYTES, **client_config(settings)}
    if "client.id" not in settings.kafka:
        config["client.id"] = f"sidecar-{route.name}"
    return {**config, **_PRODUCER}


def prefetch_bytes(settings: Settings, route: RouteSettings, brokers: int = 1) -> int:
    """What the consumer may hold besides the records in flight, before decompression."""
    config = consumer_config(settings, route)
    queue = int(config["queued.max.messages.kbytes"]) * 1024
    return queue + brokers * int(config["fetch.max.bytes"])
