"""A record goes to the application over HTTP, and a result comes back."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from sidecar.core.target import Target, parse_target
from sidecar.delivery.probe import Probe
from sidecar.delivery.request import RequestEncoder
from sidecar.delivery.wire import WireDelivery
from sidecar.ports import Delivery

__all__ = ["open_delivery"]

PROBE_SECONDS = 5.0


def open_delivery(
    *,
    target: Target,
    loop: asyncio.AbstractEventLoop,
    content_type: str,
    max_header_bytes: int,
    headers_always: bool = False,
    idle_seconds: float = 1.0,
    health: str | None = None,
    connections: int,
    static_headers: Sequence[tuple[str, str]] = (),
    probe_seconds: float = PROBE_SECONDS,
) -> Delivery:
    """The way to a target. probe_seconds is the route's timeout if that is less than 5 s."""
    encoder = RequestEncoder(
        target.path,
        target.authority,
        content_type,
        max_header_bytes,
        headers_always,
        static_headers,
    )
    to_health = None if health is None else parse_target(health)
    probe = Probe(loop, target, to_health, min(probe_seconds, PROBE_SECONDS))
    return WireDelivery(target, encoder, loop, idle_seconds=idle_seconds, probe=probe)
