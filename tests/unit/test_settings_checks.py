"""Settings that are right by themselves and wrong together, and the Kafka properties."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trustme

from sidecar.core.kafka_rules import check_kafka_properties
from sidecar.errors import ConfigError
from sidecar.settings import Settings, checks, load_settings
from sidecar.settings.topics import excluded

KAFKA = {"bootstrap.servers": "127.0.0.1:9092", "group.id": "billing"}
ROUTE = {"topics": ["orders"], "target": "http://127.0.0.1:8080/"}


def load(*routes: dict[str, Any], **top: Any) -> Settings:
    tree = {"kafka": KAFKA, "routes": [{**ROUTE, **route} for route in routes or ({},)], **top}
    return load_settings(None, {}, tree)


def told(*routes: dict[str, Any], **top: Any) -> str:
    """The one problem there is."""
    with pytest.raises(ConfigError) as caught:
        load(*routes, **top)
    (problem,) = caught.value.problems
    return str(problem)


def fan(**route: Any) -> dict[str, Any]:
    """A second route that is in no one's way."""
    return {"topics": ["others"], "group_id": "other", **route}


ROUTES: list[tuple[dict[str, Any], str]] = [
    (
        {"guarantee": "at_most_once", "loss_budget": 9, "on_exhausted": "retry_forever"},
        "on_exhausted: retry_forever would send again what may have been processed, which",
    ),
    ({"topics": None}, "topics: is required: a list of topics, or pattern: ^…"),
    ({"pattern": "^a"}, "pattern: is given as well as topics: keep one of them"),
    ({"topics": ["a", "a"]}, "topics: names a topic twice"),
    ({"topics": ["^a"]}, "topics[0]: '^a' is an expression: write it as pattern"),
    ({"topics": ["a b"]}, "topics[0]: 'a b' is not a legal topic name"),
    ({"topics": ["a", ".."], "name": "n"}, "topics[1]: '..' is not a legal topic name"),
    ({"topics": None, "pattern": "orders"}, "pattern: must begin with ^, not 'orders'"),
    ({"topics": None, "pattern": "^a("}, "pattern: is not a regular expression: missing )"),
    ({"topics": None, "pattern": r"^a\d"}, "pattern: is a POSIX extended expression"),
    ({"topics": None, "pattern": "^(?!x)"}, "pattern: is a POSIX extended expression"),
    ({"name": "a/b"}, "name: 'a/b' must hold letters, digits, dot, underscore and hyphen only"),
    ({"loss_budget": 5}, "loss_budget: belongs to guarantee: at_most_once"),
    (
        {"guarantee": "at_most_once"},
        "loss_budget: is required by at_most_once: how many records may one crash lose?",
    ),
    (
        {"guarantee": "at_most_once", "loss_budget": 5, "threshold": 6},
        "threshold: (6) is the loss_budget (5) in at_most_once: remove one, or make them equal",
    ),
    ({"on_exhausted": "park"}, "on_exhausted: park needs a place: add dead_letter: {topic: …}"),
    ({"dead_letter": {"topic": "a b"}}, "dead_letter.topic: 'a b' is not a legal topic name"),
    ({"dead_letter": {"topic": "orders"}}, "dead_letter.topic: 'orders' is read by the same route"),
    (
        {"retry": {"initial_backoff_seconds": 40}},
        "retry.initial_backoff_seconds: (40) must not be above max_backoff_seconds (30)",
    ),
    (
        {"preset": "dapr", "batch": {}},
        "batch: is nothing that preset: dapr knows: remove batch, or leave out preset",
    ),
    (
        {
            "encoding": "cloudevents",
            "batch": {},
            "cloudevents": {"extensions": {"kafkaoffset": "7"}},
        },
        "cloudevents.extensions.kafkaoffset: is made by the sidecar: choose another name",
    ),
    (
        {"guarantee": "at_most_once", "loss_budget": 9, "relieve_after_seconds": 5},
        "relieve_after_seconds: says nothing in at_most_once, whose commits wait for no record",
    ),
    (
        {"guarantee": "at_most_once", "loss_budget": 9, "relieve_by": "park"},
        "relieve_by: says nothing in at_most_once",
    ),
    (
        {"batch": {"max_records": 50}, "threshold": 20},
        "batch.max_records: (50) must not be above threshold (20), or no batch is ever full",
    ),
    (
        {"batch": {}, "headers_always": True},
        "headers_always: says nothing of batches, which hold all headers: remove it",
    ),
    ({"tls": {"verify": False}}, "tls: belongs to an https target: remove it, or change target"),
    (
        {"target": "https://localhost/", "tls": {"cert_file": __file__}},
        "tls: needs cert_file and key_file together",
    ),
    ({"http2": True}, "http2: needs an https target: remove it, or change target"),
    (
        {"target": "https://localhost/", "tls": {"ca_file": __file__}},
        f"tls.ca_file: {__file__} holds no certificates (PEM): ",
    ),
    (
        {"target": "https://localhost/", "tls": {"cert_file": __file__, "key_file": __file__}},
        f"tls.cert_file: {__file__} and {__file__} are no certificate and key",
    ),
    (
        {"timeout_seconds": 25},
        "timeout_seconds: (25) must be below drain_seconds (25), or a stop cuts requests that",
    ),
]


