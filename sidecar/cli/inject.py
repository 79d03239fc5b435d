"""sidecar inject: add the sidecar to the workloads of a stream of Kubernetes manifests.

What is not changed is passed on byte by byte; a document that is changed keeps its comments and
the order of its keys. The configuration goes along as a ConfigMap, in a document of its own.
"""

from __future__ import annotations

import difflib
import hashlib
import io
import re
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from pathlib import Path
from typing import Any, Final

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap
from ruamel.yaml.error import YAMLError
from ruamel.yaml.representer import RoundTripRepresenter
from ruamel.yaml.scalarstring import LiteralScalarString

import sidecar
from sidecar.cli import pod_parts
from sidecar.cli.pod_parts import CONFIG_FILE, Parts
from sidecar.errors import ConfigError, ExitCode, Problem, SidecarError

_MARK: Final = re.compile(r"^---(?=\s|$)", re.MULTILINE)
_HEAD: Final = re.compile(r"---[ \t]*(#.*)?\n")
_INDENTED_LIST: Final = re.compile(r"^( *)[\w.-]+:[ ]*\n\1 +- ", re.MULTILINE)
_DRAIN_SECONDS: Final = 25.0
_PORT: Final = 8090
_SOCKET: Final = "/run/sidecar/admin.sock"


class _Representer(RoundTripRepresenter):
    """Quotes the address of the hook: in a mapping on one line some parsers stumble over its ?."""

    def quoted(self, text: str) -> Any:
        style = '"' if text.startswith(pod_parts.DRAINED) else None
        return self.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Representer.add_representer(str, _Representer.quoted)


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "-f", "--file", required=True, metavar="FILE", help="manifests; - for standard input"
    )
    parser.add_argument(
        "-c", "--config", required=True, type=Path, metavar="FILE", help="the configuration (YAML)"
    )
    parser.add_argument(
        "--config-map", default="kafka-sidecar", metavar="NAME", help="that holds it then"
    )
    parser.add_argument("--image", default=f"kafka-dispatch-sidecar:{sidecar.__version__}")
    parser.add_argument("--container", metavar="NAME", help="the app, where a pod has several")
    parser.add_argument(
        "--stop-seconds",
        type=_seconds,
        default=10,
        metavar="N",
        help="the app's own stop takes (10)",
    )
    parser.add_argument(
        "--classic", action="store_true", help="an ordinary container: Kubernetes before 1.29"
    )
    parser.add_argument(
        "--keep-pre-stop", action="store_true", help="leave the app's own preStop hook alone"
    )
    parser.add_argument("--diff", action="store_true", help="print what would change, as a diff")


def _seconds(text: str) -> int:
    """One at least: the sidecar's own end needs that beyond its drain."""
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise ArgumentTypeError(f"{text!r} is no whole number of seconds above 0")
    return int(text)


def main(args: Namespace) -> int:
    text = _read(args.file)
    config = _read(str(args.config))
    changed = injected(text, config, _parts(args, config))
    if args.diff:
        lines = difflib.unified_diff(
            text.splitlines(keepends=True), changed.splitlines(keepends=True), args.file, "injected"
        )
        sys.stdout.writelines(lines)
    else:
        sys.stdout.write(changed)
    return ExitCode.CLEAN


def injected(text: str, config: str, parts: Parts) -> str:
    """The stream with the sidecar in all of its workloads. Raises SidecarError."""
    documents = _split(text)
    parsed = [_parsed(_cut(document)[1]) for document in documents]
    found = [each for document in parsed for each in pod_parts.workloads(document)]
    if not found:
        kinds = "no Deployment, StatefulSet, DaemonSet, Job or CronJob in it"
        raise SidecarError(kinds + _template_hint(text))
    namespaces = {(each.get("metadata") or {}).get("namespace") for each in found}
    if len(namespaces) > 1:
        raise SidecarError("workloads of several namespaces need a ConfigMap each: one at a time")
    for index, document in enumerate(parsed):
        before = _dumped(document, documents[index])
        for workload in pod_parts.workloads(document):
            pod_parts.put_into(workload, parts)
        if _is_config_map(document, parts.config_map):
            _fill(document, config)
        after = _dumped(document, documents[index])
        if after != before:
            documents[index] = _cut(documents[index])[0] + after
    if not any(_is_config_map(document, parts.config_map) for document in parsed):
        documents.append("---\n" + _dumped(_config_map(config, parts, namespaces.pop()), text))
    return "".join(
        document if document.endswith("\n") else f"{document}\n" for document in documents
    )


