"""What the client says, and the way out that is told with it."""

from __future__ import annotations

import pytest

from sidecar.kafka.ways_out import way_out_of


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("SSL connection closed by peer (after 3ms in state SSL_HANDSHAKE)", "speaks no TLS"),
        ("SSL connection closed by peer (after 3ms in state APIVERSION_QUERY)", "does not log in"),
        (
            "ssl/tls alert certificate required (after 3ms in state SSL_HANDSHAKE)",
            "refuses the client certificate",
        ),
        ("nothing that is known", None),
    ],
)
def test_a_port_that_hangs_up_is_told_by_when_it_does(said: str, told: str | None) -> None:
    """A broker without TLS may close before the client has read why."""
    found = way_out_of(said)
    assert found is None if told is None else told in (found or "")
