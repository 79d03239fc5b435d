"""The admin server on real sockets, over a view that says what the test wants."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import httpx
import pytest

from sidecar.admin.app import openapi_document
from sidecar.admin.server import STOP_SECONDS, AdminServer
from sidecar.cli import main as command
from sidecar.errors import SidecarError
from sidecar.settings import AdminSettings
from tests.fakes.admin import (
    FakeControl,
    FakeLetters,
    FakeView,
    Served,
    problem,
    run,
    serving,
    with_server,
)

DOCUMENT: Final = Path(__file__).parents[2] / "openapi" / "admin.json"


def a_server(path: Path | None = None, port: int = 0) -> AdminServer:
    view = FakeView()
    return AdminServer(
        AdminSettings(port=port, socket=path), view, FakeControl(view), FakeLetters()
    )


# --- what is told ---------------------------------------------------------------------------------


@with_server
async def test_route_reads_as_agreed(served: Served) -> None:
    """The fields of the contract, by name."""
    (route,) = (await served.get("/v1/routes")).json()
    assert route == (await served.get("/v1/routes/orders")).json()
    assert {
        "name": "orders",
        "guarantee": "at_least_once",
        "state": "running",
        "threshold": 1000,
        "buffered": 5,
        "executing": 2,
        "delayed": 3,
        "in_flight": 10,
        "in_flight_bytes": 2000,
        "oldest_age_seconds": 1.5,
        "executors": {"configured": 16, "wanted": 2, "effective": 2, "running": 2, "busy": 2},
        "exposure": {"would_lose": 0, "would_repeat": 7},
        "causes": [
            {
                "cause": "executors_busy",
                "since": "2026-01-02T12:00:00Z",
                "detail": "all are busy",
                "next_step": "raise the number",
            }
        ],
    }.items() <= route.items()
    assert route["availability"] == {
        "state": "up",
        "since": "2026-01-02T12:00:00Z",
        "last_error": "",
    }
    assert route["counters"]["failures"] == {"status_retry": 4}


@with_server
async def test_status_tells_everything_at_a_glance(served: Served) -> None:
    status = (await served.get("/v1/status")).json()
    assert status["exposure"] == {"would_lose": 0, "would_repeat": 7}
    assert status["routes"] == (await served.get("/v1/routes")).json()
    assert (status["version"], status["started_at"]) == ("1.2.3", "2026-01-02T12:00:00Z")


@with_server
async def test_partitions_read_as_agreed(served: Served) -> None:
    (partition,) = (await served.get("/v1/partitions")).json()
    assert {"committed": 40, "watermark": 42, "span": 8, "lag": None}.items() <= partition.items()


@with_server
async def test_in_flight_is_limited(served: Served) -> None:
    records = (await served.get("/v1/in-flight", params={"limit": 2})).json()
    assert [each["offset"] for each in records] == [0, 1]
    assert records[0]["age_seconds"] == 9.5


@with_server
async def test_answers_are_not_cached(served: Served) -> None:
    assert (await served.get("/v1/status")).headers["cache-control"] == "no-store"


# --- probes ---------------------------------------------------------------------------------------


@with_server
async def test_probes_tell_health_and_its_loss(served: Served) -> None:
    for path in ("/livez", "/startupz", "/readyz"):
        response = await served.get(path)
        assert (response.status_code, response.json()) == (200, {"status": "ok"})
    served.view.dead = "the fetch thread of orders is blocked for 40 s"
    served.view.unready = "held"
    served.view.is_started = False
    assert problem(await served.get("/livez"), 503) == served.view.dead
    assert problem(await served.get("/readyz"), 503) == "held"
    problem(await served.get("/startupz"), 503)


@with_server
async def test_drained_waits(served: Served) -> None:
    """Until the drain is finished, or the time is over."""
    assert (await served.get("/v1/drained")).json() == {"drained": False}
    served.view.waiting.clear()
    waits = asyncio.create_task(served.get("/v1/drained", params={"wait_seconds": 60}))
    await served.view.waiting.wait()
    assert not waits.done()
    served.view.is_drained.set()
    assert (await waits).json() == {"drained": True}


@with_server
async def test_who_waits_for_a_drain_that_does_not_begin_is_answered(served: Served) -> None:
    """The hook of an application that alone is restarted."""
    params = {"wait_seconds": 60, "begins_within_seconds": 0.05}
    assert (await served.get("/v1/drained", params=params)).json() == {"drained": False}


# --- errors ---------------------------------------------------------------------------------------


@with_server
async def test_unknown_route_is_answered_with_those_there_are(served: Served) -> None:
    assert "orders" in problem(await served.get("/v1/routes/nothing"), 404)


@with_server
async def test_errors_are_problem_details(served: Served) -> None:
    problem(await served.get("/nothing"), 404)
    response = await served.client.post("/v1/status")
    problem(response, 405)
    assert response.headers["allow"] == "GET"


@pytest.mark.parametrize(
    "query",
    [
        "wait_seconds=-1",
        "wait_seconds=nan",
        "wait_seconds=inf",
        "wait_seconds=x",
        "wait_seconds=1e9",
    ],
)
def test_nonsense_is_refused(query: str) -> None:
    async def main() -> None:
        async with serving() as served:
            assert "wait_seconds" in problem(await served.get(f"/v1/drained?{query}"), 422)

    run(main())


@with_server
async def test_bug_tells_nothing_of_the_inside(served: Served) -> None:
    served.view.broken = True
    assert "secret" not in problem(await served.get("/v1/status"), 500)
    assert (await served.get("/livez")).status_code == 200


def test_a_bug_that_is_asked_for_again_and_again_is_one_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        async with serving() as served:
            served.view.broken = True
            for _ in range(5):
                problem(await served.get("/v1/status"), 500)

    run(main())
    (line,) = [each for each in caplog.records if each.name.startswith("sidecar.")]
    assert line.exc_info is not None


# --- names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "10.1.2.3:8090", "[::1]:8090", "localhost:1", "LOCALHOST.", "sidecar.shop.svc"],
)
def test_own_names_are_answered(host: str) -> None:
    async def main() -> None:
        async with serving(settings={"names": ["sidecar.shop.svc"]}) as served:
            assert (await served.get("/livez", headers={"host": host})).status_code == 200

    run(main())


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example:80", "localhost.evil", "", "a:b:c", "[evil]"]
)
def test_foreign_names_are_not(host: str) -> None:
    """A page that rebinds its own name to this address reads nothing."""

    async def main() -> None:
        async with serving() as served:
            problem(await served.get("/v1/status", headers={"host": host}), 421)

    run(main())


# --- sockets --------------------------------------------------------------------------------------


def over(path: Path) -> httpx.AsyncClient:
    transport = httpx.AsyncHTTPTransport(uds=str(path))
    return httpx.AsyncClient(transport=transport, base_url="http://any.name")


def test_unix_socket_is_private_and_goes_with_the_server(tmp_path: Path) -> None:
    path = tmp_path / "admin.sock"

    async def main() -> None:
        async with serving(path) as served:
            assert served.address.socket == path
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            async with over(path) as client:
                assert (await client.get("/v1/routes")).json()[0]["name"] == "orders"
            assert (await served.get("/livez")).status_code == 200

    run(main())
    assert not path.exists()


def test_stale_socket_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "admin.sock"
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(os.fspath(path))

    async def main() -> None:
        async with serving(path), over(path) as client:
            assert (await client.get("/livez")).status_code == 200

    run(main())


def test_living_socket_and_other_files_are_left_alone(tmp_path: Path) -> None:
    taken, file = tmp_path / "admin.sock", tmp_path / "file"
    file.write_text("mine")

    async def main() -> None:
        async with serving(taken), over(taken) as client:
            for path, reason in ((taken, "another process"), (file, "no socket")):
                with pytest.raises(SidecarError, match=reason):
                    await a_server(path).start()
            assert (await client.get("/livez")).status_code == 200

    run(main())
    assert file.read_text() == "mine"


def test_default_socket_may_be_missing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Where nobody asked for it, a directory that is not there costs the socket, not the start."""
    missing = tmp_path / "missing" / "admin.sock"
    unasked = AdminSettings.model_construct({"port"}, port=0, socket=missing)

    async def main() -> None:
        view = FakeView()
        server = AdminServer(unasked, view, FakeControl(view), FakeLetters())
        assert (await server.start()).socket is None
        await server.stop()
        with pytest.raises(SidecarError, match=str(missing)):
            await a_server(missing).start()

    with caplog.at_level("INFO"):
        run(main())
    assert "going on without it" in caplog.text


