"""When a certificate ends, against certificates that are really made."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st

from sidecar.core.certificates import not_after


@pytest.mark.parametrize("year", [2027, 2049, 2050, 2100])
def test_the_end_is_read_in_either_notation(year: int) -> None:
    """Up to 2049 a year has two digits, from 2050 on four."""
    ends = datetime(year, 3, 4, 5, 6, 7, tzinfo=UTC)
    starts = datetime(2026, 1, 1, tzinfo=UTC)
    made = trustme.CA().issue_cert("a.example", not_before=starts, not_after=ends)
    assert not_after(made.cert_chain_pems[0].bytes().decode()) == ends


def test_what_stands_before_the_certificate_does_not_matter() -> None:
    ends = datetime.now(UTC).replace(microsecond=0) + timedelta(days=3)
    made = trustme.CA().issue_cert("a.example", not_after=ends)
    text = made.private_key_and_cert_chain_pem.bytes().decode()
    assert not_after(f"subject=a\n{text}") == ends


@given(st.binary(max_size=80))
def test_what_is_no_certificate_is_not_understood(rest: bytes) -> None:
    text = rest.decode("latin-1")
    assert not_after(text) is None
    assert not_after(f"-----BEGIN CERTIFICATE-----{text}-----END CERTIFICATE-----") is None