@pytest.mark.parametrize(("route", "said"), ROUTES, ids=str)
def test_a_route_that_contradicts_itself_is_refused(route: dict[str, Any], said: str) -> None:
    assert told(route).startswith(f"routes[0].{said}")


PAIRS: list[tuple[dict[str, Any], str]] = [
    ({}, "routes[1].name: 'orders' is also the name of routes[0]: names must differ"),
    ({"name": "x"}, "routes[1]: reads 'orders' like routes[0], in the same group"),
    (
        {"topics": None, "pattern": "^ord"},
        "routes[1]: reads 'orders' like routes[0], in the same group",
    ),
]


@pytest.mark.parametrize(("second", "said"), PAIRS)
def test_two_routes_that_are_in_each_others_way_are_refused(
    second: dict[str, Any], said: str
) -> None:
    first = {} if second else {"group_id": "g"}
    assert told(first, second).startswith(said)


def test_one_topic_may_go_two_ways_in_groups_of_their_own() -> None:
    assert len(load({}, {"name": "copy", "group_id": "other"}).routes) == 2


PATTERN: dict[str, Any] = {
    "name": "orders", "topics": None, "pattern": r"^orders\..*",
    "dead_letter": {"topic": "orders.dlq"}, "retry": {"topics": [{"delay_seconds": 60}]},
}  # fmt: skip


def test_a_pattern_may_match_what_its_own_route_writes() -> None:
    """DLQ-6: its dead letters are left out; its retry topics it reads in any case."""
    settings = load(PATTERN)
    assert excluded(settings, settings.routes[0]) == ["orders.dlq"]


def test_a_pattern_may_match_the_dead_letters_of_other_routes() -> None:
    settings = load(PATTERN, fan(dead_letter={"topic": "orders.others.dlq"}))
    assert excluded(settings, settings.routes[0]) == ["orders.dlq", "orders.others.dlq"]
    assert excluded(settings, settings.routes[1]) == []


def test_dead_letters_may_be_read_by_name_in_another_group() -> None:
    assert len(load(PATTERN, fan(topics=["orders.dlq"])).routes) == 2
    assert told(PATTERN, {"topics": ["orders.dlq"]}).startswith(
        "routes[1]: reads 'orders.dlq' like routes[0], in the same group"
    )


def test_a_pattern_that_the_broker_matches_can_leave_nothing_out() -> None:
    line = told(PATTERN, kafka={**KAFKA, "group.protocol": "consumer"})
    assert line.startswith(
        "routes[0].pattern: matches 'orders.dlq', where dead letters or retries are"
    )


