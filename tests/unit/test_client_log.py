"""What the client library says reaches the log once per trouble."""

from __future__ import annotations

import logging

import pytest

from sidecar.kafka.client_log import ClientLog
from sidecar.logs import gist

REFUSED = (
    "[thrd:b]: 127.0.0.1:%d/1: Connect failed: Connection refused (after %dms in state CONNECT"
)


def test_reports_of_one_trouble_have_the_same_gist() -> None:
    first = REFUSED % (9092, 0) + ")"
    again = REFUSED % (9092, 12) + ", 3 identical error(s) suppressed)"
    assert gist(first) == gist(again)
    assert gist(first) != gist(first.replace("refused", "reset"))


def test_a_trouble_is_logged_once_and_another_one_as_well(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    client = ClientLog()
    for waited in (0, 5):
        text = REFUSED % (9092, waited) + ")"
        client.log(logging.ERROR, "%s [%s] %s", "FAIL", "sidecar#consumer-1", text)
    client.log(logging.WARNING, "%s [%s] %s", "SESSTMOUT", "sidecar#consumer-1", "timed out")
    assert [(each.levelname, each.getMessage()[:4]) for each in caplog.records] == [
        ("INFO", "FAIL"),  # told as an error by the client as well
        ("WARNING", "SESS"),
    ]


def test_a_line_names_the_route_that_the_client_works_for(caplog: pytest.LogCaptureFixture) -> None:
    ClientLog("orders").log(logging.WARNING, "%s [%s] %s", "SESSTMOUT", "c", "timed out")
    assert [vars(each)["route"] for each in caplog.records] == ["orders"]