def _read(file: str) -> str:
    try:
        if file == "-":
            return sys.stdin.read()
        return Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "is not UTF-8"
        raise ConfigError([Problem(file, str(reason))]) from None


def _parts(args: Namespace, config: str) -> Parts:
    try:
        tree = YAML(typ="safe", pure=True).load(config)
    except YAMLError as error:
        raise ConfigError([Problem(str(args.config), _first_line(error))]) from None
    tree = tree if isinstance(tree, dict) else {}
    admin = tree.get("admin") or {}
    drain, port = tree.get("drain_seconds", _DRAIN_SECONDS), admin.get("port", _PORT)
    problems = []
    if not tree.get("routes"):
        problems.append(Problem("routes", "is required: it is no configuration of the sidecar"))
    if not isinstance(drain, int | float) or not 0 < drain <= 3600:
        problems.append(Problem("drain_seconds", f"is no time up to 3600: {drain!r}"))
    if not isinstance(port, int) or not 0 < port < 65_536:
        problems.append(Problem("admin.port", "must be known to probes: 1 to 65535"))
    if admin.get("socket", _SOCKET) != _SOCKET:
        problems.append(Problem("admin.socket", f"must stay {_SOCKET}: the drain goes through it"))
    if problems:
        raise ConfigError(problems)
    return Parts(
        image=args.image,
        config_map=args.config_map,
        checksum=hashlib.sha256(config.encode()).hexdigest(),
        drain_seconds=float(drain),
        stop_seconds=args.stop_seconds,
        port=port,
        native=not args.classic,
        app=args.container,
        keep_pre_stop=args.keep_pre_stop,
    )


def _split(text: str) -> list[str]:
    """The documents, each with the mark it begins with; together they are the text."""
    starts = [match.start() for match in _MARK.finditer(text)]
    ends = [*starts, len(text)]
    return [each for each in map(lambda a, b: text[a:b], [0, *starts], ends) if each]


def _parsed(document: str) -> Any:
    try:
        return _yaml(document).load(document)
    except YAMLError as error:
        reason = _first_line(error) + _template_hint(document)
        raise SidecarError(f"no YAML: {reason}") from None


def _template_hint(text: str) -> str:
    return "; a template has to be rendered first" if "{{" in text else ""


def _first_line(error: YAMLError) -> str:
    return " ".join(str(error).split())[:200]


def _yaml(style_of: str) -> YAML:
    """Keeps comments, quotes and order, and indents lists as the text does."""
    yaml = YAML()
    yaml.Representer = _Representer
    yaml.preserve_quotes = True
    yaml.width = 1_000_000
    if _INDENTED_LIST.search(style_of):
        yaml.indent(mapping=2, sequence=4, offset=2)
    return yaml


def _dumped(document: Any, style_of: str) -> str:
    out = io.StringIO()
    _yaml(style_of).dump(document, out)
    return out.getvalue()


def _cut(document: str) -> tuple[str, str]:
    """The mark it begins with, and what is to be parsed."""
    if match := _HEAD.match(document):
        return match[0], document[match.end() :]
    return ("---\n" if document.startswith("---") else ""), document


def _is_config_map(document: Any, name: str) -> bool:
    return (
        isinstance(document, dict)
        and document.get("kind") == "ConfigMap"
        and (document.get("metadata") or {}).get("name") == name
    )


def _config_map(config: str, parts: Parts, namespace: str | None) -> CommentedMap:
    metadata = {"name": parts.config_map, **({"namespace": namespace} if namespace else {})}
    return CommentedMap(
        apiVersion="v1",
        kind="ConfigMap",
        metadata=metadata,
        data={CONFIG_FILE: LiteralScalarString(config)},
    )


def _fill(document: Any, config: str) -> None:
    data = document.setdefault("data", CommentedMap())
    if data.get(CONFIG_FILE) != config:
        data[CONFIG_FILE] = LiteralScalarString(config)