@pytest.mark.parametrize("length", [2, 3])
def test_dead_letters_that_come_back_are_refused(length: int) -> None:
    """However many routes they go through."""
    topics = ["orders", *(f"t{number}" for number in range(1, length))]
    routes = [
        {"topics": [topic], "dead_letter": {"topic": topics[(index + 1) % length]}}
        for index, topic in enumerate(topics)
    ]
    with pytest.raises(ConfigError) as caught:
        load(*routes)
    assert [problem.path for problem in caught.value.problems] == [
        f"routes[{index}].dead_letter.topic" for index in range(length)
    ]
    through = ", then ".join(f"routes[{index}]" for index in range(1, length))
    assert f"'t1' is read by {through}, whose dead letters come back here" in str(caught.value)


def test_dead_letters_that_end_somewhere_are_no_loop() -> None:
    chain = [{"topics": [a], "dead_letter": {"topic": b}} for a, b in ("ab", "bc", "cd")]
    assert len(load(*chain).routes) == 3


def test_a_route_of_its_own_may_handle_dead_letters() -> None:
    assert len(load({"dead_letter": {"topic": "others"}}, fan()).routes) == 2


TIMES: list[tuple[dict[str, Any], str]] = [
    ({"grace_seconds": 25.5}, "drain_seconds: (25) must be 1 s below grace_seconds (25.5)"),
    (
        {"revoke_seconds": 10, "kafka": {**KAFKA, "max.poll.interval.ms": 10_000,
         "session.timeout.ms": 6000}},
        "revoke_seconds: (10) must be below kafka's max.poll.interval.ms (10 s)",
    ),
    (
        {"commit_interval_seconds": 25},
        "commit_interval_seconds: (25) must be below drain_seconds (25): lower it",
    ),
    (
        {"kafka": {"bootstrap.servers": "x:1"}},
        "kafka.group.id: is required: the consumer group to join",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("top", "said"), TIMES)
def test_times_that_contradict_each_other_are_refused(top: dict[str, Any], said: str) -> None:
    assert told(**top).startswith(said)


def test_the_group_may_come_from_the_routes_alone() -> None:
    loaded = load({"group_id": "own"}, kafka={"bootstrap.servers": "x:1"})
    assert loaded.group_of(loaded.routes[0]) == "own"


def test_certificates_that_belong_together_are_taken(tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    own = authority.issue_cert("localhost")
    own.private_key_and_cert_chain_pem.write_to_path(tmp_path / "own.pem")
    files = {"ca_file": "ca.pem", "cert_file": "own.pem", "key_file": "own.pem"}
    tls = {name: str(tmp_path / file) for name, file in files.items()}
    assert load({"target": "https://localhost/", "tls": tls, "http2": True}).routes[0].http2


# --- Kafka properties ---------------------------------------------------------------------------

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"enable.auto.commit": True}, "enable.auto.commit: must stay false: the sidecar commits"),
    ({"enable.auto.commit": "t"}, "enable.auto.commit: must stay false: the sidecar commits"),
    ({"enable.auto.offset.store": True}, "enable.auto.offset.store: must stay false"),
    ({"auto.commit.enable": True}, "auto.commit.enable: is another name of enable.auto.commit"),
    ({"auto.commit.interval.ms": 5}, "auto.commit.interval.ms: cannot be set: the sidecar commits"),
    ({"enable.partition.eof": True}, "enable.partition.eof: must stay false: nothing"),
    ({"api.version.request": False}, "api.version.request: must stay true"),
    ({"statistics.interval.ms": 5}, "statistics.interval.ms: cannot be set: nothing"),
    ({"max.poll.records": 5}, "max.poll.records: cannot be set: it belongs to share consumers"),
    ({"acks": 1}, "acks: is a producer property: the sidecar sets what its producer needs"),
    ({"rebalance_cb": "x"}, "rebalance_cb: unknown librdkafka property"),
    ({"sesion.timeout.ms": 5}, "sesion.timeout.ms: unknown librdkafka property; did you mean"),
    ({"group_instance_id": "x"}, "group_instance_id: unknown librdkafka property; did you mean"),
    ({"session.timeout.ms": "6s"}, "session.timeout.ms: must be a whole number from 1 to"),
    ({"session.timeout.ms": 0}, "session.timeout.ms: must be a whole number from 1 to 3600000,"),
    ({"check.crcs": "maybe"}, "check.crcs: must be true or false, not 'maybe'"),
    ({"isolation.level": "x"}, "isolation.level: must be one of read_uncommitted,"),
    ({"client.rack": None}, "client.rack: must be text, a number or true/false"),
    ({"client.rack": ["x"]}, "client.rack: must be text, a number or true/false"),
    ({"auto.offset.reset": "error"}, "auto.offset.reset: must be earliest or latest"),
    ({"auto.offset.reset": "smallest"}, "auto.offset.reset: must be earliest or latest"),
    ({"bootstrap.servers": " "}, "bootstrap.servers: must not be empty"),
    ({"metadata.broker.list": "x"}, "metadata.broker.list: is another name of bootstrap.servers"),
    ({"group.protocol": "consumer", "session.timeout.ms": 9000}, "session.timeout.ms: does not"),
    ({"group.protocol": "consumer", "heartbeat.interval.ms": 900}, "heartbeat.interval.ms: does"),
    ({"group.protocol": "consumer", "partition.assignment.strategy": "range"}, "partition.assign"),
    ({"group.remote.assignor": "uniform"}, "group.remote.assignor: needs group.protocol: consumer"),
    ({"partition.assignment.strategy": "sticky"}, "partition.assignment.strategy: must be one"),
    ({"partition.assignment.strategy": "range,cooperative-sticky"}, "partition.assignment.strate"),
    ({"heartbeat.interval.ms": 45000}, "heartbeat.interval.ms: (45000) must be below"),
    ({"max.poll.interval.ms": 40000}, "session.timeout.ms: (45000) must not be above"),
    ({"sasl.mechanisms": "OAUTHBEARER"}, "sasl.mechanisms: OAUTHBEARER needs a source of tokens"),
    ({"sasl.mechanism": "PLAIN"}, "sasl.mechanism: is another name of sasl.mechanisms"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "said"), [(given, said) for given, said in REFUSED], ids=str)
