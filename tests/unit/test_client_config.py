"""The properties of the clients: defaults, what is forced, and that librdkafka takes them."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer

from sidecar.core.kafka_properties import properties
from sidecar.kafka.client_config import (
    client_config,
    consumer_config,
    prefetch_bytes,
    producer_config,
)
from sidecar.settings import Settings


def settings(route: dict[str, Any] | None = None, **kafka: Any) -> Settings:
    return Settings.model_validate(
        {
            "kafka": {
                "bootstrap.servers": "127.0.0.1:1",
                "group.id": "g",
                **{name.replace("__", "."): value for name, value in kafka.items()},
            },
            "routes": [{"topics": ["orders"], "target": "http://127.0.0.1:1/", **(route or {})}],
        }
    )


def consumer(tree: Settings) -> dict[str, str]:
    return consumer_config(tree, tree.routes[0])


def producer(tree: Settings) -> dict[str, str]:
    return producer_config(tree, tree.routes[0])


def test_offsets_belong_to_the_fetcher() -> None:
    config = consumer(settings(auto__offset__reset="latest", enable__auto__commit=False))
    assert config["enable.auto.commit"] == "false"
    assert config["enable.auto.offset.store"] == "false"
    assert config["auto.offset.reset"] == "error"


def test_the_rebalance_is_cooperative_unless_chosen_otherwise() -> None:
    name = "partition.assignment.strategy"
    assert consumer(settings())[name] == "cooperative-sticky"
    assert consumer(settings(partition__assignment__strategy="range"))[name] == "range"
    assert name not in consumer(settings(group__protocol="consumer"))


def test_a_pattern_leaves_out_what_is_parked() -> None:
    """Besides what the operator leaves out; a dot in a name stands for itself."""
    dead: dict[str, Any] = {"name": "r", "dead_letter": {"topic": "orders.d"}}
    route = {**dead, "topics": None, "pattern": "^orders"}
    assert consumer(settings(route))["topic.blacklist"] == "^orders[.]d$"
    tree = settings(route, topic__blacklist="^x,^y")
    assert consumer(tree)["topic.blacklist"] == "^x,^y,^orders[.]d$"
    assert "topic.blacklist" not in consumer(settings(dead))
    assert "topic.blacklist" not in producer(settings(route))


def test_a_static_member_carries_the_routes_name() -> None:
    config = consumer(settings({"name": "fast"}, group__instance__id="pod-0"))
    assert config["group.instance.id"] == "pod-0-fast"
    assert "group.instance.id" not in producer(settings(group__instance__id="pod-0"))


def test_the_routes_group_comes_before_the_common_one() -> None:
    assert consumer(settings())["group.id"] == "g"
    assert consumer(settings({"group_id": "own"}))["group.id"] == "own"


@pytest.mark.parametrize(("threshold", "prefetch"), [(10, 2000), (5000, 5000), (10**6, 10**5)])
def test_the_prefetch_follows_the_threshold_within_bounds(threshold: int, prefetch: int) -> None:
    tree = settings({"threshold": threshold})
    assert consumer(tree)["queued.min.messages"] == str(prefetch)
    assert consumer(tree)["queued.max.messages.kbytes"] == "8192"


def test_the_operators_values_come_before_our_defaults() -> None:
    config = consumer(
        settings(
            client__id="mine", queued__max__messages__kbytes=1024.0, socket__keepalive__enable=False
        )
    )
    assert config["client.id"] == "mine"
    assert config["queued.max.messages.kbytes"] == "1024"
    assert config["socket.keepalive.enable"] == "false"


def test_a_larger_message_limit_lifts_the_fetch_limit() -> None:
    assert consumer(settings())["fetch.max.bytes"] == "1048576"
    assert consumer(settings(message__max__bytes=9_000_000))["fetch.max.bytes"] == "9000000"


def test_prefetched_bytes_are_the_queue_and_one_fetch_of_each_broker() -> None:
    tree = settings()
    assert prefetch_bytes(tree, tree.routes[0], brokers=3) == 8 * 2**20 + 3 * 2**20


def test_the_producer_confirms_and_inherits_only_what_any_client_needs() -> None:
    tree = settings(sasl__password="hush", session__timeout__ms=6000, fetch__min__bytes=5)
    config = producer(tree)
    assert config["enable.idempotence"] == "true"
    assert config["max.in.flight.requests.per.connection"] == "1"
    assert config["acks"] == "all"
    assert config["sasl.password"] == "hush"
    assert not {"group.id", "session.timeout.ms", "fetch.min.bytes"} & config.keys()
    assert client_config(tree).keys() <= config.keys()


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"group.protocol": "consumer"},
        {"partition.assignment.strategy": "range,roundrobin"},
        {"message.max.bytes": 90_000_000},
        {"group.instance.id": "pod-0"},
        {"security.protocol": "SASL_SSL", "sasl.mechanisms": "SCRAM-SHA-512"},
    ],
    ids=str,
)
def test_librdkafka_takes_the_whole_configuration(given: dict[str, Any]) -> None:
    login = {"sasl.username": "u", "sasl.password": "p"} if "sasl.mechanisms" in given else {}
    tree = settings(None, **given, **login)
    Consumer(consumer(tree)).close()
    Producer(producer(tree))


def complaint(name: str, value: str) -> str:
    """What librdkafka says to a property, empty where it takes it."""
    quiet = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": "0"}
    try:
        Consumer({**quiet, name: value}).close()
    except KafkaException as error:
        return str(error)
    except (TypeError, ValueError) as error:  # the binding reads some properties itself
        return "" if name == "delivery.report.only.error" else str(error)
    return ""


NAMES = sorted(properties())


@pytest.mark.parametrize("name", NAMES)
def test_the_table_agrees_with_librdkafka(name: str) -> None:
    """The name exists, the values named are taken, and nothing beyond them."""
    known = properties()[name]
    bounds = [bound for bound in (known.low, known.high) if bound is not None]
    good = [str(bound) for bound in bounds] or list(known.choices) or ["x"]
    for value in good:
        said = complaint(name, value)
        # That it does not fit the other properties of this test is no objection to the value.
        assert "No such configuration property" not in said
        assert "Invalid value" not in said or (not known.choices and known.low is None), said
        assert "outside" not in said
    if known.low is not None and known.high is not None:
        assert "outside" in complaint(name, str(known.low - 1))
        if known.high < 2**31 - 1:
            assert "outside" in complaint(name, str(known.high + 1))
    elif known.choices and name != "delivery.report.only.error":
        said = complaint(name, "nonsense")
        assert "Invalid value" in said or "Expected bool" in said


def test_the_group_protocol_is_known_in_any_case() -> None:
    """librdkafka takes it in any case; whoever reads it here compares with the small letters."""
    config = consumer(settings(group__protocol="CONSUMER"))
    assert config["group.protocol"] == "consumer"
    assert "partition.assignment.strategy" not in config
