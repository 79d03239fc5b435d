"""A network namespace beside this one, with one cable between the two that can be cut.

    with Namespace() as place:
        Popen([*place.prefix, ...])   # inside, this side is place.here
        place.cut(); place.mend()

Needs root and iproute2. A cut says nothing to anybody: packets are lost, no connection is reset.
"""

from __future__ import annotations

import os
import subprocess
from types import TracebackType
from typing import Final, Self


class Namespace:
    """Made and unmade by a `with`; one per process."""

    def __init__(self) -> None:
        number = os.getpid() % 16_384
        self.name: Final = f"chaos-{number}"
        self.prefix: Final = ("ip", "netns", "exec", self.name)
        net = f"10.{64 + number // 256}.{number % 256}"
        self.here: Final = f"{net}.1"
        self._there: Final = f"{net}.2"
        self._cable: Final = f"chaos{number}"

    def __enter__(self) -> Self:
        _ip("netns", "add", self.name)
        try:
            peer = ("peer", "name", "cable", "netns", self.name)
            _ip("link", "add", self._cable, "type", "veth", *peer)
            _ip("addr", "add", f"{self.here}/24", "dev", self._cable)
            _ip("link", "set", self._cable, "up")
            _ip("-n", self.name, "addr", "add", f"{self._there}/24", "dev", "cable")
            for device in ("lo", "cable"):
                _ip("-n", self.name, "link", "set", device, "up")
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._remove()

    def cut(self) -> None:
        _ip("link", "set", self._cable, "down")

    def mend(self) -> None:
        _ip("link", "set", self._cable, "up")

    def _remove(self) -> None:
        _ip("netns", "delete", self.name)  # and with it the cable


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)
