"""Configurations as people, templates and accidents write them: YAML, trees, variables.

What must hold: a tree that can be used, or ConfigError; of that, every problem is one printable
line of a bearable length; and the secrets of the seeds are in no text, as long as they stay where
they belong.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

import yaml

from sidecar.delivery.shapes import batch_shape_of, shape_of
from sidecar.errors import ConfigError
from sidecar.kafka.client_config import consumer_config, prefetch_bytes, producer_config
from sidecar.settings import Settings, load_settings
from tests.fuzz.corpus import kept
from tests.fuzz.spoiling import several

HUSH: Final = "hush"  # every secret of the seeds holds it
LONGEST_PROBLEM: Final = 2000
PIECES: Final = (
    b"\n",
    b"\t",
    b": ",
    b"- ",
    b"  ",
    b"{",
    b"}",
    b"[" * 500,
    b"{a: " * 500,
    b"&a [*a]",
    b"*a",
    b"!!int x",
    b"!!binary a",
    b"!!float x",
    b"!!timestamp x",
    b"!!python/object:os.system {}",
    b"2001-99-99",
    b"2001-01-01",
    b"1" * 5000,
    b"0x",
    b"1e999",
    b".nan",
    b"<<: ",
    b"? ",
    b"|\n",
    b">\n",
    b"\xff",
    b"\x00",
    b"\xe2\x80\xa8",
    b"---\n",
    b"...\n",
    b"%YAML 9.9\n",
    b"null",
    b"yes",
    b"~",
    b"{env: HOME}",
    b"{file: /nowhere}",
)
ODD: Final[tuple[Any, ...]] = (
    None,
    True,
    -1,
    0,
    2**63,
    10**400,
    1e308,
    float("nan"),
    float("inf"),
    "",
    " ",
    "x" * 3000,
    "\x00\n\u2028",
    "ünï",
    "0",
    "{topic}",
    "http://[::1]:0/{x}",
    "unix:///",
    "^(",
    "^" + "(a*)*" * 20,
    [],
    {},
    [[]],
    {"": {}},
    {"env": "HOME"},
    {"env": "NOT_THERE"},
    {"file": "/nowhere"},
    {"file": "/"},
    {"file": "\x00"},
    {0: 1},
    b"\xff",
)
VARIABLES: Final = (
    "SIDECAR_ROUTES",
    "SIDECAR_ROUTES__0",
    "SIDECAR_ROUTES__0__TOPICS",
    "SIDECAR_ROUTES__0__TOPICS__0",
    "SIDECAR_ROUTES__0__EXECUTORS",
    "SIDECAR_ROUTES__0__RETRY",
    "SIDECAR_ROUTES__0__RETRY__TOPICS__0__DELAY_SECONDS",
    "SIDECAR_ROUTES__0__HEADERS",
    "SIDECAR_ROUTES__0__ANSWERS",
    "SIDECAR_ROUTES__0__AUTH__SIGNATURE",
    "SIDECAR_ROUTES__0__AUTH__BEARER__FILE",
    "SIDECAR_ROUTES__999__TARGET",
    "SIDECAR_ROUTES__X",
    "SIDECAR_KAFKA",
    "SIDECAR_KAFKA__GROUP_ID",
    "SIDECAR_KAFKA__SASL_PASSWORD__FILE",
    "SIDECAR_KAFKA____",
    "SIDECAR_ADMIN",
    "SIDECAR_ADMIN__PORT",
    "SIDECAR_ADMIN__TOKEN",
    "SIDECAR_ADMIN__TOKEN_FILE",
    "SIDECAR_DRAIN_SECONDS",
    "SIDECAR_LOG__LEVEL",
    "SIDECAR_PORT",
    "SIDECAR_",
    "SIDECAR_drain_seconds",
)
VALUES: Final = (
    "",
    "1",
    "-1",
    "1e999",
    "[]",
    "{}",
    '{"a": 1}',
    '["a"]',
    "[" * 3000,
    "9" * 5000,
    "tcp://10.0.0.1:80",
    "\udcff",
    "/nowhere",
    "null",
)


class Case(NamedTuple):
    """A file and variables; whether every secret stays in its place."""

    data: bytes
    env: Mapping[str, str]
    keeps_secrets: bool


def case(number: int) -> Case:
    random = Random(number)
    seed = random.choice(_seeds())
    env = {
        random.choice(VARIABLES): random.choice(VALUES)
        for _ in range(random.choice((0, 0, 0, 1, 3)))
    }
    if random.random() < 0.5:
        return Case(several(random, seed, PIECES, _seeds()), env, keeps_secrets=False)
    tree = yaml.safe_load(seed)
    for _ in range(random.choice((0, 1, 1, 2, 5))):
        tree = _changed(random, tree)
    return Case(yaml.safe_dump(tree, allow_unicode=True).encode(), env, keeps_secrets=True)


def kept_case(_name: str, data: bytes) -> Case:
    """An input of the corpus."""
    return Case(data, {}, keeps_secrets=False)


@cache
def _seeds() -> tuple[bytes, ...]:
    """Those that hold a tree."""
    return tuple(data for name, data in kept("configuration").items() if name.startswith("true"))


def _changed(random: Random, node: Any) -> Any:
    """The tree with one node exchanged, taken out, doubled, or under another name."""
    inside = random.random() < 0.85
    if isinstance(node, dict) and node and inside:
        key = random.choice(list(node))
        changed = dict(node)
        match random.randrange(8):
            case 0:
                del changed[key]
            case 1:
                changed[str(key) + random.choice(("s", " ", "\n", "_"))] = changed.pop(key)
            case _:
                changed[key] = _changed(random, node[key])
        return changed
    if isinstance(node, list) and node and inside:
        at = random.randrange(len(node))
        if random.random() < 0.2:
            return [*node, node[at]]
        return [*node[:at], _changed(random, node[at]), *node[at + 1 :]]
    return random.choice(ODD)


@cache
def _file() -> Path:
    directory = tempfile.TemporaryDirectory(prefix="sidecar-fuzz-")
    _kept_alive.append(directory)
    return Path(directory.name) / "sidecar.yaml"


_kept_alive: Final[list[tempfile.TemporaryDirectory[str]]] = []


def judge(case: Case) -> None:
    """Raises Wrong, or what is raised where only ConfigError may be."""
    _file().write_bytes(case.data)
    try:
        settings = load_settings(_file(), case.env)
    except ConfigError as error:
        assert error.problems, "something is wrong, and nobody says what"
        for problem in error.problems:
            said = str(problem)
            assert said.isprintable(), said
            assert len(said) < LONGEST_PROBLEM, "who is to read that?"
            assert not case.keeps_secrets or HUSH not in said, said
        return
    _can_be_used(settings)
    if case.keeps_secrets:
        assert HUSH not in f"{settings!r} {settings.model_dump_json()}"


def _can_be_used(settings: Settings) -> None:
    for route in settings.routes:
        assert consumer_config(settings, route)["enable.auto.commit"] == "false"
        assert producer_config(settings, route)["acks"] == "all"
        assert prefetch_bytes(settings, route) > 0
        assert route.parsed_target.path.startswith("/")
        assert route.answer_table is not None
        shape_of(route, "b")
        batch_shape_of(route, "b")
        settings.retry_topics(route)
