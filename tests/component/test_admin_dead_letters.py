"""Dead letters over HTTP, from a source that says what the test wants."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from sidecar.core.letters import By, RedriveOrder, Selection
from sidecar.errors import Busy, Conflict, NotFound, SidecarError, SourceError
from tests.fakes.admin import TOKEN, Served, problem, run, serving, with_server

LETTERS = "/v1/routes/orders/dead-letters"
REDRIVE = f"{LETTERS}/redrive"
TOKEN_SENT = {"authorization": f"Bearer {TOKEN}"}


@with_server
async def test_letters_tell_their_story_and_nothing_of_what_they_hold(served: Served) -> None:
    (letter,) = (await served.get(LETTERS)).json()
    assert letter == {
        "topic": "orders.dlq",
        "partition": 0,
        "offset": 17,
        "parked": "2026-01-02T12:00:00Z",
        "redriven": False,
        "origin": {"topic": "orders", "partition": 3, "offset": 42, "timestamp": None},
        "group": "billing",
        "reason": "rejected",
        "detail": "status 422",
        "status": 422,
        "attempts": 1,
        "first_attempt": "2026-01-02T11:59:59Z",
        "last_attempt": "2026-01-02T11:59:59Z",
        "payload": None,
    }
    assert (await served.get(f"{LETTERS}/0/17")).json() == letter
    assert "nothing at 0/18" in problem(await served.get(f"{LETTERS}/0/18"), 404)
    assert served.letters.asked == [
        ("list", "orders", Selection(), 20, False, 0),
        ("letter", "orders", 0, 17, 0),
        ("letter", "orders", 0, 18, 0),
    ]


@with_server
async def test_payloads_and_keys_need_the_token(served: Served) -> None:
    """A filter by key, too: its answer tells whether there is such a key."""
    asked = (f"{LETTERS}?payload=true", f"{LETTERS}/0/17?payload=true")
    by_key = (f"{LETTERS}?key=k", f"{LETTERS}/count?key=k", f"{LETTERS}/count?by=key")
    for path in (*asked, *by_key):
        problem(await served.get(path), 401)
    assert served.letters.asked == []
    (listed,) = (await served.get(asked[0], headers=TOKEN_SENT)).json()
    whole = (await served.get(asked[1], headers=TOKEN_SENT)).json()
    assert (
        listed["payload"].items()
        >= {
            "key": "a/8=",
            "headers": [{"name": "h", "value": None}, {"name": "i", "value": "MQ=="}],
            "answer": "bm8gc3VjaCBjdXN0b21lcg==",
            "truncated": True,
        }.items()
    )
    assert len(listed["payload"]["value"]) == 1368
    assert whole["payload"]["truncated"] is False
    counted = (await served.get(by_key[2], headers=TOKEN_SENT)).json()
    assert counted["groups"][0] == {"value": "base64:a/8=", "letters": 3}


@with_server
async def test_filters_are_those_of_the_command_line(served: Served) -> None:
    query = (
        "reason=timeout&reason=rejected&status=5xx&status=404&key=base64:/w==&key=k"
        "&topic=orders&since=1970-01-01T00:00:01Z&until=1970-01-01T00:00:02.5%2B00:00"
        "&redriven=true&limit=7&oldest=true"
    )
    assert (await served.get(f"{LETTERS}?{query}", headers=TOKEN_SENT)).status_code == 200
    (asked,) = served.letters.asked
    assert asked[2:] == (
        Selection(
            frozenset({"timeout", "rejected"}),
            (range(500, 600), range(404, 405)),
            frozenset({b"\xff", b"k"}),
            frozenset({"orders"}),
            1000,
            2500,
            redriven=True,
        ),
        7,
        True,
        0,
    )


@with_server
async def test_counts_come_by_what_is_asked(served: Served) -> None:
    assert (await served.get(f"{LETTERS}/count")).json() == {
        "by": "reason",
        "letters": 4,
        "groups": [{"value": "rejected", "letters": 3}, {"value": None, "letters": 1}],
    }
    assert (await served.get(f"{LETTERS}/count?by=status")).json()["groups"][0]["value"] == 422
    assert [each[3] for each in served.letters.asked] == [By.REASON, By.STATUS]


NONSENSE = [
    "limit=0",
    "limit=-1",
    "limit=1e9",
    "limit=x",
    "limit=1001",
    "status=999",
    "status=400-409",
    "since=yesterday",
    "until=2026-13-01",
    "payload=maybe",
    "reson=timeout",
    "reason=" + "&reason=x" * 51,
    "key=base64:!",
]


@with_server
async def test_nonsense_is_refused_in_one_sentence(served: Served) -> None:
    for query in NONSENSE:
        told = problem(await served.get(f"{LETTERS}?{query}", headers=TOKEN_SENT), 422)
        assert "\n" not in told
    assert served.letters.asked == []


@with_server
async def test_a_redrive_is_begun_followed_and_ended(served: Served) -> None:
    problem(await served.get(REDRIVE), 404)
    problem(await served.change("DELETE", REDRIVE), 409)
    wanted = {"reason": ["timeout"], "status": ["5xx"], "rate": 50, "limit": 10, "dry_run": True}
    begun = await served.change("POST", REDRIVE, wanted)
    assert begun.status_code == 202
    assert begun.headers["location"] == REDRIVE
    assert (begun.json()["state"], begun.json()["dry_run"]) == ("running", True)
    selection = Selection(frozenset({"timeout"}), (range(500, 600),))
    order = RedriveOrder(selection, rate=50, limit=10, dry_run=True)
    assert served.letters.asked[-1] == ("redrive", "orders", order)
    assert (await served.get(REDRIVE)).json() == begun.json()
    assert (await served.change("DELETE", REDRIVE)).json()["state"] == "stopping"


NO_REDRIVE = [
    '{"rate": 0}',
    '{"rate": NaN}',
    '{"rate": 1e9}',
    '{"rate": "x"}',
    '{"limit": true}',
    '{"limit": 0}',
    '{"limit": 1.5}',
    '{"to_origin": 1}',
    '{"status": [500]}',
    '{"since": 5}',
    '{"key": [7]}',
    '{"reason": "timeout"}',
    '{"origin": true}',
    "[]",
    "",
]


@with_server
async def test_a_redrive_of_nonsense_is_refused(served: Served) -> None:
    headers = {**TOKEN_SENT, "content-type": "application/json"}
    for body in NO_REDRIVE:
        answer = await served.client.post(REDRIVE, content=body, headers=headers)
        assert "\n" not in problem(answer, 422)
    assert served.letters.asked == []


@with_server
async def test_redrives_need_the_token_and_heed_if_match(served: Served) -> None:
    for method in ("POST", "DELETE"):
        problem(await served.client.request(method, REDRIVE, json={}), 401)
        problem(await served.change(method, REDRIVE, {}, if_match='"old"'), 412)
    assert served.letters.asked == []


@with_server
async def test_an_unknown_route_is_answered_with_those_there_are(served: Served) -> None:
    other = "/v1/routes/order/dead-letters/redrive"
    assert "did you mean orders?" in problem(await served.change("POST", other, {}), 404)


@with_server
async def test_what_cannot_be_done_says_why(served: Served) -> None:
    for refusal, status in (
        (Busy("somebody else reads"), 429),
        (SourceError("the brokers are away"), 503),
        (NotFound("no dead_letter topic"), 404),
        (Conflict("a redrive is under way"), 409),
        (SidecarError("progress of another topic"), 409),
    ):
        served.letters.refusal = refusal
        for answer in (
            await served.get(LETTERS),
            await served.get(f"{LETTERS}/count"),
            await served.get(f"{LETTERS}/0/17"),
            await served.change("POST", REDRIVE, {}),
        ):
            assert problem(answer, status) == str(refusal)
            assert ("retry-after" in answer.headers) == (status in (429, 503))


def test_the_audit_log_tells_what_is_sent_but_no_key(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with serving() as served:
            wanted: dict[str, Any] = {"key": ["secret"], "status": ["4xx"], "to_origin": True}
            await served.change("POST", REDRIVE, wanted)
            await served.change("POST", REDRIVE, {})
            await served.change("DELETE", REDRIVE)

    with caplog.at_level(logging.INFO):
        run(main())
    lines = [each.getMessage() for each in caplog.records if each.name == "sidecar.audit"]
    assert lines == [
        "by 127.0.0.1: redrive of route orders: none -> status ['4xx'], to_origin True, keys 1",
        "by 127.0.0.1: redrive of route orders: none -> all True",
        "by 127.0.0.1: redrive of route orders: running -> stopping",
    ]
    assert "secret" not in caplog.text
