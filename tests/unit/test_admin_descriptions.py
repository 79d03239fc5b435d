"""The API's description says of each number what it counts, and gives examples that are true."""

from __future__ import annotations

from typing import Any

import pytest
from jsonschema import Draft202012Validator

from sidecar import status
from sidecar.admin.app import openapi_document

DOCUMENT = openapi_document()
TOLD = {
    name: schema
    for name, schema in DOCUMENT["components"]["schemas"].items()
    if hasattr(status, name) and "properties" in schema
}
PLAIN = {
    "name",
    "guarantee",
    "partition",
    "route",
    "topic",
    "version",
    "started_at",
}  # say it themselves


@pytest.mark.parametrize("name", [*TOLD])
def test_every_field_of_the_state_is_described(name: str) -> None:
    silent = {
        field
        for field, schema in TOLD[name]["properties"].items()
        if "description" not in schema and "$ref" not in schema and field not in PLAIN
    }
    assert silent == set()


def test_examples_are_what_the_schema_allows() -> None:
    seen = 0
    for schema in TOLD.values():
        for field in schema["properties"].values():
            whole: dict[str, Any] = {**field, "components": DOCUMENT["components"]}
            for example in field.get("examples", []):
                Draft202012Validator(whole).validate(example)
                seen += 1
    assert seen > 40