def test_taken_port_is_one_clear_line() -> None:
    async def main() -> None:
        async with serving() as served:
            with pytest.raises(SidecarError, match=f"port {served.address.port}: Address already"):
                await a_server(port=served.address.port).start()

    run(main())


def test_unknown_host_is_one_clear_line() -> None:
    async def main() -> None:
        view = FakeView()
        settings = AdminSettings(host="no.such.host.invalid", port=0, socket=None)
        with pytest.raises(SidecarError, match=r"cannot listen on no\.such\.host\.invalid"):
            await AdminServer(settings, view, FakeControl(view), FakeLetters()).start()

    run(main())


# --- life -----------------------------------------------------------------------------------------


def test_signals_stay_with_their_owner() -> None:
    async def main() -> None:
        came = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, came.set)
        async with serving() as served:
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.wait_for(came.wait(), 5)
            assert (await served.get("/livez")).status_code == 200

    run(main())


def test_stop_waits_for_nobody() -> None:
    """Neither for an idle connection, nor half a request, nor one that waits for the drain."""

    async def main() -> None:
        view = FakeView()
        server = AdminServer(
            AdminSettings(port=0, socket=None), view, FakeControl(view), FakeLetters()
        )
        address = await server.start()
        waits = b"GET /v1/drained?wait_seconds=60 HTTP/1.1\r\nHost: localhost\r\n\r\n"
        writers = []
        for sent in (b"", b"GET /v1/st", waits):
            _, writer = await asyncio.open_connection(address.host, address.port)
            writer.write(sent)
            writers.append(writer)
        await view.waiting.wait()
        began = time.monotonic()
        await server.stop()
        assert time.monotonic() - began < STOP_SECONDS / 2
        with pytest.raises(OSError, match="refused"):
            await asyncio.open_connection(address.host, address.port)
        for writer in writers:
            writer.close()

    run(main())


