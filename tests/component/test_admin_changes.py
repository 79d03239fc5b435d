"""Changes over HTTP: who may make them, what they answer, and what is refused."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path
from typing import Any

import httpx
import pytest

from sidecar.status import RecordAction
from tests.fakes.admin import PAYLOAD, TOKEN, Served, problem, run, serving, with_server

CHANGES: list[tuple[str, str, Any]] = [
    ("PUT", "/v1/routes/orders/executors", {"count": 3}),
    ("PUT", "/v1/routes/orders/threshold", {"threshold": 3}),
    ("PUT", "/v1/routes/orders/rate-limit", {"max_records_per_second": 2.5}),
    ("POST", "/v1/routes/orders/pause", None),
    ("POST", "/v1/routes/orders/resume", None),
    ("POST", "/v1/routes/orders/breaker/reset", None),
    ("POST", "/v1/routes/orders/records/orders/0/17/park", None),
    ("POST", "/v1/drain", None),
    ("PUT", "/v1/log-level", {"level": "debug"}),
]
every_change = pytest.mark.parametrize(
    ("method", "path", "body"), CHANGES, ids=[each[1] for each in CHANGES]
)


def over(path: Path) -> httpx.AsyncClient:
    transport = httpx.AsyncHTTPTransport(uds=str(path))
    return httpx.AsyncClient(transport=transport, base_url="http://any.name")


# --- access ---------------------------------------------------------------------------------------


@every_change
def test_without_a_token_tcp_changes_nothing(method: str, path: str, body: Any) -> None:
    """Also from loopback, whatever is sent along: the answer says what to do."""

    async def main() -> None:
        async with serving(settings={}) as served:
            for headers in ({}, {"authorization": f"Bearer {TOKEN}"}):
                response = await served.client.request(method, path, json=body, headers=headers)
                assert "SIDECAR_ADMIN__TOKEN" in problem(response, 403)
            assert served.control.asked == []
            assert served.control.level == "info"

    run(main())


@every_change
def test_a_wrong_token_changes_nothing(method: str, path: str, body: Any) -> None:
    async def main() -> None:
        async with serving() as served:
            for told in (None, "Bearer wrong", "Bearer", "Basic x", TOKEN, "Bearer \xfc"):
                headers = {} if told is None else {b"authorization": told.encode("latin-1")}
                response = await served.client.request(method, path, json=body, headers=headers)
                problem(response, 401)
                assert response.headers["www-authenticate"].startswith("Bearer")
            assert served.control.asked == []

    run(main())


@every_change
def test_the_token_or_the_unix_socket_opens(
    method: str, path: str, body: Any, tmp_path: Path
) -> None:
    async def main() -> None:
        async with serving(tmp_path / "s", settings={}) as served, over(tmp_path / "s") as client:
            assert (await client.request(method, path, json=body)).status_code == 200
            assert served.control.asked or served.control.level == "debug"
        async with serving() as served:
            assert (await served.change(method, path, body)).status_code == 200

    run(main())


def test_a_token_in_a_file_is_rotated_without_a_restart(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN + "\n", encoding="utf-8")

    async def main() -> None:
        async with serving(settings={"token_file": file}) as served:
            pause = "/v1/routes/orders/pause"
            assert (await served.change("POST", pause)).status_code == 200
            file.write_text("another", encoding="utf-8")
            problem(await served.change("POST", pause), 401)
            told = await served.change("POST", pause, authorization="Bearer another")
            assert told.status_code == 200
            for wrong in ("", "two words"):
                file.write_text(wrong, encoding="utf-8")
                told = await served.change("POST", pause, authorization=f"Bearer {wrong or TOKEN}")
                assert "token_file" in problem(told, 403)
            file.unlink()
            problem(await served.change("POST", pause), 403)

    run(main())


def test_whatever_lies_at_the_token_file_the_loop_waits_for_nothing(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN, encoding="utf-8")

    async def main() -> None:
        async with serving(settings={"token_file": file}) as served:
            pause = "/v1/routes/orders/pause"
            file.write_text("x" * 1_000_000, encoding="utf-8")
            assert "token_file" in problem(await served.change("POST", pause), 403)
            file.unlink()
            os.mkfifo(file)
            assert "token_file" in problem(await served.change("POST", pause), 403)
            file.unlink()
            file.mkdir()
            assert "token_file" in problem(await served.change("POST", pause), 403)

    run(main())


@every_change
def test_a_page_of_another_origin_changes_nothing(method: str, path: str, body: Any) -> None:
    async def main() -> None:
        async with serving() as served:
            own = served.address.url
            for origin in ("http://evil.example", "null", "http://127.0.0.1:1", own + ".evil"):
                response = await served.change(method, path, body, origin=origin)
                assert "origin" in problem(response, 403)
            assert served.control.asked == []
            assert (await served.change(method, path, body, origin=own)).status_code == 200

    run(main())


@with_server
async def test_payloads_need_the_token(served: Served) -> None:
    problem(await served.get("/v1/in-flight?payload=true"), 401)
    (first, *_) = (await served.change("GET", "/v1/in-flight?payload=true")).json()
    assert first["payload"]["key"] == PAYLOAD.key
    assert (await served.get("/v1/in-flight")).json()[0]["payload"] is None


# --- changes --------------------------------------------------------------------------------------


@with_server
async def test_executors_are_changed_and_reported(served: Served) -> None:
    path = "/v1/routes/orders/executors"
    answer = await served.change("PUT", path, {"count": 50})
    assert answer.json() == {
        "configured": 16,
        "wanted": 50,
        "effective": 2,
        "running": 2,
        "busy": 2,
    }
    assert (await served.get(path)).json() == answer.json()
    assert (await served.change("PUT", path, {"count": 20.0})).json()["wanted"] == 20
    assert served.control.asked == [("executors", "orders", 50), ("executors", "orders", 20)]


@with_server
async def test_threshold_and_rate_limit_show_configured_and_effective(served: Served) -> None:
    told = (await served.change("PUT", "/v1/routes/orders/threshold", {"threshold": 5})).json()
    assert told == {
        "configured": 1000,
        "wanted": 5,
        "effective": 10,
        "in_flight": 10,
        "the_loss_budget": False,
    }
    path = "/v1/routes/orders/rate-limit"
    assert (await served.change("PUT", path, {"max_records_per_second": 2})).json() == {
        "configured": None,
        "wanted": 2.0,
    }
    told = (await served.change("PUT", path, {"max_records_per_second": None})).json()
    assert told["wanted"] is None


@with_server
async def test_pause_resume_and_the_breaker(served: Served) -> None:
    assert (await served.change("POST", "/v1/routes/orders/pause")).json() == {"state": "paused"}
    assert (await served.change("POST", "/v1/routes/orders/resume")).json() == {"state": "running"}
    reset = "/v1/routes/orders/breaker/reset"
    assert (await served.change("POST", reset)).json()["state"] == "up"
    assert "nothing is held" in problem(await served.change("POST", reset), 409)
    assert (await served.get("/v1/routes/orders/breaker")).json()["state"] == "up"


@with_server
async def test_a_record_is_treated_by_hand(served: Served) -> None:
    path = "/v1/routes/orders/records/orders/0"
    for action in RecordAction:
        told = (await served.change("POST", f"{path}/17/{action.value}")).json()
        assert (told["action"], told["was"], told["offset"]) == (action.value, "executing", 17)
    problem(await served.change("POST", f"{path}/404/park"), 404)
    assert "leaving" in problem(await served.change("POST", f"{path}/409/park"), 409)
    for wrong in ("17/eat", "-1/park", "x/park", f"{2**63}/park"):
        problem(await served.change("POST", f"{path}/{wrong}"), 422)


@with_server
async def test_drain_waits_and_says_when_it_is_done(served: Served) -> None:
    assert (await served.change("POST", "/v1/drain")).json() == {"drained": False}
    served.view.waiting.clear()
    waits = asyncio.create_task(served.change("POST", "/v1/drain?wait_seconds=60"))
    await served.view.waiting.wait()
    assert not waits.done()
    served.view.is_drained.set()
    assert (await waits).json() == {"drained": True}


@with_server
async def test_two_operators_do_not_overwrite_each_other_unseen(served: Served) -> None:
    path = "/v1/routes/orders/executors"
    seen = (await served.get(path)).headers["etag"]
    first = await served.change("PUT", path, {"count": 5}, if_match=seen)
    assert first.headers["etag"] != seen
    second = await served.change("PUT", path, {"count": 6}, if_match=seen)
    assert "read it again" in problem(second, 412)
    record = "/v1/routes/orders/records/orders/0/17/park"
    assert problem(await served.change("POST", record, if_match=seen), 412)
    assert second.headers["etag"] == first.headers["etag"]
    assert len(served.control.asked) == 1
    for tags in (f'"x", {first.headers["etag"]}', "*"):
        assert (await served.change("PUT", path, {"count": 6}, if_match=tags)).status_code == 200


@every_change
def test_every_change_heeds_if_match(method: str, path: str, body: Any) -> None:
    async def main() -> None:
        async with serving() as served:
            problem(await served.change(method, path, body, if_match='"old"'), 412)
            assert served.control.asked == []
            assert served.control.level == "info"
            read = path if path == "/v1/log-level" else "/v1/status"
            seen = (await served.get(read)).headers["etag"]
            answer = await served.change(method, path, body, if_match=seen)
            assert answer.status_code == 200

    run(main())


def test_every_change_is_a_line_of_the_audit_log(caplog: pytest.LogCaptureFixture) -> None:
    """Whatever the log level; refused ones are none."""

    async def main() -> None:
        async with serving() as served:
            await served.change("PUT", "/v1/routes/orders/executors", {"count": 3})
            await served.change("PUT", "/v1/routes/orders/executors", {"count": -3})

    root = logging.getLogger()
    before = root.level
    root.setLevel(logging.ERROR)
    try:
        run(main())
    finally:
        root.setLevel(before)
    (line,) = [each for each in caplog.records if each.name == "sidecar.audit"]
    assert line.getMessage() == "by 127.0.0.1: executors of route orders: 2 -> 3"
    assert (line.by, line.before, line.after) == ("127.0.0.1", 2, 3)  # type: ignore[attr-defined]


# --- nonsense -------------------------------------------------------------------------------------

NONSENSE = ["-1", "10001", "1e9", '"x"', "NaN", "Infinity", "true", "null", "1.5", "[1]", "{}"]


@pytest.mark.parametrize("value", NONSENSE)
def test_nonsense_is_refused_in_one_sentence(value: str) -> None:
    """CTL-1."""

    async def main() -> None:
        async with serving() as served:
            token = {"authorization": f"Bearer {TOKEN}", "content-type": "application/json"}
            for name, body in {
                "executors": f'{{"count": {value}}}',
                "threshold": f'{{"threshold": {"0" if value == "10001" else value}}}',
                "rate-limit": f'{{"max_records_per_second": {"0" if value in KIND else value}}}',
            }.items():
                response = await served.client.put(
                    f"/v1/routes/orders/{name}", content=body, headers=token
                )
                assert "\n" not in problem(response, 422)
            assert served.control.asked == []

    run(main())


KIND = ("10001", "1.5", "null")  # they are fine as a rate


@pytest.mark.parametrize("body", ["", "{", "[]", "7", "{}", '{"count": 1, "more": 2}', "\xff"])
def test_what_is_no_such_body_is_refused(body: str) -> None:
    async def main() -> None:
        async with serving() as served:
            token = {"authorization": f"Bearer {TOKEN}", "content-type": "application/json"}
            response = await served.client.put(
                "/v1/routes/orders/executors", content=body.encode("latin-1"), headers=token
            )
            problem(response, 400 if body == "\xff" else 422)
            assert served.control.asked == []

    run(main())


@with_server
async def test_unknown_names_methods_types_and_sizes(served: Served) -> None:
    path = "/v1/routes/orders/executors"
    unknown = await served.change("PUT", "/v1/routes/order/executors", {"count": 1})
    assert "did you mean orders?" in problem(unknown, 404)
    wrong = await served.change("DELETE", path)
    problem(wrong, 405)
    assert set(wrong.headers["allow"].split(", ")) == {"GET", "PUT"}
    for kind in ("text/plain", "application/x-www-form-urlencoded", ""):
        problem(await served.change("PUT", path, {"count": 1}, content_type=kind), 415)
    problem(await served.client.put(path, content=b"x" * 10_000_000), 413)

    async def endless() -> Any:
        for _ in range(1000):
            yield b"x" * 1000

    problem(await served.client.put(path, content=endless()), 413)
    assert served.control.asked == []
    assert (await served.get("/livez")).status_code == 200


def test_concurrent_changes_end_at_one_of_them() -> None:
    async def main() -> None:
        async with serving() as served:
            path = "/v1/routes/orders/executors"
            answers = await asyncio.gather(
                *(served.change("PUT", path, {"count": n}) for n in range(50))
            )
            assert [each.status_code for each in answers] == [200] * 50
            assert served.view.orders.generation == 57
            last = served.control.asked[-1][2]
            assert (await served.get(path)).json()["wanted"] == last

    run(main())
