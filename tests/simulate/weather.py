"""What one simulated group is like, drawn from a seed.

Owner: one Storm. Everything that is drawn here has a plain value as well, so that a history that
fails can be tried again in a simpler group.
"""

from __future__ import annotations

from collections.abc import Collection
from random import Random
from typing import Any, Final

from sidecar.model import Guarantee, OnExhausted, RelieveBy
from sidecar.settings import BatchSettings, RetrySettings, RetryTopicSettings
from tests.fakes.broker import Protocol

TIMEOUT_SECONDS: Final = 2.0
PLAIN: Final[dict[str, Any]] = {
    "partitions": 1,
    "threshold": 40,
    "threshold_bytes": 1_000_000,
    "protocol": Protocol.EAGER,
    "commit_interval_seconds": 1.0,
    "revoke_seconds": 5.0,
    "executors": 3,
    "batch": (1, 0.0),
    "on_exhausted": OnExhausted.PARK,
    "max_parked_in_a_row": 20,
    "leave_after_held_seconds": 300.0,
    "relieve_after_seconds": 0.0,
    "max_attempts": 3,
    "max_age_seconds": None,
    "retry_topics": (),
    "kills": False,
}


class Weather:
    """drawn: everything by name. plain names what is not to be drawn but plain."""

    def __init__(self, random: Random, guarantee: Guarantee, plain: Collection[str] = ()) -> None:
        choose = random.choice
        self._keeps: Final = guarantee is Guarantee.AT_LEAST_ONCE
        policies = [OnExhausted.PARK, OnExhausted.PARK, OnExhausted.DROP]
        if self._keeps:
            policies += [OnExhausted.RETRY_FOREVER, OnExhausted.HALT]
        drawn: dict[str, Any] = {
            "partitions": choose((1, 2, 3, 5)),
            "threshold": choose((3, 10, 40, 200)),
            "threshold_bytes": choose((1, 1000, 1_000_000, 1_000_000)),
            "protocol": choose((Protocol.EAGER, Protocol.COOPERATIVE)),
            "commit_interval_seconds": choose((0.1, 1.0)),
            "revoke_seconds": choose((0.5, 5.0)),
            "executors": choose((1, 3, 8, 24)),
            "batch": choose(((1, 0.0), (1, 0.0), (4, 0.0), (4, 0.3), (20, 0.3))),
            "on_exhausted": choose(policies),
            "max_parked_in_a_row": choose((1, 3, 20)),
            "leave_after_held_seconds": choose((0.0, 1.0, 300.0)),
            "relieve_after_seconds": choose((0.0, 0.0, 0.0, 0.3)),
            "max_attempts": choose((1, 3)),
            "max_age_seconds": choose((None, None, None, 0.5)),
            "retry_topics": choose(((), (0.3,), (0.1, 2.0))),
            # Whether one record in twenty kills its application. Who is to blame can be told only
            # where the loop is not held up meanwhile.
            "kills": choose((False, False, True)),
        }
        if not self._keeps:
            drawn |= {"retry_topics": (), "relieve_after_seconds": 0.0}
        self.drawn: Final = drawn | {name: PLAIN[name] for name in plain}

    def __getattr__(self, name: str) -> Any:
        return self.drawn[name]

    @property
    def relieves(self) -> bool:
        """What holds a watermark may be moved out of the way."""
        return bool(self.relieve_after_seconds) and (
            bool(self.retry_topics) or self.on_exhausted is OnExhausted.PARK
        )

    def settings(self) -> dict[str, Any]:
        """For a World."""
        largest, wait = self.batch
        batch = BatchSettings(max_records=min(self.threshold, largest), max_wait_seconds=wait)
        as_they_are = (
            "partitions threshold threshold_bytes protocol commit_interval_seconds revoke_seconds"
            " executors on_exhausted max_parked_in_a_row leave_after_held_seconds"
        )
        relief: dict[str, Any] = {}
        if self.relieves:
            relief["relieve_after_seconds"] = self.relieve_after_seconds
            relief["relieve_by"] = RelieveBy.RETRY if self.retry_topics else RelieveBy.PARK
        return {
            **{name: self.drawn[name] for name in as_they_are.split()},
            "timeout_seconds": TIMEOUT_SECONDS,
            "batch": None if largest == 1 else batch,
            **relief,
            "retry": RetrySettings(
                max_attempts=self.max_attempts,
                max_age_seconds=self.max_age_seconds,
                initial_backoff_seconds=0.05,
                max_backoff_seconds=0.5,
                topics=tuple(RetryTopicSettings(delay_seconds=each) for each in self.retry_topics),
            ),
        }

    def __str__(self) -> str:
        """What is not plain."""
        told = {name: value for name, value in self.drawn.items() if value != PLAIN[name]}
        return ", ".join(f"{name} {getattr(v, 'value', v)}" for name, v in told.items())
