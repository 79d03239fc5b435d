"""A transport to a target, and what to say when there is none."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Callable
from typing import Final

from sidecar.core.target import Scheme, Target

# Not left to the resolver: on some machines it knows only one of them.
_LOCALHOST: Final = ("127.0.0.1", "::1")


def addresses(host: str) -> tuple[str, ...]:
    """What to connect to, one after the other."""
    return _LOCALHOST if host == "localhost" else (host,)


async def open_transport(
    loop: asyncio.AbstractEventLoop,
    target: Target,
    factory: Callable[[], asyncio.Protocol],
    tls: ssl.SSLContext | None = None,
) -> asyncio.Transport:
    """Connect, trying every address of the host; raises OSError. tls is for https only."""
    if target.scheme is Scheme.UNIX:
        opened, _ = await loop.create_unix_connection(factory, target.socket_path)
        return opened
    context = tls if target.scheme is Scheme.HTTPS else None
    first: OSError | None = None
    for host in addresses(target.host):
        try:
            transport, _ = await loop.create_connection(
                factory,
                host,
                target.port,
                ssl=context,
                server_hostname=target.host if context else None,
            )
        except OSError as error:
            first = first or error
        else:
            return transport
    assert first is not None
    raise first


def describe(error: Exception) -> str:
    """One line, in the system's words rather than the library's."""
    if isinstance(error, OSError):
        if error.errno and not isinstance(error, (socket.gaierror, ssl.SSLError)):
            return os.strerror(error.errno)
        return error.strerror or str(error) or type(error).__name__
    return str(error) or type(error).__name__
