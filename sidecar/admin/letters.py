"""What the admin surface wants of dead letters: implemented beside Kafka, and by a fake in tests.

Called on the loop, which nothing here holds up: whatever asks a broker does so in a thread. A route
without a dead-letter topic is NotFound; what cannot be done is a Conflict; Busy is who asks while
another one reads; what the brokers do not tell in time is a SourceError.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Protocol

from sidecar.core.letters import By, Letter, RedriveOrder, Selection
from sidecar.status import RedriveStatus


class Letters(Protocol):
    async def list(
        self, route: str, selection: Selection, limit: int, *, oldest: bool, payload_bytes: int
    ) -> Sequence[Letter]:
        """So many at most, the newest first, or the oldest.

        payload_bytes: of each part of what they hold; one more where there is more of it.
        """

    async def count(
        self, route: str, selection: Selection, by: By
    ) -> Counter[str | int | bytes | None]: ...

    async def letter(
        self, route: str, partition: int, offset: int, *, payload_bytes: int
    ) -> Letter | None:
        """The one there, also one that was redriven or belongs to somebody else."""

    def redrive(self, route: str, order: RedriveOrder) -> RedriveStatus:
        """Begin one; a Conflict while another one of the route runs."""

    def redriven(self, route: str) -> RedriveStatus | None:
        """The last one that was begun here."""

    def stop_redrive(self, route: str) -> RedriveStatus:
        """End the one that runs, after its transaction; a Conflict if none does."""
