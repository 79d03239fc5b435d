"""A configuration that will run in another place: judged like here, but for what only is there."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from sidecar.errors import ConfigError
from sidecar.settings import load_settings, settings_elsewhere
from tests.unit.test_settings_checks import KAFKA, REFUSED, ROUTE, ROUTES


def told(load: Any, tree: Any) -> list[str]:
    try:
        load(copy.deepcopy(tree))
    except ConfigError as error:
        return [str(each) for each in error.problems]
    return []


def here(tree: Any) -> Any:
    return load_settings(None, {}, tree)


@pytest.mark.parametrize("route", [route for route, said in ROUTES if "tls." not in said], ids=str)
def test_a_route_is_refused_in_the_same_words(route: dict[str, Any]) -> None:
    tree = {"kafka": KAFKA, "routes": [{**ROUTE, **route}]}
    assert told(settings_elsewhere, tree) == told(here, tree) != []


@pytest.mark.parametrize("given", [given for given, _ in REFUSED], ids=str)
def test_a_property_is_refused_in_the_same_words(given: dict[str, Any]) -> None:
    tree = {"kafka": {**KAFKA, **given}, "routes": [ROUTE]}
    assert told(settings_elsewhere, tree) == told(here, tree) != []


REFERENCES: list[dict[str, Any]] = [
    {"kafka": {**KAFKA, "sasl.password": {"file": "/nowhere/password"}}},
    {"kafka": {**KAFKA, "group.instance.id": {"env": "POD_NAME"}}},
    {"kafka": {"bootstrap.servers": {"env": "KAFKA"}, "group.id": {"file": "/nowhere/group"}}},
    {"kafka": {**KAFKA, "session.timeout.ms": {"env": "SESSION"}}},
    {"kafka": {**KAFKA, "isolation.level": {"env": "ISOLATION"}}},
    {"kafka": {**KAFKA, "partition.assignment.strategy": {"env": "STRATEGY"}}},
    {
        "kafka": {
            **KAFKA,
            "security.protocol": {"env": "PROTOCOL"},
            "sasl.mechanisms": "aws_msk_iam",
        }
    },
    {
        "kafka": {
            **KAFKA,
            "sasl.mechanisms": "OAUTHBEARER",
            "sasl.oauthbearer.method": {"env": "METHOD"},
        }
    },
    {"routes": [{**ROUTE, "auth": {"bearer": {"file": "/nowhere/token"}}}]},
    {"routes": [{**ROUTE, "auth": {"signature": {"env": "KEY"}}}]},
    {"routes": [{**ROUTE, "headers": {"X-Key": {"env": "KEY"}, "X-Team": "shop"}}]},
    {"routes": [{**ROUTE, "target": "https://app/", "tls": {"ca_file": "/nowhere/ca"}}]},
    {
        "routes": [
            {
                **ROUTE,
                "target": "https://app/",
                "tls": {"cert_file": "/nowhere/crt", "key_file": "/nowhere/key"},
            }
        ]
    },
    {"admin": {"token_file": "/nowhere/token"}},
    {"tracing": {"enabled": True}},
]


@pytest.mark.parametrize("part", REFERENCES, ids=str)
def test_what_is_there_and_not_here_is_taken_to_be_right(part: dict[str, Any]) -> None:
    tree = {"kafka": KAFKA, "routes": [ROUTE], **part}
    assert told(settings_elsewhere, tree) == []


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ({"kafka": {**KAFKA, "sasl.password": {"file": 5}}}, "kafka.sasl.password: must be a val"),
        ({"kafka": {**KAFKA, "sasl.pasword": {"env": "A"}}}, "kafka.sasl.pasword: unknown librd"),
        ({"kafka": {**KAFKA, "sasl.mechanisms": "AWS_MSK_IAM"}}, "kafka.security.protocol: must"),
        ({"routes": [{**ROUTE, "auth": {"bearer": {"env": "A", "b": 1}}}]}, "routes[0].auth.bear"),
        ({"routes": [{**ROUTE, "headers": {"Host": {"env": "A"}}}]}, "routes[0].headers.Host: is"),
        (
            {"routes": [{**ROUTE, "target": "https://a/", "tls": {"key_file": "/nowhere"}}]},
            "routes[0].tls: needs cert_file and key_file together",
        ),
        (
            {"routes": [{**ROUTE, "target": "https://a/", "tls": {"ca_file": 5}}]},
            "routes[0].tls.ca_file: must be ",
        ),
        ({"admin": {"token_file": "/nowhere", "token": "a"}}, "admin.token: is given as well as"),
        ({"admin": {"token_file": 5}}, "admin.token_file: must be "),
        ({"tracing": {"enabled": "perhaps"}}, "tracing.enabled: must be "),
        ({"kafka": "hush"}, "kafka: must be a mapping of librdkafka properties"),
        ({"routes": ["hush"]}, "routes[0]: must be a mapping of settings"),
        ({"routes": "hush"}, "routes: must be a list"),
    ],
    ids=str,
)
def test_how_it_is_referred_to_is_judged(part: dict[str, Any], said: str) -> None:
    (problem,) = told(settings_elsewhere, {"kafka": KAFKA, "routes": [ROUTE], **part})
    assert problem.startswith(said)


def test_nothing_of_what_is_given_is_changed() -> None:
    for part in REFERENCES:
        tree = {"kafka": KAFKA, "routes": [ROUTE], **part}
        before = copy.deepcopy(tree)
        settings_elsewhere(tree)
        assert tree == before
