"""Checks of retry topics: private to one route, and out of everybody's way.

Pure functions of the frozen tree, as those in checks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from sidecar.core.topic_names import LEGAL_TOPIC
from sidecar.errors import Problem
from sidecar.model import Guarantee, RelieveBy

if TYPE_CHECKING:
    from sidecar.settings.route import RouteSettings
    from sidecar.settings.tree import Settings


def retry_problems(route: RouteSettings) -> Iterator[Problem]:
    """Of one route by itself."""
    if route.retry.topics and route.guarantee is Guarantee.AT_MOST_ONCE:
        yield Problem(
            "retry.topics",
            "would deliver again what may have been processed, which at_most_once promises not to"
            " do: remove them, or choose at_least_once",
        )
    for index, topic in enumerate(route.retry.topics):
        if topic.topic is not None and not LEGAL_TOPIC.fullmatch(topic.topic):
            yield Problem(
                f"retry.topics[{index}].topic", f"{topic.topic!r} is not a legal topic name"
            )
    if route.guarantee is Guarantee.AT_MOST_ONCE:
        for name in ("relieve_after_seconds", "relieve_by"):
            if name in route.model_fields_set:
                yield Problem(
                    name,
                    "says nothing in at_most_once, whose commits wait for no record: remove it",
                )
    elif route.relieve_by is RelieveBy.PARK and route.dead_letter is None:
        yield Problem("relieve_by", "park needs a place: add dead_letter: {topic: …}")


def retry_topic_problems(settings: Settings) -> Iterator[Problem]:
    """Of the names, those that were made up included, against everything else."""
    taken: dict[str, str] = {}
    dead = {
        route.dead_letter.topic: f"routes[{index}].dead_letter.topic"
        for index, route in enumerate(settings.routes)
        if route.dead_letter is not None
    }
    for index, route in enumerate(settings.routes):
        for tier, topic in enumerate(settings.retry_topics(route)):
            path = f"routes[{index}].retry"
            if tier > 0:
                path += f".topics[{tier - 1}]"
            said = f"the topic {topic.name!r}"
            if topic.name in taken:
                yield Problem(
                    path, f"{said} is that of {taken[topic.name]} as well: give it another name"
                )
            elif topic.name in dead:
                yield Problem(
                    path, f"{said} is {dead[topic.name]} as well: give one of them another name"
                )
            elif (reader := _reader(settings, route, topic.name)) is not None:
                yield Problem(
                    path,
                    f"{said} is read by routes[{reader}], which would deliver records before they"
                    " are due and not as their originals: choose a name that nobody reads",
                )
            taken.setdefault(topic.name, path)


def _reader(settings: Settings, route: RouteSettings, name: str) -> int | None:
    """Who reads it as a topic like any other.

    The route's own pattern may match it, and patterns of other groups leave it out (topics).
    """
    for index, other in enumerate(settings.routes):
        if name in (other.topics or ()):
            return index
        same_group = settings.group_of(other) == settings.group_of(route)
        if other is not route and same_group and other.reads(name):
            return index
    return None
