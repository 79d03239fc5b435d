"""Which record brought the application down? Those that were on the wire run alone once.

A record whose connection broke waits a second, and by then it is known whether the application
was gone afterwards. If it was not, the break is the record's own and it is charged. If it was,
every record that broke with it is a suspect: none is charged, and each of them runs alone, so that
the next break has one culprit, and that one is charged.

A suspect that runs alone for longer than its patience lets all others start: slow records do not
stall a route. Each time it is a suspect again its patience is four times as long, up to the timeout
of an attempt; so a slow killer runs alone in the end.

Owner: one route (at_least_once), on the loop. The lane holds suspects that may start; they are
buffered like all others. Invariant: a record is known here only while a failure of it is not
judged, or it is a suspect; what has left is forgotten with the next look.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from sidecar.core.answers import Verdict
from sidecar.core.breaker import Breaker, State
from sidecar.core.buffer import Buffer
from sidecar.core.ledger import InFlight
from sidecar.model import Assignment, Result
from sidecar.ports import Scheduler, Timer

SUSPECT_SECONDS: Final = 1.0  # between a break and the refusal that belongs to it
FIRST_PATIENCE_SECONDS: Final = 1.0
MORE_PATIENT: Final = 4


class Break:
    """A connection that broke under a record. app_gone: the application was refused soon after."""

    __slots__ = ("alone", "app_gone", "at", "batch", "result", "verdict")

    def __init__(
        self, at: float, result: Result, verdict: Verdict, batch: int, alone: bool
    ) -> None:
        self.at = at
        self.result = result
        self.verdict = verdict
        self.batch = batch
        self.alone = alone
        self.app_gone = False

    @property
    def is_anybodys(self) -> bool:
        """Somebody broke the application, and it is not known who."""
        return self.app_gone and not self.alone


class Suspects:
    """See the module. go_on is called when others may start again."""

    __slots__ = (
        "_alone",
        "_breaker",
        "_breaks",
        "_go_on",
        "_gone_at",
        "_lane",
        "_ready",
        "_scheduler",
        "_single_file",
        "_suspicions",
        "_timeout_seconds",
        "_timer",
    )

    def __init__(
        self,
        scheduler: Scheduler,
        breaker: Breaker,
        ready: Buffer,
        timeout_seconds: float,
        go_on: Callable[[], None],
    ) -> None:
        self._scheduler = scheduler
        self._breaker = breaker
        self._ready = ready
        self._timeout_seconds = timeout_seconds
        self._go_on = go_on
        self._breaks: dict[InFlight, Break] = {}  # not judged yet
        self._suspicions: dict[InFlight, int] = {}  # how often each was a suspect
        self._lane = Buffer()
        self._alone: InFlight | None = None  # runs, and nothing else does
        self._single_file = False
        self._gone_at = -math.inf  # when it was refused last
        self._timer: Timer | None = None  # of the patience with who runs or waits to run alone

    def __len__(self) -> int:
        """How many wait to run alone."""
        return len(self._lane)

    @property
    def none(self) -> bool:
        """Nobody is a suspect, or may become one."""
        self._forget_who_left()
        return not self._breaks and not self._suspicions and self._alone is None

    # --- what happens to records --------------------------------------------------------------

    def broke(
        self, entry: InFlight, result: Result, verdict: Verdict, batch: int, alone: bool
    ) -> None:
        """A connection broke; judge it with judged, SUSPECT_SECONDS later at the earliest."""
        now = self._scheduler.time()
        # Who runs next may get a connection that is as dead, and whose end was not seen yet.
        blamed = any(
            each.alone and now - each.at <= SUSPECT_SECONDS for each in self._breaks.values()
        )
        self._breaks[entry] = each = Break(now, result, verdict, batch, alone and not blamed)
        # The refusal of one connection may be heard of before the end of another.
        if now - self._gone_at <= SUSPECT_SECONDS:
            self._suspect(entry, each)

    def app_is_gone(self) -> None:
        """The application was refused."""
        self._gone_at = self._scheduler.time()
        since = self._gone_at - SUSPECT_SECONDS
        self._forget_who_left()
        for entry, each in self._breaks.items():
            if each.at >= since and not each.app_gone:
                self._suspect(entry, each)

    def _suspect(self, entry: InFlight, broke: Break) -> None:
        broke.app_gone = True
        self._suspicions[entry] = self._suspicions.get(entry, 0) + 1

    def judged(self, entry: InFlight) -> Break | None:
        """The break that was not judged yet, if there is one."""
        broke = self._breaks.pop(entry, None)
        if broke is not None and not broke.app_gone:
            self._suspicions.pop(entry, None)
        return broke

    def ended(self, entry: InFlight, innocent: bool) -> bool:
        """An attempt of it came to something, and left the application where it was (innocent).

        True if it ran alone.
        """
        if innocent:
            self._suspicions.pop(entry, None)
        if entry is not self._alone:
            return False
        self._alone = None
        self._stop_timer()
        self._look()
        return True

    def add(self, entry: InFlight) -> None:
        """It may start: alone if it is a suspect."""
        if entry in self._suspicions:
            self._lane.add(entry)
            self._look()
        else:
            self._ready.add(entry)

    def put_back(self, entry: InFlight) -> None:
        """It is to start first."""
        self._ready.put_back([entry])

    def entries(self) -> Iterator[InFlight]:
        """Those that wait to run alone."""
        return self._lane.entries()

    def remove(self, entry: InFlight) -> None:
        """One of these waits no more."""
        self._lane.remove(entry)
        self._look()

    # --- who starts ---------------------------------------------------------------------------

    def take(self, busy: int) -> InFlight | None:
        """The next suspect, once nothing else runs; busy: how many requests do."""
        if self._alone is not None:
            return None
        if busy:
            if self._timer is None:
                self._arm(self._patience(self._lane.peek()))
            return None
        return self._start_alone(self._lane.take())

    def take_trial(self, busy: int) -> InFlight | None:
        """A record, a suspect if there is no other, to see whether the application is back."""
        entry = self._ready.take()
        if entry is None:
            entry = self._lane.take()
        if not busy:
            return self._start_alone(entry)
        self._look()
        return entry

    def _start_alone(self, entry: InFlight | None) -> InFlight | None:
        self._stop_timer()
        self._alone = entry
        if entry is not None:
            self._arm(self._patience(entry))
        self._look()
        return entry

    def _patience(self, entry: InFlight | None) -> float:
        times = 1 if entry is None else self._suspicions.get(entry, 1)
        # A power of a few times is enough: the timeout is an hour at most.
        patience: float = FIRST_PATIENCE_SECONDS * MORE_PATIENT ** min(times - 1, 10)
        return min(self._timeout_seconds, patience)

    def _out_of_patience(self, seconds: float) -> None:
        self._timer = None
        if self._breaker.state is not State.UP:
            self._arm(seconds)  # a trial: nothing else could start anyway
            return
        self._alone = None
        self._ready.put_back(self._lane.discard_all())
        self._look()

    # --- giving back --------------------------------------------------------------------------

    def discard(self, assignments: Iterable[Assignment]) -> list[InFlight]:
        """Remove what waits of these assignments."""
        entries = [entry for each in assignments for entry in self._lane.discard(each)]
        self._look()
        return entries

    def discard_all(self) -> list[InFlight]:
        entries = self._lane.discard_all()
        self._look()
        return entries

    def stop(self) -> None:
        self._stop_timer()

    def _look(self) -> None:
        wanted = self._alone is not None or len(self._lane) > 0
        if self._single_file and not wanted:
            self._scheduler.call_soon(self._go_on)
        self._single_file = wanted
        self._breaker.single_file(wanted)

    def _arm(self, seconds: float) -> None:
        self._timer = self._scheduler.call_later(seconds, self._out_of_patience, seconds)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _forget_who_left(self) -> None:
        known = {*self._breaks, *self._suspicions}
        for entry in known:
            if entry.ledger is None or not entry.record.assignment.live:
                self._breaks.pop(entry, None)
                self._suspicions.pop(entry, None)
