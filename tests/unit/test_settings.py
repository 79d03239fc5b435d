"""The tree as loaded: defaults, effective values, secrets, and one clear line per mistake."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from pydantic import ValidationError

from sidecar.core.target import Scheme
from sidecar.errors import ConfigError
from sidecar.model import Guarantee, OnExhausted
from sidecar.settings import OffsetReset, Settings, json_schema, load_settings

EXAMPLE = r"""
kafka:
  bootstrap.servers: 127.0.0.1:9092
  group.id: billing
routes:
  - name: orders
    topics: [orders]
    target: http://127.0.0.1:8080/events/{topic}
    guarantee: at_least_once
    threshold: 1000
    threshold_bytes: 16777216
    executors: 16
    timeout_seconds: 20
    order: none
    retry: {max_attempts: 5, initial_backoff_seconds: 0.2, max_backoff_seconds: 30}
    on_exhausted: park
    dead_letter: {topic: orders.dlq}
app: {health: http://127.0.0.1:8080/healthz}
commit_interval_seconds: 1
drain_seconds: 25
revoke_seconds: 5
admin: {host: 127.0.0.1, port: 8090, socket: /run/sidecar/admin.sock}
"""

Load = Callable[[str], Settings]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    def load(text: str) -> Settings:
        file = tmp_path / "sidecar.yaml"
        file.write_text(textwrap.dedent(text), encoding="utf-8")
        return load_settings(file, {})

    return load


def tree(route: dict[str, Any] | None = None, **top: Any) -> dict[str, Any]:
    """The least configuration, with a route's and the top level's changes; None takes out."""
    first = {"topics": ["orders"], "target": "http://127.0.0.1:8080/", **(route or {})}
    return {
        "kafka": {"bootstrap.servers": "127.0.0.1:9092", "group.id": "billing"},
        "routes": [{name: value for name, value in first.items() if value is not None}],
        **top,
    }


def settings(route: dict[str, Any] | None = None, **top: Any) -> Settings:
    return load_settings(None, {}, tree(route, **top))


def problems(route: dict[str, Any] | None = None, **top: Any) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        settings(route, **top)
    return [str(problem) for problem in caught.value.problems]


# --- what is right ------------------------------------------------------------------------------


def test_the_documented_example_loads(load: Load) -> None:
    loaded = load(EXAMPLE)
    (route,) = loaded.routes
    assert route.guarantee is Guarantee.AT_LEAST_ONCE
    assert route.on_exhausted is OnExhausted.PARK
    assert route.dead_letter is not None
    assert route.dead_letter.topic == "orders.dlq"
    assert route.parsed_target.scheme is Scheme.HTTP
    assert loaded.group_of(route) == "billing"
    assert loaded.offset_reset is OffsetReset.EARLIEST


def test_the_schema_is_a_schema_and_takes_the_documented_example() -> None:
    schema = json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    example = yaml.safe_load(EXAMPLE)
    jsonschema.validate(example, schema)
    example["routes"][0]["timeout"] = 3
    with pytest.raises(jsonschema.ValidationError, match="timeout"):
        jsonschema.validate(example, schema)


def test_the_schema_takes_references_to_secrets() -> None:
    example = tree()
    example["kafka"]["sasl.password"] = {"file": "/run/secrets/password"}
    jsonschema.validate(example, json_schema())
    example["kafka"]["sasl.password"] = {"vault": "x"}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(example, json_schema())


def test_the_defaults_are_the_documented_ones() -> None:
    loaded = settings()
    route = loaded.routes[0]
    assert (route.name, route.threshold, route.threshold_bytes) == ("orders", 1000, 16_777_216)
    assert (route.executors, route.timeout_seconds, route.order) == (16, 20.0, "none")
    assert (loaded.commit_interval_seconds, loaded.drain_seconds) == (1.0, 25.0)
    assert loaded.revoke_seconds == 5.0
    assert (loaded.admin.host, loaded.admin.port) == ("127.0.0.1", 8090)
    assert loaded.admin.socket == Path("/run/sidecar/admin.sock")
    assert not loaded.admin.socket_required
    assert route.on_exhausted is OnExhausted.RETRY_FOREVER


def test_what_happens_to_exhausted_records_follows_the_guarantee_and_the_dead_letter_topic() -> (
    None
):
    at_most_once = {"guarantee": "at_most_once", "loss_budget": 5}
    place = {"dead_letter": {"topic": "dlq"}}
    assert settings().routes[0].on_exhausted is OnExhausted.RETRY_FOREVER
    assert settings(place).routes[0].on_exhausted is OnExhausted.PARK
    assert settings(at_most_once).routes[0].on_exhausted is OnExhausted.DROP
    assert settings({**at_most_once, **place}).routes[0].on_exhausted is OnExhausted.PARK
    assert settings({"on_exhausted": "halt"}).routes[0].on_exhausted is OnExhausted.HALT


def test_at_most_once_has_the_loss_budget_for_a_threshold() -> None:
    at_most_once = {"guarantee": "at_most_once", "loss_budget": 7}
    assert settings(at_most_once).routes[0].threshold == 7
    assert settings({**at_most_once, "threshold": 7}).routes[0].threshold == 7


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ({"topics": ["b", "a"]}, "b"),
        ({"topics": None, "pattern": r"^orders\..*"}, "orders"),
        ({"topics": None, "pattern": r"^(a|b)-[0-9]+$"}, "a-b-0-9"),
        ({"topics": None, "pattern": "^.*"}, "route"),
        ({"name": "own"}, "own"),
    ],
)
def test_a_route_is_named_after_what_it_reads(source: dict[str, Any], name: str) -> None:
    assert settings(source).routes[0].name == name


def test_the_tree_is_frozen() -> None:
    loaded = settings()
    with pytest.raises(ValidationError):
        loaded.drain_seconds = 1.0
    with pytest.raises(ValidationError):
        loaded.routes[0].executors = 1
    with pytest.raises(TypeError):
        loaded.kafka["group.id"] = "x"  # type: ignore[index]


def test_a_tree_made_directly_reads_no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAIN_SECONDS", "99")
    monkeypatch.setenv("SIDECAR_DRAIN_SECONDS", "99")
    assert Settings.model_validate(tree()).drain_seconds == 25


def test_a_health_address_may_be_a_socket() -> None:
    loaded = settings(app={"health": "unix:///run/app.sock:/healthz"})
    assert loaded.app.health == "unix:///run/app.sock:/healthz"


# --- secrets ------------------------------------------------------------------------------------


def test_secrets_show_nowhere_but_where_they_are_asked_for(tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("hush-file\n", encoding="utf-8")
    given = tree(admin={"token": "hush-token"})
    given["kafka"] |= {
        "sasl.password": {"file": str(password)},
        "sasl.username": {"env": "KAFKA_USER"},
        "ssl.key.password": "hush-plain",
    }
    loaded = load_settings(None, {"KAFKA_USER": "hush-user"}, given)
    shown = f"{loaded!r} {loaded} {loaded.model_dump(mode='json')} {loaded.model_dump()} "
    shown += loaded.model_dump_json()
    assert "hush" not in shown
    assert loaded.kafka_text("sasl.password") == "hush-file"
    assert loaded.kafka_text("sasl.username") == "hush-user"
    assert loaded.kafka_text("ssl.key.password") == "hush-plain"


def test_secrets_show_in_no_error() -> None:
    given = tree(admin={"token": "hush token", "prt": "hush"}, drain_seconds=-1)
    given["kafka"] |= {"sasl.password": ["hush"], "ssl.key.pasword": "hush", "sasl.mechanisms": 1}
    with pytest.raises(ConfigError) as caught:
        load_settings(None, {"SIDECAR_TOKEN": "hush"}, given)
    assert "hush" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ({"file": "/nowhere"}, "cannot read /nowhere: No such file or directory"),
        ({"env": "NOWHERE"}, "the environment has no NOWHERE, or it is empty"),
        ({"vault": "x"}, "must be a value, {file: PATH} or {env: NAME}"),
        ({"file": "a", "env": "b"}, "must be a value, {file: PATH} or {env: NAME}"),
    ],
)
def test_a_reference_that_leads_nowhere_is_told(reference: dict[str, str], said: str) -> None:
    given = tree()
    given["kafka"]["sasl.password"] = reference
    with pytest.raises(ConfigError) as caught:
        load_settings(None, {}, given)
    assert str(caught.value) == f"kafka.sasl.password: {said}"


def test_an_empty_or_undecodable_secret_is_told(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    for content, said in ((b"\n", "is empty"), (b"\xff", "is not UTF-8 text")):
        file.write_bytes(content)
        given = tree()
        given["kafka"]["sasl.password"] = {"file": str(file)}
        with pytest.raises(ConfigError) as caught:
            load_settings(None, {}, given)
        assert str(caught.value) == f"kafka.sasl.password: {file} {said}"


def test_a_token_file_is_read_without_its_line_end(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("hush\n", encoding="utf-8")
    token = settings(admin={"token_file": str(file)}).admin.token
    assert token is not None
    assert token.get_secret_value() == "hush"
    file.write_text("\n", encoding="utf-8")
    assert problems(admin={"token_file": str(file)}) == [f"admin.token_file: {file} is empty"]
    file.write_text("hush hush\n", encoding="utf-8")
    assert problems(admin={"token_file": str(file)}) == [
        "admin.token_file: must hold visible ASCII without spaces, and not be empty"
    ]
    file.write_bytes(b"\xff")
    assert problems(admin={"token_file": str(file)}) == [
        f"admin.token_file: {file} is not UTF-8 text"
    ]
    assert problems(admin={"token_file": str(file), "token": "x"}) == [
        "admin.token: is given as well as token_file: keep one of them"
    ]


def test_a_name_no_file_can_have_is_no_such_file() -> None:
    name = "x" * 3000
    assert problems(admin={"token_file": name}) == [
        "admin.token_file: no such file: a path is meant"
    ]


def test_what_is_told_is_never_longer_than_a_person_reads() -> None:
    unknown: dict[str, Any] = {"x" * 5000: 1}
    (told,) = problems(**unknown)
    assert len(told) < 1300


# --- mistakes in single values ------------------------------------------------------------------

ROUTE: list[tuple[dict[str, Any], str]] = [
    ({"timeout_second": 3}, "timeout_second: unknown setting; did you mean timeout_seconds?"),
    ({"zzz": 3}, "zzz: unknown setting; known here: topics, pattern, name, target,"),
    ({"retry": {"attempts": 3}}, "retry.attempts: unknown setting; did you mean max_attempts?"),
    ({"timeout_seconds": "20s"}, "timeout_seconds: must be a number of seconds, not '20s'"),
    ({"timeout_seconds": True}, "timeout_seconds: must be a number, not true"),
    ({"timeout_seconds": 0}, "timeout_seconds: must be greater than 0, not 0"),
    ({"executors": 1.5}, "executors: must be a whole number, not 1.5"),
    ({"executors": True}, "executors: must be a number, not true"),
    ({"executors": -1}, "executors: must be greater than or equal to 0, not -1"),
    ({"executors": 1000000000}, "executors: must be less than or equal to 10000, not 1000000000"),
    ({"threshold": 0}, "threshold: must be greater than or equal to 1, not 0"),
    ({"topics": "orders"}, "topics: must be a list, not 'orders'"),
    ({"topics": [7]}, "topics[0]: must be text, not 7; put it in quotes if it is meant as text"),
    ({"topics": []}, "topics: must not be empty"),
    ({"retry": 3}, "retry: must be a mapping of settings"),
    (
        {"guarantee": "exactly_once"},
        "guarantee: must be one of at_least_once or at_most_once, not exactly_once",
    ),
    (
        {"on_exhausted": "parc"},
        "on_exhausted: must be one of park, drop, halt or retry_forever, not parc",
    ),
    ({"order": "key"}, "order: must be one of none, not key"),
    ({"target": None}, "target: is required: where records are POSTed"),
    ({"target": "ftp://x/"}, "target: a target begins with http://, https:// or unix://"),
    ({"content_type": "nonsense"}, "content_type: must be "),
    ({"tls": {"ca_file": "/nowhere"}}, "tls.ca_file: no such file, not '/nowhere'"),
]

TOP: list[tuple[dict[str, Any], str]] = [
    ({"drain_second": 3}, "drain_second: unknown setting; did you mean drain_seconds?"),
    ({"admin": {"prt": 1}}, "admin.prt: unknown setting; did you mean port?"),
    ({"revoke_seconds": float("nan")}, "revoke_seconds: must be "),
    (
        {"revoke_seconds": float("inf")},
        "revoke_seconds: must be less than or equal to 31536000, not inf",
    ),
    ({"revoke_seconds": -1}, "revoke_seconds: must be greater than or equal to 0, not -1"),
    ({"revoke_seconds": None}, "revoke_seconds: must be a number of seconds, not empty"),
    ({"app": {"health": "x"}}, "app.health: a target begins with http://, https:// or unix://"),
    ({"app": {"health": "http://x/{topic}"}}, "app.health: a health URL takes no placeholders"),
    ({"admin": {"port": 70000}}, "admin.port: must be less than or equal to 65535, not 70000"),
    (
        {"log": {"level": "loud"}},
        "log.level: must be one of debug, info, warning or error, not loud",
    ),
    ({"routes": []}, "routes: must not be empty"),
    ({"routes": {}}, "routes: must be a list"),
    ({"kafka": 5}, "kafka: must be a mapping of librdkafka properties"),
    ({"kafka": {"group.id": "g"}}, "kafka.bootstrap.servers: is required: host:port"),
]


def told(lines: list[str], said: str) -> None:
    """One line that begins like this."""
    (line,) = lines
    assert line.startswith(said)
    assert "\n" not in line


@pytest.mark.parametrize(("route", "said"), ROUTE, ids=str)
def test_a_wrong_value_of_a_route_is_one_line_with_the_way_out(
    route: dict[str, Any], said: str
) -> None:
    told(problems(route), f"routes[0].{said}")


@pytest.mark.parametrize(("top", "said"), TOP, ids=str)
def test_a_wrong_value_is_one_line_with_the_way_out(top: dict[str, Any], said: str) -> None:
    told(problems(**top), said)


def test_every_problem_is_told_at_once() -> None:
    found = problems(
        {"executors": -1, "target": "nowhere"},
        drain_seconds=0,
        log={"level": "loud"},
        kafka={"group.id": "g", "enable.auto.commit": True},
    )
    assert [line.split(":")[0] for line in found] == [
        "kafka.enable.auto.commit", "kafka.bootstrap.servers", "routes[0].target",
        "routes[0].executors", "drain_seconds", "log.level",
    ]  # fmt: skip
