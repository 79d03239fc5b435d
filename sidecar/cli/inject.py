"""sidecar inject: add the sidecar to the workloads of a stream of Kubernetes manifests.

Lines are inserted; everything that was there stays byte by byte. The configuration goes along as a
ConfigMap, in a document of its own.
"""

from __future__ import annotations

import difflib
import hashlib
import io
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from copy import deepcopy
from pathlib import Path
from typing import Any, Final

import sidecar
from sidecar.cli import pod_parts
from sidecar.cli.plain_secrets import plain_secrets
from sidecar.cli.pod_parts import CONFIG_FILE, Parts
from sidecar.cli.yaml_edit import Manifests
from sidecar.cli.yaml_text import entries
from sidecar.cli.yaml_tree import Tree
from sidecar.errors import ConfigError, ExitCode, Problem, SidecarError

_DRAIN_SECONDS: Final = 25.0
_PORT: Final = 8090
_SOCKET: Final = "/run/sidecar/admin.sock"


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
    config = io.StringIO(_read(str(args.config)), newline=None).read()  # as YAML has its lines
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
    try:
        manifests = Manifests(text)
    except SidecarError as error:
        raise SidecarError(f"{error}{_template_hint(text)}") from None
    documents = deepcopy(manifests.values)
    found = [each for document in documents for each in pod_parts.workloads(document)]
    if not found:
        kinds = "no Deployment, StatefulSet, DaemonSet, Job or CronJob in it"
        raise SidecarError(kinds + _template_hint(text))
    namespaces = {_metadata(each).get("namespace") for each in found}
    if len(namespaces) > 1:
        raise SidecarError("workloads of several namespaces need a ConfigMap each: one at a time")
    for workload in found:
        pod_parts.put_into(workload, parts)
    config_maps = [each for each in documents if _is_config_map(each, parts.config_map)]
    for each in config_maps:
        each["data"] = {**pod_parts.mapping_in(each, "data"), CONFIG_FILE: config}
    changed = manifests.edited(documents)
    if config_maps:
        return changed
    newline = "\r\n" if "\r\n" in text else "\n"
    lines = ["" if changed.endswith("\n") else newline, "---\n"]
    config_map = _config_map(config, parts, namespaces.pop())
    lines += [f"{each}\n" for each in entries(config_map, 0, lists_indented=False)]
    return changed + "".join(lines).replace("\n", newline)


def _read(file: str) -> str:
    try:
        if file == "-":
            return sys.stdin.buffer.read().decode()
        with Path(file).open(encoding="utf-8", newline="") as opened:
            return opened.read()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "is not UTF-8"
        raise ConfigError([Problem(file, str(reason))]) from None


def _parts(args: Namespace, config: str) -> Parts:
    try:
        tree = next(iter(Tree(config).values), None)
    except SidecarError as error:
        raise ConfigError([Problem(str(args.config), str(error))]) from None
    tree = tree if isinstance(tree, dict) else {}
    admin = pod_parts.mapping_in(tree, "admin")
    drain, port = tree.get("drain_seconds", _DRAIN_SECONDS), admin.get("port", _PORT)
    problems = list(plain_secrets(tree))
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


def _template_hint(text: str) -> str:
    return "; a template has to be rendered first" if "{{" in text else ""


def _metadata(document: Any) -> Any:
    return pod_parts.mapping_in(document, "metadata")


def _is_config_map(document: Any, name: str) -> bool:
    return (
        isinstance(document, dict)
        and document.get("kind") == "ConfigMap"
        and _metadata(document).get("name") == name
    )


def _config_map(config: str, parts: Parts, namespace: str | None) -> dict[str, Any]:
    metadata = {"name": parts.config_map, **({"namespace": namespace} if namespace else {})}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "data": {CONFIG_FILE: config},
    }
