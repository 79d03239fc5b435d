"""What the answer to a batch says of its records.

An application may name those that failed in the body of a 2xx, in either of two forms:

    {"failures": [3, {"index": 5, "status": 422, "retry_after": 30}]}
    {"batchItemFailures": [{"itemIdentifier": {"partition": "orders-0", "offset": 17}}]}

The first is ours: places in the batch, from 0, with the status that the record alone would have
been answered with, if there is one. The second is that of AWS Lambda's event source for Kafka,
whose identifier is written "orders-0-17" by some.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from types import NoneType
from typing import Any, Final

from sidecar.errors import SidecarError
from sidecar.model import Answer, Record

_LISTS: Final = ("failures", "batchItemFailures")
_BY_PLAIN_NAME: Final = {name.lower(): name for name in _LISTS}


class BatchAnswerError(SidecarError):
    """The answer cannot be understood, so nothing of the batch counts as done."""


def failures_of(
    body: bytes, records: Sequence[Record], *, strict: bool = False
) -> Mapping[int, Answer | None]:
    """The records that failed, by their places: the answer each is to be judged by, or None.

    What is no JSON object says nothing, and all were delivered; strict: that is an error, unless
    it is empty or null. Raises BatchAnswerError for an answer that names something else than
    records of the batch.
    """
    if not body.strip():
        return {}
    try:
        said: Any = json.loads(body)
    except (ValueError, RecursionError):
        if body.lstrip().startswith(b"{"):  # it was meant to be one, and may have named somebody
            raise BatchAnswerError("the answer to a batch is an object that is not JSON") from None
        said = ...
    if said is None:
        return {}
    if not isinstance(said, dict):
        if strict:
            raise BatchAnswerError("the answer to a batch is no JSON object")
        return {}
    _refuse_misspelt(said)
    named: dict[int, Answer | None] = {}
    for index in _identified(_list(said, "batchItemFailures"), records):
        named[index] = None
    named.update(_indexed(_list(said, "failures"), len(records)))
    return named


def _refuse_misspelt(said: Mapping[str, Any]) -> None:
    """A list under nearly such a name was meant to name somebody, who would count as done."""
    for name, value in said.items():
        if name in _LISTS or not (isinstance(value, list) and value):
            continue
        plain = name.lower().replace("_", "").replace("-", "")
        if near := get_close_matches(plain, _BY_PLAIN_NAME, n=1, cutoff=0.7):
            meant = _BY_PLAIN_NAME[near[0]]
            raise BatchAnswerError(f"{name[:40]} is nothing, did it mean {meant}?")


def _list(said: Mapping[str, Any], name: str) -> Sequence[Any]:
    value = said.get(name)
    if value is None:
        return ()
    if not isinstance(value, list):
        raise BatchAnswerError(f"{name} is {_told(value)}, not a list")
    return value


def _indexed(items: Sequence[Any], size: int) -> Iterator[tuple[int, Answer | None]]:
    for item in items:
        index = item.get("index") if isinstance(item, dict) else item
        if type(index) is not int or not 0 <= index < size:
            raise BatchAnswerError(f"failures names {_told(item)}: no place in a batch of {size}")
        yield index, _answer(item) if isinstance(item, dict) else None


def _answer(item: Mapping[str, Any]) -> Answer | None:
    status, wait = item.get("status"), item.get("retry_after")
    if status is None and wait is None:
        return None
    if status is None:
        status = 503  # it names a wait, so it is busy
    if type(status) is not int or not 300 <= status < 600:
        raise BatchAnswerError(f"failures gives a status of {_told(status)}: 300 to 599 are")
    if isinstance(wait, bool) or not isinstance(wait, (int, float, str, NoneType)):
        raise BatchAnswerError(f"failures gives a retry_after of {_told(wait)}: seconds or a date")
    if isinstance(wait, float):  # as in the header: whole seconds, and not before the time
        wait = math.ceil(wait) if math.isfinite(wait) else ""
    return Answer(status, None if wait is None else str(wait))


def _identified(items: Sequence[Any], records: Sequence[Record]) -> Iterator[int]:
    if not items:
        return
    places: dict[object, int] = {}
    for index, record in enumerate(each.original for each in records):
        where = f"{record.topic}-{record.partition}"
        places[where, record.offset] = places[f"{where}-{record.offset}"] = index
    for item in items:
        identifier = item.get("itemIdentifier") if isinstance(item, dict) else None
        key: object = identifier
        if isinstance(identifier, dict):
            partition, offset = identifier.get("partition"), identifier.get("offset")
            key = (partition, offset) if type(offset) is int else None
        try:
            index = places.get(key, -1)
        except TypeError:  # not hashable
            index = -1
        if index < 0:
            raise BatchAnswerError(f"batchItemFailures names {_told(item)}: not of the batch")
        yield index


def _told(value: object) -> str:
    """For logs, so without what it holds: an application may answer with what it was sent."""
    match value:
        case str():
            return f"a text of {len(value)} characters"
        case list():
            return f"a list of {len(value)}"
        case dict():
            return f"an object of {len(value)} fields"
    return json.dumps(value)[:20]
