"""What the parts of one route share.

Owner: the route. It decides nothing: it is what each part would else be given piece by piece.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from random import Random
from typing import Final

from sidecar.core.places import Places
from sidecar.core.retry import RetrySchedule
from sidecar.dispatch.counters import Counters
from sidecar.logs import RateLimited, WithFields
from sidecar.model import Guarantee
from sidecar.ports import Mailbox, Scheduler
from sidecar.settings import RouteSettings


class Context:
    """keeps: what is not done may be repeated (at_least_once).

    log names the route; repeating is for trouble that comes again and again.
    """

    __slots__ = (
        "counters",
        "keeps",
        "log",
        "mailbox",
        "places",
        "random",
        "repeating",
        "schedule",
        "scheduler",
        "settings",
        "wall_clock",
    )

    def __init__(
        self,
        settings: RouteSettings,
        scheduler: Scheduler,
        wall_clock: Callable[[], float],
        random: Random,
        mailbox: Mailbox,
        places: Places,
        log: logging.Logger,
    ) -> None:
        self.settings: Final = settings
        self.keeps: Final = settings.guarantee is Guarantee.AT_LEAST_ONCE
        self.scheduler: Final = scheduler
        self.wall_clock: Final = wall_clock
        self.random: Final = random
        self.mailbox: Final = mailbox
        self.places: Final = places
        self.counters: Final = Counters()
        self.log: Final = WithFields(log, {"route": settings.name})
        self.repeating: Final = RateLimited(self.log, clock=scheduler.time)
        self.schedule: Final = RetrySchedule(
            max_attempts=settings.retry.max_attempts,
            initial_backoff_seconds=settings.retry.initial_backoff_seconds,
            max_backoff_seconds=settings.retry.max_backoff_seconds,
            max_age_seconds=settings.retry.max_age_seconds,
            random=random,
        )
