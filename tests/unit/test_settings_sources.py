"""Flags over environment over file, single fields included, and what each is refused for."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from sidecar.errors import ConfigError
from sidecar.settings import Settings, load_settings

BASE: dict[str, Any] = {
    "kafka": {"bootstrap.servers": "file:1", "group.id": "file"},
    "routes": [
        {"topics": ["a"], "target": "http://127.0.0.1:1/", "executors": 3},
        {"topics": ["b"], "target": "http://127.0.0.1:1/", "executors": 4},
    ],
}


def from_file(
    tmp_path: Path, text: str, env: Mapping[str, str], overrides: Mapping[str, Any] | None = None
) -> Settings:
    file = tmp_path / "sidecar.yaml"
    file.write_text(text, encoding="utf-8")
    return load_settings(file, env, overrides)


@pytest.fixture
def base(tmp_path: Path) -> Path:
    file = tmp_path / "sidecar.yaml"
    file.write_text(yaml.safe_dump(BASE), encoding="utf-8")
    return file


def refusals(file: Path | None, env: Mapping[str, str]) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load_settings(file, env)
    return [str(problem) for problem in caught.value.problems]


def told(env: Mapping[str, str], tree: dict[str, Any]) -> list[str]:
    """The problems of a tree that need not have any; any other error is a failure."""
    try:
        load_settings(None, env, tree)
    except ConfigError as error:
        return [str(problem) for problem in error.problems]
    return []


# --- precedence ---------------------------------------------------------------------------------


def test_the_environment_comes_before_the_file_field_by_field(base: Path) -> None:
    loaded = load_settings(
        base,
        {
            "SIDECAR_KAFKA__BOOTSTRAP_SERVERS": "env:1",
            "SIDECAR_ROUTES__1__EXECUTORS": "9",
            "SIDECAR_ROUTES__1__RETRY__MAX_ATTEMPTS": "2",
            "SIDECAR_COMMIT_INTERVAL_SECONDS": "0.5",
            "SIDECAR_ADMIN__TOKEN": "abc",
            "UNRELATED": "x",
        },
    )
    assert loaded.kafka_text("bootstrap.servers") == "env:1"
    assert loaded.kafka_text("group.id") == "file"
    assert [route.executors for route in loaded.routes] == [3, 9]
    assert [route.retry.max_attempts for route in loaded.routes] == [5, 2]
    assert loaded.commit_interval_seconds == 0.5
    assert loaded.admin.token is not None


def test_flags_come_before_the_environment(base: Path) -> None:
    loaded = load_settings(
        base,
        {"SIDECAR_ROUTES__0__EXECUTORS": "9", "SIDECAR_ROUTES__0__THRESHOLD": "8"},
        {"routes": {0: {"executors": "7"}}, "kafka": {"group.id": "flag"}},
    )
    assert (loaded.routes[0].executors, loaded.routes[0].threshold) == (7, 8)
    assert loaded.kafka_text("group.id") == "flag"
    assert loaded.kafka_text("bootstrap.servers") == "file:1"


def test_a_whole_list_in_a_variable_replaces_the_files(base: Path) -> None:
    loaded = load_settings(
        base,
        {
            "SIDECAR_ROUTES": json.dumps([{"topics": ["c"], "target": "http://127.0.0.1:1/"}]),
            "SIDECAR_ROUTES__0__EXECUTORS": "5",
        },
    )
    assert [(route.name, route.executors) for route in loaded.routes] == [("c", 5)]


def test_one_item_of_a_list_inside_a_list_is_overlaid(base: Path) -> None:
    loaded = load_settings(base, {"SIDECAR_ROUTES__1__TOPICS__1": "c"})
    assert [route.topics for route in loaded.routes] == [("a",), ("b", "c")]


def test_a_configuration_may_come_from_the_environment_alone() -> None:
    loaded = load_settings(
        None,
        {
            "SIDECAR_KAFKA__BOOTSTRAP_SERVERS": "env:1",
            "SIDECAR_KAFKA__GROUP_ID": "g",
            "SIDECAR_KAFKA__SASL_PASSWORD__ENV": "PASSWORD",
            "SIDECAR_KAFKA__LOG_LEVEL": "3",
            "PASSWORD": "hush",
            "SIDECAR_ROUTES__0__TOPICS": '["a", "b"]',
            "SIDECAR_ROUTES__0__TARGET": "http://127.0.0.1:1/",
            "SIDECAR_ROUTES__0__HEADERS_ALWAYS": "true",
            "SIDECAR_ROUTES__0__DEAD_LETTER__TOPIC": "dlq",
        },
    )
    (route,) = loaded.routes
    assert route.topics == ("a", "b")
    assert route.headers_always
    assert route.dead_letter is not None
    assert loaded.kafka_text("sasl.password") == "hush"
    assert loaded.kafka_text("log_level") == "3"  # a real underscore


def test_an_empty_variable_takes_away_what_may_be_absent(base: Path) -> None:
    assert load_settings(base, {"SIDECAR_ADMIN__SOCKET": ""}).admin.socket is None


def test_a_reference_that_is_overridden_need_not_be_readable(tmp_path: Path) -> None:
    text = yaml.safe_dump({**BASE, "kafka": {**BASE["kafka"], "sasl.password": {"file": "/no"}}})
    loaded = from_file(tmp_path, text, {"SIDECAR_KAFKA__SASL_PASSWORD": "hush"})
    assert loaded.kafka_text("sasl.password") == "hush"


EXECUTORS = st.none() | st.integers(0, 100)


@given(
    file=st.lists(EXECUTORS, min_size=1, max_size=4),
    env=st.dictionaries(st.integers(0, 3), st.integers(0, 100)),
    flags=st.dictionaries(st.integers(0, 3), st.integers(0, 100)),
)
def test_each_field_comes_from_the_first_source_that_gives_it(
    tmp_path_factory: pytest.TempPathFactory,
    file: list[int | None],
    env: dict[int, int],
    flags: dict[int, int],
) -> None:
    routes = [
        {"topics": [f"t{index}"], "target": "http://127.0.0.1:1/"}
        | ({} if count is None else {"executors": count})
        for index, count in enumerate(file)
    ]
    env = {index: count for index, count in env.items() if index < len(file)}
    flags = {index: count for index, count in flags.items() if index < len(file)}
    path = tmp_path_factory.getbasetemp() / "merged.yaml"
    path.write_text(yaml.safe_dump({**BASE, "routes": routes}), encoding="utf-8")
    loaded = load_settings(
        path,
        {f"SIDECAR_ROUTES__{index}__EXECUTORS": str(count) for index, count in env.items()},
        {"routes": {index: {"executors": count} for index, count in flags.items()}},
    )
    said = [flags.get(i, env.get(i, count)) for i, count in enumerate(file)]
    assert [route.executors for route in loaded.routes] == [
        16 if count is None else count for count in said
    ]


# --- variables ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SIDECAR_SERVICE_HOST", "10.0.0.7"),
        ("SIDECAR_SERVICE_PORT", "8090"),
        ("SIDECAR_SERVICE_PORT_ADMIN", "8090"),
        ("SIDECAR_PORT", "tcp://10.0.0.7:8090"),
        ("SIDECAR_PORT_8090_TCP", "tcp://10.0.0.7:8090"),
        ("SIDECAR_PORT_8090_TCP_ADDR", "10.0.0.7"),
        ("SIDECAR_PORT_8090_TCP_PORT", "8090"),
        ("SIDECAR_PORT_8090_TCP_PROTO", "tcp"),
        ("SIDECAR_PORT_53_UDP", "udp://10.0.0.7:53"),
        ("SIDECAR_ADMIN_SERVICE_HOST", "10.0.0.7"),
        ("SIDECAR_ADMIN_PORT", "tcp://10.0.0.7:8090"),
        ("SIDECAR_ADMIN_PORT_8090_TCP", "tcp://10.0.0.7:8090"),
    ],
)
def test_what_kubernetes_sets_for_a_service_of_that_name_is_no_setting(
    base: Path, name: str, value: str
) -> None:
    loaded = load_settings(base, {name: value})
    assert loaded.admin.port == 8090
    assert loaded == load_settings(base, {})


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("SIDECAR_ADMIN_PORT", "9", "unknown variable; did you mean SIDECAR_ADMIN__PORT?"),
        ("SIDECAR_ADMIN__PRT", "9", "unknown variable; did you mean SIDECAR_ADMIN__PORT?"),
        ("SIDECAR_DRAIN_SECOND", "9", "unknown variable; did you mean SIDECAR_DRAIN_SECONDS?"),
        (
            "SIDECAR_ROUTES__1__EXECUTOR",
            "9",
            "unknown variable; did you mean SIDECAR_ROUTES__1__EXECUTORS?",
        ),
        (
            "SIDECAR_BOOTSTRAP_SERVERS",
            "x:1",
            "unknown variable; did you mean SIDECAR_KAFKA__BOOTSTRAP_SERVERS?",
        ),
        (
            "SIDECAR_QQQ",
            "9",
            "unknown variable: remove it, or see docs/configuration.md for the names",
        ),
        ("SIDECAR_ROUTES", "[", "must hold JSON: Expecting value: line 1 column 2 (char 1)"),
        ("SIDECAR_KAFKA", "x=y", "must hold JSON: Expecting value: line 1 column 1 (char 0)"),
    ],
)
def test_a_variable_that_is_no_setting_is_refused(
    base: Path, name: str, value: str, said: str
) -> None:
    assert refusals(base, {name: value}) == [f"{name}: {said}"]


def test_a_wrong_value_names_its_variable(base: Path) -> None:
    (line,) = refusals(base, {"SIDECAR_ROUTES__1__EXECUTORS": "many"})
    assert line.startswith("routes[1].executors: must be a whole number, not 'many'")
    assert line.endswith(" (set by SIDECAR_ROUTES__1__EXECUTORS)")
    (line,) = refusals(base, {"SIDECAR_KAFKA__GROP_ID": "x"})
    assert line.startswith("kafka.grop.id: unknown librdkafka property; did you mean group.id?")
    assert line.endswith(" (set by SIDECAR_KAFKA__GROP_ID)")


def test_a_variable_beyond_the_list_is_refused(base: Path) -> None:
    (line,) = refusals(base, {"SIDECAR_ROUTES__2__EXECUTORS": "1"})
    assert line.startswith("routes[2].target: is required")
    env = {"SIDECAR_ROUTES": "[]", "SIDECAR_ROUTES__0__EXECUTORS": "1"}
    assert "SIDECAR_ROUTES__0__EXECUTORS: the list has no item 0: it has 0" in refusals(base, env)


@given(st.text("ABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789", max_size=20), st.text(max_size=5))
def test_any_variable_is_a_setting_or_ignored_or_told_by_name(name: str, value: str) -> None:
    """Nothing but a ConfigError comes out, and what is unknown is named."""
    variable = f"SIDECAR_{name}"
    assert all("\n" not in line for line in told({variable: value}, copy.deepcopy(BASE)))


def test_variables_that_are_no_text_or_nested_without_end_are_told() -> None:
    name = "SIDECAR_ROUTES"
    assert f"{name}: is not UTF-8 text" in refusals(None, {name: "\udcff"})
    assert f"{name}: must hold JSON that is nested less deeply" in refusals(
        None, {name: "[" * 100_000}
    )


def test_a_variable_in_place_of_a_mapping_is_told(tmp_path: Path) -> None:
    file = tmp_path / "sidecar.yaml"
    file.write_text("kafka: {bootstrap.servers: x}\n", encoding="utf-8")
    assert "kafka: must be a mapping of librdkafka properties (set by SIDECAR_KAFKA)" in refusals(
        file, {"SIDECAR_KAFKA": "1"}
    )


# --- file ---------------------------------------------------------------------------------------


LAUGHS = "a0: &a0 [x, x]\n" + "".join(
    f"a{number}: &a{number} [*a{number - 1}, *a{number - 1}]\n" for number in range(1, 40)
)


@pytest.mark.parametrize(
    ("text", "where", "said"),
    [
        ("kafka: {a: [}\n", ":1:13", "is not valid YAML: while parsing a flow node"),
        ("a: 1\nb: 2\na: 3\n", ":3:1", "is not valid YAML: a is given twice: remove one"),
        ("kafka:\n  x: 1\n  x: 2\n", ":3:3", "is not valid YAML: x is given twice"),
        ("kafka:\n\tx: 1\n", ":2:1", "is not valid YAML: while scanning"),
        ("on: 1\n", ":1:1", "is not valid YAML: the key on is not text: put it in quotes"),
        ("? [a]\n: 1\n", ":1:3", "is not valid YAML: the key"),
        ("a: !!python/object:os.x {}\n", ":1:4", "is not valid YAML: a value that begins with !"),
        ("a: *b\n", ":1:4", "is not valid YAML: a value that begins with *"),
        ("a: 1\n---\nb: 1\n", ":2:1", "is not valid YAML: expected a single document"),
        ("", "", "is empty; it begins with kafka: and routes:"),
        ("- 1\n", "", "must hold a mapping of settings; it begins with kafka: and routes:"),
        ("a: \x00\n", "", "is not valid YAML: unacceptable character"),
        ("a: 2001-99-99\n", ":1:4", "is not valid YAML: a value is not what it looks like"),
        ("a: !!int x\n", ":1:4", "is not valid YAML: a value is not what it looks like"),
        (f"a: {'1' * 5000}\n", ":1:4", "is not valid YAML: a value is not what it looks like"),
        ('a: "\\ud800"\n', ":1:4", "is not valid YAML: half of a pair"),
        (f"a: {'[' * 1200}\n", "", "is nested too deeply"),
        ("a: &a [*a]\n", "", "holds too many values, by its aliases"),
        (LAUGHS, "", "holds too many values, by its aliases"),
    ],
)
def test_a_file_that_is_no_tree_is_told_with_its_line(
    tmp_path: Path, text: str, where: str, said: str
) -> None:
    file = tmp_path / "sidecar.yaml"
    file.write_text(text, encoding="utf-8")
    (line,) = refusals(file, {})
    assert line.startswith(f"{file}{where}: {said}"), line


def test_a_file_that_cannot_be_read_is_told_once(tmp_path: Path) -> None:
    assert refusals(tmp_path / "no", {}) == [
        f"{tmp_path / 'no'}: cannot be read: No such file or directory"
    ]
    assert refusals(tmp_path, {}) == [f"{tmp_path}: cannot be read: Is a directory"]
    (tmp_path / "latin").write_bytes(b"a: \xe9\n")
    assert refusals(tmp_path / "latin", {}) == [f"{tmp_path / 'latin'}: is not UTF-8 text"]


def test_merge_keys_work(tmp_path: Path) -> None:
    text = """
kafka: {bootstrap.servers: "x:1", group.id: g}
routes:
  - &first {topics: [a], target: "http://127.0.0.1:1/", executors: 2}
  - {<<: *first, topics: [b]}
"""
    loaded = from_file(tmp_path, text, {})
    assert [(route.name, route.executors) for route in loaded.routes] == [("a", 2), ("b", 2)]


@example({"\n": None})
@given(st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(["kafka", "routes", "topics", "target", "retry", "admin", "token", "file"])
        | st.text(max_size=5),
        inner,
        max_size=4,
    ),
    max_leaves=12,
))  # fmt: skip
def test_any_tree_loads_or_is_refused_with_problems(tree: Any) -> None:
    """No shape of input ends in anything but settings or a ConfigError of one-line problems."""
    given = tree if isinstance(tree, dict) else {"routes": tree}
    assert all("\n" not in line for line in told({}, given))
