"""Dead letters that would come back: what a pattern leaves out, and the loops that are refused.

Pure functions of the frozen tree. A pattern that matches a dead-letter topic, its own or another
route's, or a retry topic of another group does not read it: the client leaves it out (excluded).
The other loops are refused at start.

Where they are left out: a member of the classic protocol matches the pattern itself, and the leader
of the group leaves out the same topics for all its members. So what another route of the same group
reads by name cannot be left out (checks refuses that pair), and with group.protocol: consumer,
where the broker matches the pattern, nothing can.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from sidecar.errors import Problem

if TYPE_CHECKING:
    from sidecar.settings.route import RouteSettings
    from sidecar.settings.tree import Settings


def excluded(settings: Settings, route: RouteSettings) -> list[str]:
    """The topics that the route's pattern matches and that it must not read."""
    if route.pattern is None:
        return []
    written = {topic for other in settings.routes if (topic := _parked(other)) is not None}
    for other in settings.routes:
        if settings.group_of(other) != settings.group_of(route):
            written.update(topic.name for topic in settings.retry_topics(other))
    return sorted(topic for topic in written if route.reads(topic))


def _parked(route: RouteSettings) -> str | None:
    return None if route.dead_letter is None else route.dead_letter.topic


def loop_problems(settings: Settings) -> Iterator[Problem]:
    yield from _own_topic_problems(settings)
    yield from _cycle_problems(settings)
    yield from _broker_matched_problems(settings)


def _own_topic_problems(settings: Settings) -> Iterator[Problem]:
    for index, route in enumerate(settings.routes):
        if (topic := _parked(route)) in (route.topics or ()):
            yield Problem(
                f"routes[{index}].dead_letter.topic",
                f"{topic!r} is read by the same route, which would be a loop: choose"
                " a name that it does not read",
            )


def _cycle_problems(settings: Settings) -> Iterator[Problem]:
    """Dead letters that come back to where they were parked, over any number of routes."""
    routes = settings.routes
    follows = {
        index: [
            other
            for other, reader in enumerate(routes)
            if other != index and _parked(route) in (reader.topics or ())
        ]
        for index, route in enumerate(routes)
    }
    for index, route in enumerate(routes):
        if way := _way_back(follows, index):
            through = ", then ".join(f"routes[{each}]" for each in way)
            yield Problem(
                f"routes[{index}].dead_letter.topic",
                f"{_parked(route)!r} is read by {through}, whose dead letters come back"
                " here: break the loop",
            )


def _way_back(follows: dict[int, list[int]], start: int) -> list[int]:
    """The shortest way from start to itself, without start; empty where there is none."""
    ways = [[each] for each in follows[start]]
    seen = set(follows[start])
    for way in ways:
        for following in follows[way[-1]]:
            if following == start:
                return way
            if following not in seen:
                seen.add(following)
                ways.append([*way, following])
    return []


def _broker_matched_problems(settings: Settings) -> Iterator[Problem]:
    if settings.kafka_text("group.protocol", "classic").lower() != "consumer":
        return
    for index, route in enumerate(settings.routes):
        for topic in excluded(settings, route):
            yield Problem(
                f"routes[{index}].pattern",
                f"matches {topic!r}, where dead letters or retries are written, and with"
                " group.protocol: consumer the broker matches it, which can leave nothing out:"
                " choose another name for that topic, or group.protocol: classic",
            )
