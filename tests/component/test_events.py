"""The stream behind the dashboard, the page's files, and whether one may change anything."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from sidecar.admin import connections, dashboard, events
from sidecar.admin.events import MOST_STREAMS, PARTITIONS_SHOWN, Behind, Feed, Snapshot, snapshot
from sidecar.admin.server import STOP_SECONDS
from sidecar.admin.view import View
from sidecar.status import CauseName
from tests.fakes.admin import PARTITION, TOKEN, FakeView, Served, problem, run, serving, with_server


async def next_event(lines: Any) -> Any:
    async for line in lines:
        if line.startswith("data: "):
            return json.loads(line.removeprefix("data: "))
    raise EOFError


async def rest(lines: Any) -> None:
    while True:
        await next_event(lines)


# --- the stream -----------------------------------------------------------------------------------


@with_server
async def test_an_event_is_what_the_api_says(served: Served) -> None:
    async with served.client.stream("GET", "/v1/events") as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        event = await next_event(stream.aiter_lines())
    assert event["status"] == (await served.get("/v1/status")).json()
    assert event["partitions"] == (await served.get("/v1/partitions")).json()
    assert event["executing"] == (await served.get("/v1/in-flight")).json()


def test_events_follow_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """And each is of its own moment."""
    monkeypatch.setattr(events, "EVERY_SECONDS", 0.01)

    async def main() -> None:
        view = FakeView()
        stream = Feed(view).events()
        first = await anext(stream)
        view.orders = replace(view.orders, generation=99)
        while (later := await anext(stream)) == first:
            pass
        assert json.loads(later.removeprefix(b"data: "))["status"]["routes"][0]["generation"] == 99

    run(main())


def test_one_snapshot_serves_all_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    made = 0

    def counted(view: View) -> Snapshot:
        nonlocal made
        made += 1
        return snapshot(view)

    monkeypatch.setattr(events, "EVERY_SECONDS", 3600)
    monkeypatch.setattr(events, "snapshot", counted)

    async def main() -> None:
        feed = Feed(FakeView())
        assert await anext(feed.events()) == await anext(feed.events())
        assert made == 1

    run(main())


def test_only_the_partitions_furthest_behind_are_told() -> None:
    view = FakeView()
    lags = [None, *range(PARTITIONS_SHOWN + 10)]
    many = [replace(PARTITION, partition=n, lag=lag, span=2) for n, lag in enumerate(lags)]
    waiting = replace(PARTITION, topic="orders.retry", lag=5000, delay_seconds=60.0)
    view.partitions = lambda: [*many, waiting]  # type: ignore[method-assign]
    told = snapshot(view)
    assert told.partition_count == len(lags) + 1
    shown = [each.lag for each in told.partitions]
    assert shown == [5000, *range(PARTITIONS_SHOWN + 9, 10, -1)]
    # What waits in a retry topic is no backlog.
    known = range(PARTITIONS_SHOWN + 10)
    assert told.behind["orders"].lag == sum(known)
    assert told.behind["orders"].unfetched == sum(max(0, lag - 2) for lag in known)


def test_what_is_done_beyond_a_slow_record_is_no_backlog() -> None:
    """OBS-3: one record holds the watermark, and the lag is 1 001."""
    view = FakeView()
    held = replace(PARTITION, lag=1001, span=1001, outstanding=1)
    view.partitions = lambda: [held]  # type: ignore[method-assign]
    assert snapshot(view).behind == {"orders": Behind(lag=1001, unfetched=0)}


@with_server
async def test_streams_are_bounded(served: Served) -> None:
    async with AsyncExitStack() as stack:
        listening = []  # one that is let go of closes its stream
        for _ in range(MOST_STREAMS):
            stream = await stack.enter_async_context(served.client.stream("GET", "/v1/events"))
            listening.append(stream.aiter_lines())
            await next_event(listening[-1])
        refused = await served.get("/v1/events")
        assert "close a dashboard" in problem(refused, 503)
        assert refused.headers["retry-after"]
    await until_room(served.client)  # who has gone makes room


async def until_room(client: httpx.AsyncClient) -> None:
    """Until one more stream is served, as it is when another has ended."""
    async with asyncio.timeout(10):
        while not await _opens(client):
            pass


async def _opens(client: httpx.AsyncClient) -> bool:
    async with client.stream("GET", "/v1/events") as stream:
        return stream.status_code == 200


def test_streams_do_not_hold_up_the_stop() -> None:
    async def main() -> None:
        async with AsyncExitStack() as stack:
            served = await stack.enter_async_context(serving())
            client = httpx.AsyncClient(base_url=served.address.url, trust_env=False)
            stream = await client.send(client.build_request("GET", "/v1/events"), stream=True)
            lines = stream.aiter_lines()
            await next_event(lines)
            began = time.monotonic()
            await stack.aclose()
            assert time.monotonic() - began < STOP_SECONDS
            with pytest.raises((httpx.RemoteProtocolError, httpx.ReadError, EOFError)):
                await rest(lines)
            await client.aclose()

    run(main())


def test_who_does_not_read_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is kept for it."""
    monkeypatch.setattr(connections, "WRITE_SECONDS", 0.1)
    monkeypatch.setattr(events, "EVERY_SECONDS", 0.001)
    monkeypatch.setattr(events, "MOST_STREAMS", 1)
    large = b"data: " + b"x" * 1_000_000 + b"\n\n"
    monkeypatch.setattr(events, "event", lambda view: large)

    async def main() -> None:
        async with serving() as served:
            reader, writer = await asyncio.open_connection(
                served.address.host, served.address.port, limit=1024
            )
            writer.write(b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert b"200" in await reader.readline()
            assert not await _opens(served.client)
            await until_room(served.client)
            writer.transport.abort()

    run(main())


# --- the page -------------------------------------------------------------------------------------


@with_server
async def test_the_page_is_whole(served: Served) -> None:
    """Every file it names is there, and only what is meant to be."""
    page = await served.get("/")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    for name in dashboard.names():
        if name != "index.html":
            part = await served.get(f"/page/{name}")
            assert part.status_code == 200
            assert (
                part.headers["content-security-policy"] == page.headers["content-security-policy"]
            )
    for name in ("vendor/uPlot-LICENSE", "nothing.js", "../app.py", "..%2fapp.py", "%2fetc/passwd"):
        problem(await served.get(f"/page/{name}"), 404)


@with_server
async def test_the_page_may_use_nothing_but_its_own(served: Served) -> None:
    policy = (await served.get("/")).headers["content-security-policy"].split("; ")
    assert policy == [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src 'self' data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    ]


def test_nothing_is_set_as_markup() -> None:
    """Names and errors are hostile."""
    for script in dashboard.FOLDER.glob("*.js"):
        text = script.read_text(encoding="utf-8")
        for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
            assert way not in text, script


def test_every_cause_has_a_title() -> None:
    words = (dashboard.FOLDER / "words.js").read_text(encoding="utf-8")
    assert [each for each in CauseName if f'\n  {each.value}: "' not in words] == []


def test_what_others_made_has_its_licence() -> None:
    vendor = dashboard.FOLDER / "vendor"
    assert "The MIT License" in (vendor / "uPlot-LICENSE").read_text(encoding="utf-8")
    (script,) = vendor.glob("*.js")
    version = script.name.removeprefix("uPlot-").removesuffix(".esm.js")
    assert f"(v{version})" in script.read_text(encoding="utf-8")[:400]


# --- access ---------------------------------------------------------------------------------------


@with_server
async def test_access_tells_who_may(served: Served) -> None:
    asked = await served.get("/v1/access")
    assert asked.json()["may_change"] is False
    assert asked.json()["token_helps"] is True
    wrong = await served.get("/v1/access", headers={"authorization": "Bearer wrong"})
    assert "not the right one" in wrong.json()["reason"]
    right = await served.get("/v1/access", headers={"authorization": f"Bearer {TOKEN}"})
    assert right.json() == {"may_change": True, "token_helps": True, "reason": ""}


def test_access_without_a_token_tells_how_to_get_one(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(settings={}) as served:
            asked = (await served.get("/v1/access")).json()
            assert (asked["may_change"], asked["token_helps"]) == (False, False)
            assert "SIDECAR_ADMIN__TOKEN" in asked["reason"]

    run(main())
