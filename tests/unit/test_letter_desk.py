"""The letter desk: who may read, for how long, and what is refused before a broker is asked."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from threading import Event
from types import TracebackType
from typing import Any, Self

import pytest

from sidecar.core.letters import By, Letter, RedriveOrder, Selection, read_letter
from sidecar.errors import Busy, Conflict, NotFound, SidecarError, SourceError
from sidecar.kafka import letter_desk
from sidecar.kafka.letter_desk import CourteousBox, LetterDesk
from sidecar.kafka.letterbox import Letterbox
from sidecar.settings import RouteSettings, Settings


def settings() -> Settings:
    def route(name: str, **more: Any) -> dict[str, Any]:
        return {"name": name, "topics": [name], "target": "http://127.0.0.1:1/", **more}

    dead = {"dead_letter": {"topic": "dead"}}
    tree: dict[str, Any] = {
        "kafka": {"bootstrap.servers": "127.0.0.1:1", "group.id": "g"},
        "routes": [
            route("orders", **dead),
            route("plain"),
            route("lossy", guarantee="at_most_once", loss_budget=10, **dead),
        ],
    }
    return Settings(**tree)


class Box:
    """Is asked for letters, and has none before it is let go or cut."""

    failure: Exception | None = None

    def __init__(self, cut: Event, let_go: Event) -> None:
        self._cut = cut
        self._let_go = let_go

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        pass

    def newest(self, _selection: Selection, _limit: int) -> list[Letter]:
        if self.failure is not None:
            raise self.failure
        while not self._let_go.is_set() and not self._cut.is_set():
            self._let_go.wait(0.01)
        if self._cut.is_set():  # as a CourteousBox
            raise SourceError("not read in time")
        return []


class Stage:
    def __init__(self, **more: Any) -> None:
        self.let_go = Event()
        self.failure: Exception | None = None
        loop = asyncio.get_running_loop()
        self.desk = LetterDesk(settings(), loop.call_soon_threadsafe, open_box=self._open, **more)

    def _open(self, _settings: Settings, _route: RouteSettings, cut: Event, _size: int) -> Any:
        box = Box(cut, self.let_go)
        box.failure = self.failure
        return box

    async def list(self, route: str = "orders") -> Any:
        return await self.desk.list(route, Selection(), 1, oldest=False, payload_bytes=0)


def on_a_loop(test: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    def wrapped() -> None:
        asyncio.run(test())  # type: ignore[arg-type]

    wrapped.__name__, wrapped.__doc__ = test.__name__, test.__doc__
    return wrapped


@on_a_loop
async def test_one_reads_at_a_time() -> None:
    stage = Stage()
    first = asyncio.create_task(stage.list())
    await asyncio.sleep(0)
    with pytest.raises(Busy, match="one at a time"):
        await stage.list("lossy")
    stage.let_go.set()
    assert await first == []
    assert await stage.list("lossy") == []


def test_who_reads_for_too_long_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """And told what to do; the next one can read."""
    monkeypatch.setattr(letter_desk, "READ_SECONDS", 0.05)

    async def main() -> None:
        stage = Stage()
        with pytest.raises(SourceError, match="ask for less"):
            await stage.list()
        stage.let_go.set()
        async with asyncio.timeout(5):
            while True:
                try:
                    assert await stage.list() == []
                except Busy:
                    await asyncio.sleep(0)
                else:
                    break

    asyncio.run(main())


@on_a_loop
async def test_what_goes_wrong_is_raised_where_it_was_asked() -> None:
    stage = Stage()
    for failure in (SourceError("away"), SidecarError("unreadable"), RuntimeError("a bug")):
        stage.failure = failure
        with pytest.raises(type(failure), match=str(failure)):
            await stage.list()
    stage.failure = None
    stage.let_go.set()
    assert await stage.list() == []


@on_a_loop
async def test_without_a_thread_nothing_stays_begun() -> None:
    """The limit of the container's processes is reached, for a while."""
    stage = Stage()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_thread)
        for _ in range(2):
            with pytest.raises(RuntimeError, match="new thread"):
                await stage.list()
            with pytest.raises(RuntimeError, match="new thread"):
                stage.desk.redrive("orders", RedriveOrder())
    assert stage.desk.redriven("orders") is None
    stage.let_go.set()
    assert await stage.list() == []


