"""Letter desk: looks into dead-letter topics and redrives them, while the dispatch goes on.

Purpose: what blocks (Letterbox, Redrive) for callers on a loop that may not be blocked. See
admin.letters.Letters. Owner: the runtime; all methods are called on its loop.

Invariants:
* One reader at a time, whatever the route; one redrive per route. Each has a thread of its own.
* A reader is answered within READ_SECONDS; its thread ends soon after, or at the latest with the
  client's own timeouts, and until then the next one is told to wait.
* Who reads a lot lets the loop go first again and again.
* Stopped, it begins nothing more, and every redrive ends after the transaction that runs. The
  threads are daemons: a client that hangs in its library does not hold the exit.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from threading import Event, Thread
from typing import Final, TypeVar

from sidecar.core.letters import By, Letter, RedriveOrder, Selection
from sidecar.core.redrive_progress import RedriveProgress
from sidecar.errors import Busy, Conflict, NotFound, SidecarError, SourceError
from sidecar.kafka.letterbox import Letterbox
from sidecar.kafka.redrive import Redrive, Redriven
from sidecar.settings import RouteSettings, Settings
from sidecar.status import RedriveState, RedriveStatus

log = logging.getLogger(__name__)

READ_SECONDS: Final = 20.0
THREADS: Final = "letters-"  # what their names begin with

_AT_A_TIME: Final = 64  # letters that are read without a break
_BREAK_SECONDS: Final = 0.001
_MOST_HEADERS: Final = 101  # of a letter that is looked at; one more than is ever shown
_DONE: Final = (RedriveState.STOPPED, RedriveState.FINISHED, RedriveState.FAILED)
T = TypeVar("T")


class LetterDesk:
    """embedded: the broker is one in the process itself, which knows no transactions.

    tell brings a call from any thread to the loop.
    """

    def __init__(
        self,
        settings: Settings,
        tell: Callable[..., object],
        *,
        embedded: bool = False,
        open_box: Callable[[Settings, RouteSettings, Event, int], Letterbox] | None = None,
    ) -> None:
        self._settings = settings
        self._open = open_box or CourteousBox
        self._routes: Final = {route.name: route for route in settings.routes}
        self._tell = tell
        self._embedded = embedded
        self._reading: Event | None = None  # set to cut the reader that is under way
        self._redrives: dict[str, _Running] = {}
        self._stopped = False

    # --- looking ------------------------------------------------------------------------------

    async def list(
        self, route: str, selection: Selection, limit: int, *, oldest: bool, payload_bytes: int
    ) -> Sequence[Letter]:
        def look(box: Letterbox) -> Sequence[Letter]:
            return (box.oldest if oldest else box.newest)(selection, limit)

        return await self._read(route, look, payload_bytes)

    async def count(
        self, route: str, selection: Selection, by: By
    ) -> Counter[str | int | bytes | None]:
        return await self._read(route, lambda box: box.count(selection, by), 0)

    async def letter(
        self, route: str, partition: int, offset: int, *, payload_bytes: int
    ) -> Letter | None:
        return await self._read(route, lambda box: box.letter(partition, offset), payload_bytes)

    async def _read(self, name: str, look: Callable[[Letterbox], T], payload_bytes: int) -> T:
        route = self._lettered(name)
        self._check_open()
        if self._reading is not None:
            raise Busy("somebody else is reading dead letters; one at a time")
        cut = Event()
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def read() -> None:
            found: T | None = None
            failure: BaseException | None = None
            try:
                with self._open(self._settings, route, cut, payload_bytes) as box:
                    found = look(box)
            except Exception as error:  # noqa: BLE001 - raised again, where it was asked
                failure = error
            self._tell(self._has_read, answer, found, failure)

        Thread(target=read, name=f"{THREADS}read-{name}", daemon=True).start()
        self._reading = cut
        try:
            async with asyncio.timeout(READ_SECONDS):
                return await answer
        except TimeoutError:
            raise _too_long() from None
        finally:
            cut.set()

    def _has_read(self, answer: asyncio.Future[T], found: T, failure: BaseException | None) -> None:
        self._reading = None
        if answer.done():
            return
        if failure is None:
            answer.set_result(found)
        elif self._stopped:  # which cut it
            answer.set_exception(Conflict("the sidecar is ending"))
        else:
            answer.set_exception(failure)

    # --- redrives -----------------------------------------------------------------------------

    def redrive(self, route: str, order: RedriveOrder) -> RedriveStatus:
        settings = self._lettered(route)
        self._check_open()
        before = self._redrives.get(route)
        if before is not None and not before.ended.is_set():
            raise Conflict(f"a redrive of route {route} is under way: wait for it, or stop it")
        if not order.to_origin and not self._settings.retry_topics(settings):
            raise Conflict(
                f"route {route} is at_most_once and reads no retry topic: letters can only go back"
                " to their original topic (to_origin)"
            )
        begun = _Running(self._settings, settings, order, self._tell)
        begun.start()
        self._redrives[route] = begun
        return begun.status

    def redriven(self, route: str) -> RedriveStatus | None:
        self._lettered(route)
        found = self._redrives.get(route)
        return None if found is None else found.status

    def stop_redrive(self, route: str) -> RedriveStatus:
        self._lettered(route)
        found = self._redrives.get(route)
        if found is None or found.status.state in _DONE:
            raise Conflict(f"no redrive of route {route} is under way")
        found.stop()
        return found.status

    # --- life ---------------------------------------------------------------------------------

    def stop(self) -> None:
        """Begin nothing more, and end what runs."""
        self._stopped = True
        if self._reading is not None:
            self._reading.set()
        for each in self._redrives.values():
            each.stop()

    async def close(self) -> None:
        """Stop, and wait for the redrives that run."""
        self.stop()
        for each in self._redrives.values():
            await each.ended.wait()

    def _lettered(self, name: str) -> RouteSettings:
        route = self._routes.get(name)
        if route is None:
            raise NotFound(f"no route is named {name}")
        if route.dead_letter is None:
            raise NotFound(f"route {name} has no dead_letter topic")
        if self._embedded:
            raise Conflict("the embedded broker knows no transactions and no administration")
        return route

    def _check_open(self) -> None:
        if self._stopped:
            raise Conflict("the sidecar is ending")


class CourteousBox(Letterbox):
    """A letterbox that can be cut, and never reads for long at a stretch.

    payload_bytes: of each part of what a letter holds, one more where there is more; None: all.
    """

    def __init__(
        self,
        settings: Settings,
        route: RouteSettings,
        cut: Event,
        payload_bytes: int | None = None,
    ) -> None:
        self._cut = cut
        self._payload_bytes = payload_bytes
        super().__init__(settings, route)

    def read(
        self,
        partition: int,
        start: int,
        end: int,
        progress: RedriveProgress,
        stop: Event | None = None,
    ) -> Iterator[Letter]:
        letters = super().read(partition, start, end, progress, self._cut)
        for number, letter in enumerate(letters, 1):
            yield letter if self._payload_bytes is None else _shortened(letter, self._payload_bytes)
            if number % _AT_A_TIME == 0:
                self._cut.wait(_BREAK_SECONDS)
        if stop is None and self._cut.is_set():  # what was found so far is no answer
            raise _too_long()


class _Running:
    """One redrive in its thread. status is replaced as a whole, by whoever knows better."""

    def __init__(
        self,
        settings: Settings,
        route: RouteSettings,
        order: RedriveOrder,
        tell: Callable[..., object],
    ) -> None:
        self._settings = settings
        self._route = route
        self._order = order
        self._tell = tell
        self._stop = Event()
        self.ended: Final = asyncio.Event()
        self.status = RedriveStatus(
            route=route.name,
            state=RedriveState.RUNNING,
            dry_run=order.dry_run,
            started_at=_now(),
            ended_at=None,
            letters=0,
            to={},
            reasons={},
            refused=0,
            refused_first=[],
            too_old=0,
            error=None,
        )

    def start(self) -> None:
        name = f"{THREADS}redrive-{self._route.name}"
        Thread(target=self._run, name=name, daemon=True).start()

    def stop(self) -> None:
        if self.status.state is RedriveState.RUNNING:
            self.status = replace(self.status, state=RedriveState.STOPPING)
        self._stop.set()

    def _run(self) -> None:
        order = self._order
        try:
            with CourteousBox(self._settings, self._route, self._stop) as box:
                redrive = Redrive(
                    box,
                    order.selection,
                    to_origin=order.to_origin,
                    rate=order.rate,
                    limit=order.limit,
                    old=order.old,
                    progress=lambda done: self._tell(self._saw, _told(done)),
                    stop=self._stop,
                )
                done = redrive.plan() if order.dry_run else redrive.run()
        except SidecarError as error:
            self._tell(self._end, RedriveState.FAILED, {"error": str(error)})
        except Exception:
            log.exception("the redrive of route %s failed", self._route.name)
            self._tell(self._end, RedriveState.FAILED, {"error": "see the sidecar's log"})
        else:
            state = RedriveState.STOPPED if done.interrupted else RedriveState.FINISHED
            self._tell(self._end, state, _told(done))

    def _saw(self, told: dict[str, object]) -> None:
        self.status = replace(self.status, **told)  # type: ignore[arg-type]

    def _end(self, state: RedriveState, told: dict[str, object]) -> None:
        self.status = replace(self.status, state=state, ended_at=_now(), **told)  # type: ignore[arg-type]
        self.ended.set()
        status = self.status
        verb = "would send" if status.dry_run else "sent"
        why = f": {status.error}" if status.error else ""
        log.info("redrive of %s: %s, %s %d letters%s", status.route, state.value, verb,
                 status.letters, why)  # fmt: skip


def _told(done: Redriven) -> dict[str, object]:
    """As it is now: the redrive goes on changing it."""
    return {
        "letters": done.letters,
        "to": dict(done.to),
        "reasons": dict(done.reasons),
        "refused": done.refused,
        "refused_first": list(done.refused_first),
        "too_old": done.too_old,
    }


def _shortened(letter: Letter, size: int) -> Letter:
    """With so much of each part that one can tell whether there is more of it."""

    def part(data: bytes | None) -> bytes | None:
        return None if data is None else data[: size + 1]

    most = letter.headers[:_MOST_HEADERS] if size else []
    headers = [(name, part(value)) for name, value in most]
    return replace(
        letter, value=part(letter.value), headers=headers, answer=letter.answer[: size + 1]
    )


def _too_long() -> SourceError:
    return SourceError(
        f"not read within {READ_SECONDS:g} s: ask for less (since, limit), or use sidecar"
        " dead-letters, which takes its time"
    )


def _now() -> datetime:
    return datetime.fromtimestamp(round(time.time(), 3), UTC)
