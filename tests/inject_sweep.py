"""sidecar inject over every manifest in a directory: python -m tests.inject_sweep DIR

Each file is injected or refused with a sentence. What is injected holds all of its lines, is the
same if it is done again, and is taken by Kubernetes if it was before. Prints what was done, each
reason of refusal with how many had it, and whatever does not hold; the exit code tells.
"""

from __future__ import annotations

import difflib
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import kubernetes_validate
import yaml

from sidecar.cli import workloads
from sidecar.cli.inject import injected
from sidecar.cli.pod_parts import Parts, mapping_in, mappings_in
from sidecar.cli.yaml_edit import Manifests
from sidecar.errors import SidecarError
from tests.unit.test_inject_manifests import CONFIG, parts

PARTS: Final = parts(config_map=None)
KUBERNETES: Final = "1.34"
ENDINGS: Final = (".yaml", ".yml", ".json")
# What may be written anew besides lines that grow between their brackets: what was empty and is
# filled, and a grace period that is too short.
REWRITTEN: Final = re.compile(
    r"""["']?:\s*(null|~|\{\s*\}|\[\s*\])?\s*(\#.*)?$ | terminationGracePeriodSeconds["']?:""",
    re.VERBOSE,
)


def main(directory: Path) -> int:
    counts: Counter[str] = Counter()
    failures: list[str] = []
    files = sorted(each for each in directory.rglob("*") if each.suffix in ENDINGS)
    for file in files:
        try:
            text = file.read_bytes().decode()
        except UnicodeDecodeError:
            counts["refused: is not UTF-8"] += 1
            continue
        wrong = _swept(text, PARTS, (), counts)
        failures += [f"{file.relative_to(directory)}: {each}" for each in wrong]
    lines = [f"{count:6} {what}" for what, count in counts.most_common()]
    lines += [f"{len(files):6} files, {len(failures)} failures", *failures, ""]
    sys.stdout.write("\n".join(lines))
    return min(len(failures), 1)


def _swept(text: str, what: Parts, only: tuple[str, ...], counts: Counter[str]) -> list[str]:
    """As a whole, or else by what the reason of the refusal asks for."""
    try:
        out = injected(text, CONFIG, what, only)
    except SidecarError as error:
        reason = str(error)
        counts[f"refused: {_kind_of(reason)}"] += 1
        wrong = ["a reason of several lines"] if "\n" in reason else []
        if "Say --container" in reason and not only:
            return wrong + [each for way in _each(text) for each in _swept(text, *way, counts)]
        if "say --keep-pre-stop" in reason:
            return wrong + _swept(text, replace(what, keep_pre_stop=True), only, counts)
        return wrong
    except Exception as error:  # noqa: BLE001 (it is what is looked for)
        counts["traceback"] += 1
        return [f"{type(error).__name__}: {error}"]
    counts["injected" if not only else "injected, by itself"] += 1
    return [*_faults(text, out, what, only)]


def _each(text: str) -> Iterator[tuple[Parts, tuple[str, ...]]]:
    """Each workload by itself, its first container being the application."""
    for each in _workloads(Manifests(text).values):
        template = workloads.template_of(each) or {}
        first = next(iter(mappings_in(mapping_in(template, "spec"), "containers")), {})
        yield replace(PARTS, app=first.get("name")), (f"{each['kind']}/{workloads.name_of(each)}",)


def _faults(text: str, out: str, what: Parts, only: tuple[str, ...]) -> Iterator[str]:
    if injected(out, CONFIG, what, only) != out:
        yield "twice is not once"
    if lost := [*_lost(text, out)]:
        yield f"lost {lost[:3]}"
    before, after = _read(text), _read(out)
    if before and not after:
        yield "another parser cannot read it"
    if (told := _complaint(after)) and not _complaint(before):
        yield f"Kubernetes refuses: {told[:300]}"


def _lost(before: str, after: str) -> Iterator[str]:
    """Lines that are there no more. One that goes on with a comma, as in JSON, is the same."""
    one, other = ([line.rstrip(",") for line in text.splitlines()] for text in (before, after))
    rest = iter(other)
    if all(line in rest for line in one):
        return
    told = [*difflib.unified_diff(one, other, n=0, lineterm="")][2:]
    added = [line[1:] for line in told if line.startswith("+")]
    for line in (line[1:] for line in told if line.startswith("-")):
        if not REWRITTEN.search(line) and not any(_has_grown(line, each) for each in added):
            yield line


def _has_grown(line: str, other: str) -> bool:
    """Every character is still there, in order, and there was a bracket to put more in."""
    rest = iter(other)
    return bool(set("]}") & set(line)) and all(each in rest for each in line)


def _workloads(documents: list[Any]) -> Iterator[Any]:
    for document in documents:
        yield from filter(workloads.is_workload, workloads.objects(document))


def _complaint(documents: list[Any]) -> str:
    """What Kubernetes would say of them."""
    for each in _workloads(documents):
        try:
            kubernetes_validate.validate(_bare(each), KUBERNETES, strict=True)
        except Exception as error:  # noqa: BLE001 (of versions that it knows no more as well)
            return str(error)
    return ""


def _read(text: str) -> list[Any]:
    """By another parser; nothing where it cannot."""
    try:
        return [*yaml.load_all(text, yaml.CSafeLoader)]
    except (yaml.YAMLError, ValueError):
        return []


def _bare(node: Any) -> Any:
    """Without what is null: the library knows none."""
    if isinstance(node, dict):
        return {key: _bare(value) for key, value in node.items() if value is not None}
    return [_bare(each) for each in node] if isinstance(node, list) else node


def _kind_of(reason: str) -> str:
    """Without what is of this file alone."""
    general = re.sub(r"^(Deployment|StatefulSet|DaemonSet|Job|CronJob)( \S+)?: ", "", reason)
    general = re.sub(r"^no YAML: .*?(?=; a template|$)", "no YAML", general)
    general = re.sub(r"\b(container|volume) (?!is )\S+", r"\1 …", general)
    return re.sub(r"application: .*\?", "application: …?", general)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