def no_thread(_: object) -> None:
    raise RuntimeError("can't start new thread")


@on_a_loop
async def test_what_cannot_be_done_is_refused_at_once() -> None:
    stage = Stage()
    for name, reason in (("plain", "no dead_letter"), ("nothing", "no route")):
        with pytest.raises(NotFound, match=reason):
            await stage.list(name)
        with pytest.raises(NotFound, match=reason):
            stage.desk.redrive(name, RedriveOrder())
    with pytest.raises(Conflict, match="to_origin"):
        stage.desk.redrive("lossy", RedriveOrder())
    with pytest.raises(Conflict, match="no redrive"):
        stage.desk.stop_redrive("orders")
    assert stage.desk.redriven("orders") is None
    with pytest.raises(Conflict, match="embedded"):
        await Stage(embedded=True).desk.count("orders", Selection(), By.REASON)


@on_a_loop
async def test_stopped_it_begins_nothing_and_cuts_who_reads() -> None:
    stage = Stage()
    reading = asyncio.create_task(stage.list())
    await asyncio.sleep(0)
    await stage.desk.close()
    for asked in (reading, stage.list()):
        with pytest.raises(Conflict, match="ending"):
            await asked
    assert stage.desk.redriven("orders") is None  # that may still be looked at
    with pytest.raises(Conflict, match="ending"):
        stage.desk.redrive("orders", RedriveOrder())


def test_a_box_that_is_closed_leaves_no_client_behind() -> None:
    """A failure that is told keeps the box for as long as its traceback lasts."""
    found = settings()
    with CourteousBox(found, found.routes[0], Event()) as box:
        pass
    with pytest.raises(RuntimeError, match="closed"):
        box.admin.list_topics(timeout=0.1)


# --- reading --------------------------------------------------------------------------------------

NO_PROGRESS: Any = None


@pytest.fixture
def endless(monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic whose letters end when the reading is to."""

    def read(_: object, partition: int, start: int, _e: int, _p: object, stop: Event) -> Any:
        while not stop.is_set():
            yield read_letter("dead", partition, start, 5000, b"key", b"12345", [("h", b"12345")])
            start += 1

    monkeypatch.setattr(Letterbox, "__init__", lambda *_: None)
    monkeypatch.setattr(Letterbox, "read", read)


def box(cut: Event, payload_bytes: int | None) -> CourteousBox:
    found = settings()
    return CourteousBox(found, found.routes[0], cut, payload_bytes)


@pytest.mark.usefixtures("endless")
def test_what_was_found_until_it_was_cut_is_no_answer() -> None:
    cut = Event()
    letters: Iterator[Letter] = box(cut, 0).read(0, 0, 1000, NO_PROGRESS)
    assert [next(letters).offset for _ in range(100)] == [*range(100)]
    cut.set()
    with pytest.raises(SourceError, match="ask for less"):
        next(letters)


@pytest.mark.usefixtures("endless")
def test_a_redrive_that_is_stopped_ends_with_what_it_has() -> None:
    stop = Event()
    letters = box(stop, None).read(0, 0, 1000, NO_PROGRESS, stop)
    assert next(letters).value == b"12345"
    stop.set()
    assert list(letters) == []


@pytest.mark.usefixtures("endless")
@pytest.mark.parametrize(
    ("size", "value", "headers"), [(0, b"1", []), (3, b"1234", [("h", b"1234")])]
)
def test_of_a_letter_so_much_is_kept_as_is_shown_and_whether_there_is_more(
    size: int, value: bytes, headers: list[Any]
) -> None:
    letter = next(box(Event(), size).read(0, 0, 1000, NO_PROGRESS))
    assert (letter.key, letter.value, letter.headers) == (b"key", value, headers)
