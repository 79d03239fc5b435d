"""The mark of records in retry topics: what is no mark is none."""

from __future__ import annotations

from typing import Any

import pytest

from sidecar.core.retry_mark import RetryMark, marked, read_mark

MARK = RetryMark("orders", 3, 42, -1, 2, -1, 0)


def test_a_mark_is_read_as_it_was_written() -> None:
    assert read_mark(marked([("h", b"1")], MARK)) == MARK


@pytest.mark.parametrize("field", ["offset", "attempts", "due_ms", "timestamp_ms"])
def test_a_number_that_no_request_and_no_timer_takes_is_no_mark(field: str) -> None:
    def with_number(number: int) -> RetryMark:
        told: dict[str, Any] = {**MARK._asdict(), field: number}
        return RetryMark(**told)

    assert read_mark(marked([], with_number(2**63 - 1))) is not None
    assert read_mark(marked([], with_number(2**63))) is None
    assert read_mark(marked([], with_number(10**4299))) is None
