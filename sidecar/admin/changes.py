"""One change by an operator: allowed, not made on outdated knowledge, carried out, and told.

Every change is one line of the audit log: who, what, before, after. That logger has a level of its
own, so that no log level hides it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import asdict, is_dataclass
from difflib import get_close_matches
from enum import Enum
from typing import Annotated, Any, Final, TypeVar

from fastapi import Depends, Header, HTTPException, Request, Response

from sidecar.admin.access import Allowed
from sidecar.admin.control import Control
from sidecar.admin.view import View
from sidecar.status import RouteStatus

T = TypeVar("T")

audit: Final = logging.getLogger("sidecar.audit")
audit.setLevel(logging.INFO)


def find_route(view: View, name: str) -> RouteStatus:
    """The route; raises 404, which names the one that was probably meant."""
    known = {each.name: each for each in view.routes()}
    if name in known:
        return known[name]
    nearest = get_close_matches(name, known, n=1)
    hint = f"did you mean {nearest[0]}?" if nearest else f"there are: {', '.join(known)}"
    raise HTTPException(404, f"no route has this name; {hint}")


def etag(route: RouteStatus) -> str:
    return f'"{route.generation}"'


def etag_of_all(routes: Iterable[RouteStatus]) -> str:
    """Changes whenever an operator changes any route."""
    return f'"{"-".join(str(route.generation) for route in routes)}"'


class Change:
    """A change that the one who asks may make."""

    def __init__(
        self, view: View, control: Control, who: str, if_match: str | None, response: Response
    ) -> None:
        self.view = view
        self.control = control
        self._who = who
        self._if_match = if_match
        self._response = response

    def of_route(self, name: str, what: str, act: Callable[[], T], read: Callable[..., Any]) -> T:
        """Carry out act; read tells from a RouteStatus what there is to see before and after."""
        before = find_route(self.view, name)
        self.check_match(before)
        done = act()
        after = find_route(self.view, name)
        self._response.headers["etag"] = etag(after)
        self.tell(f"{what} of route {name}", read(before), read(after))
        return done

    def tell(self, what: str, before: object, after: object) -> None:
        audit.info(
            "by %s: %s: %s -> %s",
            self._who,
            what,
            _short(before),
            _short(after),
            extra={
                "by": self._who,
                "change": what,
                "before": before_after(before),
                "after": before_after(after),
            },
        )

    def check_match(self, route: RouteStatus) -> None:
        self.check_tag(etag(route), "the route")

    def check_tag(self, now: str, what: str) -> None:
        """Raises 412 where the one who asks has read an older state; now: the ETag as it is."""
        if self._if_match is None:
            return
        tags = {tag.strip() for tag in self._if_match.split(",")}
        if not tags & {"*", now}:
            raise HTTPException(
                412,
                f"somebody changed {what} since you read it; read it again",
                headers={"etag": now},
            )


def before_after(value: object) -> object:
    """As it is to stand in a log."""
    if isinstance(value, Enum):
        return value.value
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return value


def _short(value: object) -> object:
    plain = before_after(value)
    if isinstance(plain, dict):
        return ", ".join(f"{name} {each}" for name, each in plain.items())
    return "none" if plain is None else plain


async def _change(
    request: Request,
    response: Response,
    who: Allowed,
    if_match: Annotated[
        str | None,
        Header(description="the ETag of what you have read: 412 if it was changed since"),
    ] = None,
) -> Change:
    state = request.app.state
    return Change(state.view, state.control, who, if_match, response)


AskedChange = Annotated[Change, Depends(_change)]
