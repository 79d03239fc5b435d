"""docs/configuration.md agrees with the models.

`python tests/unit/test_settings_docs.py` writes the reference part anew.
"""

from __future__ import annotations

import re
from enum import Enum
from pathlib import Path
from typing import Literal, get_args, get_origin

import pytest
import yaml
from annotated_types import Ge, Gt, Le
from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from sidecar.core.kafka_rules import check_kafka_properties
from sidecar.kafka.client_config import consumer_config
from sidecar.settings import Secret, Settings, load_settings
from sidecar.settings.fields import YEAR_SECONDS
from sidecar.settings.problems import is_mapping, item_of, may_be_null, model_of, parts_of

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"
BEGIN = "<!-- reference: written by tests/unit/test_settings_docs.py -->\n"
END = "<!-- end of reference -->"


def kind_of(field: FieldInfo) -> str:
    """The values a field takes, in a few characters."""
    (part,) = parts_of(field.annotation)
    item = item_of(field.annotation)
    if model_of(item) is not None:
        return "list of sections"
    if item is not None:
        return "list of text"
    if get_origin(part) is Literal:
        return " \\| ".join(f"`{each}`" for each in get_args(part))
    if model_of(part) is not None:
        return "section"
    if is_mapping(part):
        return "mapping"
    if isinstance(part, type) and issubclass(part, Enum):
        return " \\| ".join(f"`{each.value}`" for each in part)
    names = {int: "whole number", float: "number", bool: "`true` \\| `false`", str: "text"}
    return names.get(part, "secret text" if part in (SecretStr, Secret) else "path") + range_of(
        field
    )


def range_of(field: FieldInfo) -> str:
    inside = [each for part in get_args(field.annotation) for each in get_args(part)[1:]]
    limits = [*field.metadata, *inside]
    for part in [*limits]:
        limits += getattr(part, "metadata", [])
    low = next((f"≥ {each.ge}" for each in limits if isinstance(each, Ge)), "")
    low = low or next((f"> {each.gt}" for each in limits if isinstance(each, Gt)), "")
    # That a time is at most a year need not be said.
    highs = [each.le for each in limits if isinstance(each, Le) and each.le != YEAR_SECONDS]
    high = f"≤ {highs[0]:.0f}" if highs else ""
    return "".join(f" {limit}" for limit in (low, high) if limit)


def default_of(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    if field.default_factory is not None:
        return ""  # a section with its own defaults, or told in the description
    value = field.default
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, bool):
        value = str(value).lower()
    if isinstance(value, float):
        value = f"{value:g}"
    return (
        ""
        if value is None and not may_be_null(field.annotation)
        else ("none" if value is None else f"`{value}`")
    )


def tables(model: type[BaseModel], title: str, prefix: str) -> str:
    """A table of a section, followed by those of the sections inside."""
    rows = ["| setting | values | default | meaning |", "|---|---|---|---|"]
    inner = ""
    for name, field in model.model_fields.items():
        meaning = (field.description or "").replace("|", "\\|")
        rows.append(f"| `{name}` | {kind_of(field)} | {default_of(field)} | {meaning} |")
        section = model_of(field.annotation) or model_of(item_of(field.annotation))
        if section is not None:
            path = f"{prefix}{name}" + ("[]" if item_of(field.annotation) else "")
            inner += tables(section, f"`{path}`", f"{path}.")
    described = " ".join((model.__doc__ or "").split())
    return f"\n### {title}\n\n{described}\n\n" + "\n".join(rows) + "\n" + inner


def reference() -> str:
    return tables(Settings, "Top level", "") + "\n"


def page() -> tuple[str, str, str]:
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    inside, _, after = rest.partition(END)
    return before, inside, after


def test_the_reference_is_that_of_the_models() -> None:
    assert page()[1] == reference(), "run: python tests/unit/test_settings_docs.py"


EXAMPLES = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES)
def test_every_example_loads(example: str, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("hush", encoding="utf-8")
    file = tmp_path / "sidecar.yaml"
    file.write_text(re.sub(r"/run/secrets/[a-z/]+", str(secret), example), encoding="utf-8")
    assert load_settings(file, {}).routes


def defaults_table() -> dict[str, str]:
    section = PAGE.read_text(encoding="utf-8").partition("Set unless you choose otherwise:")[2]
    table = section.partition("\n\n`group.instance.id`")[0]
    return dict(re.findall(r"^\| `([a-z.]+)` \| `?([^`|,]+?)`?(?:,[^|]*)? \|", table, re.MULTILINE))


def test_the_defaults_named_for_kafka_are_those_the_consumer_gets() -> None:
    settings = load_settings(None, {}, yaml.safe_load(EXAMPLES[0]))
    config = consumer_config(settings, settings.routes[0])
    table = defaults_table()
    assert len(table) == 10
    for name, value in table.items():
        if name == "auto.offset.reset":
            assert settings.offset_reset.value == value
        elif name == "client.id":
            assert config[name] == "sidecar-orders"
        elif name == "queued.min.messages":
            assert config[name] == "2000"
        else:
            assert config[name] == value, name


def test_every_refused_property_named_is_refused() -> None:
    section = PAGE.read_text(encoding="utf-8").partition("Refused, because something would break:")
    names = re.findall(r"`([a-z_.*]+)(?:: ([a-z]+))?`", section[2].partition("## Times")[0])
    refused = 0
    for name, value in names:
        if name in ("commit_interval_seconds", "earliest", "latest"):
            continue
        name = name.replace("*", "path")
        given = {"bootstrap.servers": "x:1", name: value or "true"}
        assert [each.path for each in check_kafka_properties(given)][:1] == [name]
        refused += 1
    assert refused >= 11


if __name__ == "__main__":
    head, _, tail = page()
    PAGE.write_text(head + BEGIN + reference() + END + tail, encoding="utf-8")
