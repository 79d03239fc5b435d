"""What can be fuzzed: by its name, what makes a case of a number, and what judges one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from tests.fuzz import admin, answers, configuration, metadata, oracle, records


class Kind(NamedTuple):
    """case and judge raise whatever they find; kept makes a case of an input of the corpus."""

    case: Callable[[int], Any]
    judge: Callable[[Any], None]
    kept: Callable[[str, bytes], Any] | None = None


KINDS: Final[dict[str, Kind]] = {
    "answers": Kind(answers.case, oracle.judge),
    "records": Kind(records.case, records.judge),
    "metadata": Kind(metadata.case, metadata.judge, metadata.kept_case),
    "configuration": Kind(configuration.case, configuration.judge, configuration.kept_case),
    "admin": Kind(admin.case, admin.judge, admin.kept_case),
}
