"""TCP ports for servers that are stopped and started again on the same port."""

from __future__ import annotations

import os
import random
import socket

# Below the range from which the kernel takes the local ports of outgoing connections (32768 and
# up on Linux): while a broker is down, a client's connection would else take its port, or even
# connect to itself. The workers of one test run share them out: a port whose server is just down,
# or not up yet, is free to no other worker.
_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_WORKERS = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
_RANGE = range(12_000 + _WORKER, 32_000, _WORKERS)


def free_ports(count: int) -> list[int]:
    """Distinct ports of 127.0.0.1 on which nothing listens now."""
    found: list[int] = []
    for port in random.sample(_RANGE, len(_RANGE)):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            return found
    raise OSError("no free TCP port")


def accepts(port: int) -> bool:
    """True if something listens on the port of 127.0.0.1."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0
