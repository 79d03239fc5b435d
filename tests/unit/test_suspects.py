"""Who may have broken the application, by the order in which it is heard of."""

from __future__ import annotations

import pytest

from sidecar.core.answers import RETRY
from sidecar.core.breaker import Breaker
from sidecar.core.buffer import Buffer
from sidecar.core.ledger import Ledger
from sidecar.dispatch.suspects import SUSPECT_SECONDS, Suspects
from sidecar.model import Assignment, Failed, FailureKind, Partition, Record, Start
from tests.fakes.clock import SimulatedScheduler

RESET = Failed(FailureKind.BROKEN, "reset by peer")


class Rig:
    def __init__(self) -> None:
        self.clock = SimulatedScheduler()
        breaker = Breaker(self.clock.time())
        breaker.reachable(self.clock.time())
        self.suspects = Suspects(self.clock, breaker, Buffer(), 20.0, lambda: None)
        record = Record(Assignment(Partition("orders", 0), 1), 7, 0, None, b"", None, 0)
        ledger = Ledger(Start(record.assignment, 7))
        (self.entry,) = ledger.receive([record], self.clock.time(), [])

    def broke(self) -> None:
        self.suspects.broke(self.entry, RESET, RETRY, batch=1, alone=False)

    @property
    def is_anybodys(self) -> bool:
        judged = self.suspects.judged(self.entry)
        assert judged is not None
        return judged.is_anybodys


@pytest.mark.parametrize("apart", [0.0, SUSPECT_SECONDS, SUSPECT_SECONDS + 0.1])
@pytest.mark.parametrize("refused_first", [True, False])
def test_a_break_and_a_refusal_belong_together_in_whatever_order_they_are_heard_of(
    apart: float, refused_first: bool
) -> None:
    """The end of one connection may be read behind the refusal of another."""
    rig = Rig()
    first, second = (rig.suspects.app_is_gone, rig.broke)[:: 1 if refused_first else -1]
    first()
    rig.clock.advance(apart)
    second()
    assert rig.is_anybodys == (apart <= SUSPECT_SECONDS)
