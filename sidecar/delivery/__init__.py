"""A record goes to the application over HTTP, and a result comes back."""

from __future__ import annotations

import asyncio
import time
from typing import Final

from sidecar.core.answers import DEFAULT_ANSWERS, AnswerTable
from sidecar.core.target import TOPIC, Scheme, Target, parse_target
from sidecar.delivery.connection import reading_of
from sidecar.delivery.credentials import Credentials, Refreshed
from sidecar.delivery.probe import Probe
from sidecar.delivery.request import BatchShape, RequestEncoder, Shape
from sidecar.delivery.shapes import batch_shape_of, shape_of
from sidecar.delivery.tls import TlsOptions
from sidecar.delivery.wire import WireDelivery
from sidecar.ports import Delivery

__all__ = ["Credentials", "TlsOptions", "batch_shape_of", "open_delivery", "shape_of"]

PROBE_SECONDS: Final = 5.0


def open_delivery(
    *,
    target: Target,
    loop: asyncio.AbstractEventLoop,
    content_type: str,
    max_header_bytes: int,
    headers_always: bool = False,
    idle_seconds: float = 1.0,
    health: str | None = None,
    tls: TlsOptions | None = None,
    http2: bool = False,
    probe_seconds: float = PROBE_SECONDS,
    answers: AnswerTable = DEFAULT_ANSWERS,
    shape: Shape | None = None,
    batch_shape: BatchShape | None = None,
    credentials: Credentials | None = None,
    route: str = "",
) -> Delivery:
    """The way to a target: the wire, or the client where HTTP/2 is wanted.

    answers tells what is to be read of an answer beyond its status; shape makes the body of a
    record, None takes its value; batch_shape is for routes that send batches; credentials are what
    the application knows the sidecar by; route is its name in the log.
    probe_seconds is the route's timeout; a probe never takes longer than 5 s. Raises ValueError
    for a combination that makes no sense, and OSError for TLS files that cannot be read.
    """
    if http2 and target.scheme is not Scheme.HTTPS:
        raise ValueError("HTTP/2 needs an https target")
    credentials = credentials or Credentials()
    signer = credentials.signer(time.time)
    encoder = RequestEncoder(
        target.path,
        target.authority,
        content_type,
        max_header_bytes,
        headers_always,
        credentials.lines(),
        shape,
        batch_shape,
        signer,
    )
    to_health = None if health is None else parse_target(health)
    if to_health is not None and TOPIC in to_health.path:
        raise ValueError(f"a health URL holds no {TOPIC}")
    secure = Scheme.HTTPS in (target.scheme, to_health and to_health.scheme)
    context = (tls or TlsOptions()).context() if secure else None
    seconds = min(probe_seconds, PROBE_SECONDS)
    probe = Probe(loop, target, to_health, seconds, context)
    reading = reading_of(answers, batches=batch_shape is not None)
    delivery: Delivery
    if not http2:
        delivery = WireDelivery(
            target,
            encoder,
            loop,
            idle_seconds=idle_seconds,
            probe=probe,
            tls=context,
            reading=reading,
        )
    else:
        # Imported by those alone who need it: it is a good part of a start.
        from sidecar.delivery.client import ClientDelivery  # noqa: PLC0415

        delivery = ClientDelivery(
            target,
            encoder,
            loop,
            idle_seconds=idle_seconds,
            probe=probe,
            tls=(tls or TlsOptions()).context(),  # its own: httpx changes the protocols it offers
            reading=reading,
        )
    if credentials.may_change:
        return Refreshed(delivery, loop, credentials, encoder, signer, route)
    return delivery
