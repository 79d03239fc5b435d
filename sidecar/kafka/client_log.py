"""What librdkafka says by itself, in this process's log: each trouble once per interval.

Owner: the client whose logger it is; the client calls log from inside of poll.
"""

from __future__ import annotations

import logging
from typing import Final

from sidecar.logs import RateLimited, WithFields, gist

# Its failed connections are reported as errors as well, and told there with the way out.
_TOLD_ELSEWHERE: Final = "FAIL"

_log = logging.getLogger("sidecar.kafka.client")


class ClientLog:
    """Takes the place of a logger; of that, the client knows nothing but log.

    route is the one that the client works for, if it is one's.
    """

    __slots__ = ("_repeating",)

    def __init__(self, route: str = "") -> None:
        self._repeating = RateLimited(WithFields(_log, {"route": route}) if route else _log)

    def log(self, level: int, message: str, *args: object) -> None:
        facility = str(args[0]) if args else ""
        if facility == _TOLD_ELSEWHERE:
            level = min(level, logging.INFO)
        key = (facility, gist(" ".join(map(str, args[1:]))))
        self._repeating.limited(key, level, message, *args)