def test_stop_before_start_and_twice_is_fine() -> None:
    async def main() -> None:
        server = a_server()
        await server.stop()
        await server.start()
        await server.stop()
        await server.stop()

    run(main())


# --- cost and description -------------------------------------------------------------------------


def test_framework_is_imported_by_those_who_serve_only() -> None:
    code = (
        "import sys, sidecar.admin.server; print(sorted({'fastapi', 'uvicorn'} & set(sys.modules)))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert shown.stdout.strip() == "[]"


def test_description_is_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    """Otherwise: sidecar openapi > openapi/admin.json"""
    assert command(["openapi"]) == 0
    assert capsys.readouterr().out == DOCUMENT.read_text(encoding="utf-8")
    assert json.loads(DOCUMENT.read_text(encoding="utf-8")) == openapi_document()


@with_server
async def test_description_is_served(served: Served) -> None:
    assert (await served.get("/openapi.json")).json() == openapi_document()
    problem(await served.get("/redoc"), 404)


@with_server
async def test_the_description_can_be_read_without_a_network(served: Served) -> None:
    """One page of HTML; not even a script of its own would run on it."""
    page = await served.get("/docs")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert not re.search(r"<script|<link|src=|https?://", page.text)
    for path in openapi_document()["paths"]:
        assert path in page.text
    assert "integer from 0 to 10000" in page.text  # of a body
    assert "number from 0 to 3600" in page.text  # of a query


def test_operations_have_names_and_documented_problems() -> None:
    operations = [each for path in openapi_document()["paths"].values() for each in path.values()]
    names = [each["operationId"] for each in operations]
    assert len(names) == len(set(names))
    for each in operations:
        assert each["summary"]
        assert "application/problem+json" in each["responses"]["default"]["content"]


@with_server
async def test_a_scraper_gets_the_text_format(served: Served) -> None:
    answer = await served.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert 'kafka_sidecar_in_flight_records{route="orders"} 10.0' in answer.text
