"""What a route tells its fetch thread. A closed set, in the order in which it is posted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sidecar.model import Position


class Wake(NamedTuple):
    """There is room again."""


class Commit(NamedTuple):
    """Commit these without waiting; answered by commit_done. One at a time."""

    positions: Sequence[Position]


class Clear(NamedTuple):
    """Commit these before their records are dispatched; answered by commit_done.

    The answer tells for certain what is committed: where the broker's answer was lost, it is
    read back first. One at a time. more: other records wait to be cleared after these, so the
    next command is not far. batches: how many batches of records the route had received by then.
    """

    positions: Sequence[Position]
    more: bool
    batches: int


class Revoked(NamedTuple):
    """The answer to FetchSink.revoke: what can be committed for these assignments."""

    request: int
    positions: Sequence[Position]


class StopFetching(NamedTuple):
    """Hand nothing over any more; stay in the group and serve its callbacks."""


class Leave(NamedTuple):
    """Leave the group, with its callbacks, and stay alive."""


class Rejoin(NamedTuple):
    """Join the group again."""


class Renew(NamedTuple):
    """Leave the group, make the client anew, and join again."""


class Finish(NamedTuple):
    """Commit these, leave the group and end. A second one: with one more try at most."""

    positions: Sequence[Position]


Command = Wake | Commit | Clear | Revoked | StopFetching | Leave | Rejoin | Renew | Finish