def test_a_property_that_would_break_something_is_refused_with_the_reason(
    given: dict[str, Any], said: str
) -> None:
    (problem,) = check_kafka_properties({**KAFKA, **given})
    assert str(problem).startswith(said)


PASSES: list[dict[str, Any]] = [
    {"enable.auto.commit": False},
    {"enable.auto.commit": "false"},
    {"auto.offset.reset": "latest"},
    {"group.protocol": "consumer", "group.remote.assignor": "uniform"},
    {"partition.assignment.strategy": "range,roundrobin"},
    {"sasl.mechanisms": "OAUTHBEARER", "sasl.oauthbearer.method": "oidc"},
    {"session.timeout.ms": "6000", "heartbeat.interval.ms": 2000.0},
    {"bootstrap.servers": "embedded"},
    {"security.protocol": "SASL_SSL"},
]


@pytest.mark.parametrize("given", PASSES)
def test_everything_else_passes_through(given: dict[str, Any]) -> None:
    assert check_kafka_properties({**KAFKA, **given}) == []


def test_the_value_of_a_secret_is_not_repeated() -> None:
    problems = check_kafka_properties(
        {**KAFKA, "session.timeout.ms": "hush"}, ["session.timeout.ms"]
    )
    assert [str(problem) for problem in problems] == [
        "session.timeout.ms: must be a whole number from 1 to 3600000"
    ]


def test_tracing_needs_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "_OTEL", ("opentelemetry.sdk", "no_such_module.at_all"))
    assert told(tracing={"enabled": True}) == (
        "tracing.enabled: needs what is not installed: pip install 'kafka-dispatch-sidecar[otel]'"
    )
    assert not load(tracing={"enabled": False}).tracing.enabled
