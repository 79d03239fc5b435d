"""Retry topics in the settings: their names, and what keeps them out of everybody's way."""

from __future__ import annotations

from typing import Any

import pytest

from sidecar.errors import ConfigError
from sidecar.settings import Settings, load_settings
from sidecar.settings.topics import excluded

KAFKA = {"bootstrap.servers": "127.0.0.1:9092", "group.id": "billing"}
ROUTE = {"topics": ["orders"], "target": "http://127.0.0.1:8080/"}
TIERS = {"topics": [{"delay_seconds": 60}, {"delay_seconds": 600}]}
NAMES = ["orders.billing.retry.0s", "orders.billing.retry.60s", "orders.billing.retry.600s"]


def load(*routes: dict[str, Any]) -> Settings:
    tree = {"kafka": KAFKA, "routes": [{**ROUTE, **route} for route in routes]}
    return load_settings(None, {}, tree)


def told(*routes: dict[str, Any]) -> str:
    """The one problem there is."""
    with pytest.raises(ConfigError) as caught:
        load(*routes)
    (problem,) = caught.value.problems
    return str(problem)


def names(tree: Settings, route: int = 0) -> list[str]:
    return [topic.name for topic in tree.retry_topics(tree.routes[route])]


def test_names_say_route_group_and_delay() -> None:
    tree = load({"retry": TIERS})
    assert names(tree) == NAMES
    assert names(load({"dead_letter": {"topic": "dead"}})) == NAMES[:1]
    assert names(load({})) == []
    given = {"topics": [{"delay_seconds": 1.5, "topic": "mine"}]}
    assert names(load({"retry": given})) == ["orders.billing.retry.0s", "mine"]


def test_nothing_is_delivered_again_that_at_most_once_may_have_processed() -> None:
    route = {"guarantee": "at_most_once", "loss_budget": 10, "retry": TIERS}
    assert told(route).startswith("routes[0].retry.topics: would deliver again what may have been")
    parks = {**route, "retry": {}, "dead_letter": {"topic": "dead"}}
    assert names(load(parks)) == []


def test_the_own_pattern_may_match_them() -> None:
    tree = load({"topics": None, "pattern": "^orders", "name": "orders", "retry": TIERS})
    assert names(tree) == NAMES


OTHER = {"name": "other", "group_id": "other"}


TOPICS: list[tuple[list[dict[str, Any]], str]] = [
    (
        [{"retry": {"topics": [{"delay_seconds": 1, "topic": "a b"}]}}],
        "routes[0].retry.topics[0].topic: 'a b' is not a legal topic name",
    ),
    (
        [{"retry": {"topics": [{"delay_seconds": 60}, {"delay_seconds": 60}]}}],
        f"routes[0].retry.topics[1]: the topic {NAMES[1]!r} is that of routes[0].retry.topics",
    ),
    (
        [{"retry": {"topics": [{"delay_seconds": 1, "topic": "orders"}]}}],
        "routes[0].retry.topics[0]: the topic 'orders' is read by routes[0]",
    ),
    (
        [{"topics": ["orders", NAMES[0]], "retry": TIERS}],
        f"routes[0].retry: the topic {NAMES[0]!r} is read by routes[0]",
    ),
    (
        [
            {
                "dead_letter": {"topic": "dead"},
                "retry": {"topics": [{"delay_seconds": 1, "topic": "dead"}]},
            }
        ],
        "routes[0].retry.topics[0]: the topic 'dead' is routes[0].dead_letter.topic as well",
    ),
    (
        [
            {"retry": TIERS},
            {**OTHER, "topics": None, "pattern": "^.*retry.60s", "group_id": "billing"},
        ],
        f"routes[0].retry.topics[0]: the topic {NAMES[1]!r} is read by routes[1]",
    ),
    (
        [
            {"retry": {"topics": [{"delay_seconds": 1, "topic": "later"}]}},
            {**OTHER, "topics": ["x"], "dead_letter": {"topic": "later"}},
        ],
        "routes[0].retry.topics[0]: the topic 'later' is routes[1].dead_letter.topic as well",
    ),
    (
        [
            {"retry": {"topics": [{"delay_seconds": 1, "topic": "later"}]}},
            {
                **OTHER,
                "topics": ["x"],
                "retry": {"topics": [{"delay_seconds": 1, "topic": "later"}]},
            },
        ],
        "routes[1].retry.topics[0]: the topic 'later' is that of routes[0].retry.topics[0]",
    ),
    ([{"relieve_by": "park"}], "routes[0].relieve_by: park needs a place: add dead_letter"),
]


@pytest.mark.parametrize(("routes", "said"), TOPICS)
def test_topics_that_are_in_each_others_way_are_refused(
    routes: list[dict[str, Any]], said: str
) -> None:
    """DLQ-6: nobody swallows retries, and nothing goes round in circles."""
    assert told(*routes).startswith(said)


def test_the_pattern_of_another_group_leaves_retry_topics_out() -> None:
    tree = load({"retry": TIERS}, {**OTHER, "topics": None, "pattern": "^.*"})
    assert excluded(tree, tree.routes[1]) == sorted(NAMES)
    assert excluded(tree, tree.routes[0]) == []
