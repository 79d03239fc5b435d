"""sidecar inject: add the sidecar to the workloads of a stream of Kubernetes manifests.

Lines are inserted; everything that was there stays byte by byte. The configuration goes along as
ConfigMaps, one for each workload. It is checked first, as the sidecar does it at its start.
"""

from __future__ import annotations

import difflib
import hashlib
import io
import re
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Collection
from copy import deepcopy
from pathlib import Path
from typing import Final

import sidecar
from sidecar.cli import config_maps, workloads
from sidecar.cli.config_maps import Place
from sidecar.cli.plain_secrets import plain_secrets
from sidecar.cli.pod_parts import Node, Parts
from sidecar.cli.yaml_edit import Manifests
from sidecar.errors import ConfigError, ExitCode, Problem, SidecarError
from sidecar.settings import Settings, settings_elsewhere
from sidecar.settings.sources import text_tree

_SOCKET: Final = Path("/run/sidecar/admin.sock")
_MOUNT: Final = re.compile("[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?")
_LONGEST_DRAIN: Final = 3600  # that the app's hook waits for
_TEMPLATE_MARKS: Final = ("{{", "{%")


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "-f", "--file", required=True, metavar="FILE", help="manifests; - for standard input"
    )
    parser.add_argument(
        "-c", "--config", required=True, type=Path, metavar="FILE", help="the configuration (YAML)"
    )
    parser.add_argument(
        "--config-map",
        type=_name,
        metavar="NAME",
        help="that holds it then (the workload's name with -kafka-sidecar)",
    )
    parser.add_argument(
        "--secret",
        action="append",
        default=[],
        type=_secret,
        metavar="NAME=SECRET",
        help="mount this Secret at /run/secrets/NAME; may be repeated",
    )
    parser.add_argument("--image", default=f"kafka-dispatch-sidecar:{sidecar.__version__}")
    parser.add_argument(
        "--workload",
        action="append",
        default=[],
        metavar="NAME",
        help="only this one, or KIND/NAME; may be repeated",
    )
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


def _secret(text: str) -> tuple[str, str]:
    name, _, secret = text.partition("=")
    if not config_maps.is_name(secret) or not _MOUNT.fullmatch(name):
        raise ArgumentTypeError(f"{text!r} is not NAME=SECRET, as in kafka=orders-kafka")
    return name, secret


def _name(text: str) -> str:
    if not config_maps.is_name(text):
        raise ArgumentTypeError(f"{text!r} is no name that Kubernetes takes")
    return text


def main(args: Namespace) -> int:
    text = _read(args.file)
    config = io.StringIO(_read(str(args.config)), newline=None).read()  # as YAML has its lines
    changed = injected(text, config, _parts(args, config), args.workload)
    if args.diff:
        lines = difflib.unified_diff(
            text.splitlines(keepends=True), changed.splitlines(keepends=True), args.file, "injected"
        )
        sys.stdout.writelines(lines)
    else:
        sys.stdout.write(changed)
    return ExitCode.CLEAN


def injected(text: str, config: str, parts: Parts, only: Collection[str] = ()) -> str:
    """The stream with the sidecar in its workloads. Raises SidecarError."""
    try:
        manifests = Manifests(text)
        documents = deepcopy(manifests.values)
        objects = [each for document in documents for each in workloads.objects(document)]
        found = [each for each in objects if workloads.is_workload(each)]
        chosen = _chosen(found, only)
        places = [config_maps.place_for(each, parts.config_map) for each in chosen]
    except SidecarError as error:
        is_template = any(mark in text for mark in _TEMPLATE_MARKS)
        hint = "; a template has to be rendered first" if is_template else ""
        raise SidecarError(f"{error}{hint}") from None
    for other in found if parts.config_map is None else ():
        place = config_maps.place_in(other)
        if place in places and not any(other is each for each in chosen):
            raise SidecarError(
                f"{workloads.described(other)} has its configuration in the ConfigMap"
                f" {place.name} as well, which would be changed: choose it too, or another name"
                " by --config-map"
            )
    moved: dict[Place, Place | None] = {}
    for workload, place in zip(chosen, places, strict=True):
        moved[place] = moved.get(place) or config_maps.place_in(workload)
        workloads.put_into(workload, parts, place.name)
    used = {config_maps.place_in(each) for each in found}
    free = {place: None if before in used else before for place, before in moved.items()}
    return manifests.edited(documents, config_maps.put_into(objects, free, config))


def _chosen(found: list[Node], only: Collection[str]) -> list[Node]:
    if not found:
        raise SidecarError("no Deployment, StatefulSet, DaemonSet, Job or CronJob in it")
    for name in only:
        if not any(_is_called(each, name) for each in found):
            there = ", ".join(map(workloads.described, found))
            raise SidecarError(f"no workload {name} in it, only {there}")
    return [each for each in found if not only or any(_is_called(each, name) for name in only)]


def _is_called(workload: Node, wanted: str) -> bool:
    kind, _, name = wanted.rpartition("/")
    return name == workloads.name_of(workload) and kind.lower() in ("", workload["kind"].lower())


def _read(file: str) -> str:
    try:
        if file == "-":
            return sys.stdin.buffer.read().decode()
        with Path(file).open(encoding="utf-8", newline="") as opened:
            return opened.read()
    except OSError as error:
        raise ConfigError([Problem(file, f"cannot be read: {error.strerror}")]) from None
    except UnicodeDecodeError:
        raise ConfigError([Problem(file, "is not UTF-8 text")]) from None


def _parts(args: Namespace, config: str) -> Parts:
    settings = _settings(config, str(args.config))
    return Parts(
        image=args.image,
        config_map=args.config_map,
        checksum=hashlib.sha256(config.encode()).hexdigest(),
        drain_seconds=settings.drain_seconds,
        stop_seconds=args.stop_seconds,
        port=settings.admin.port,
        native=not args.classic,
        app=args.container,
        keep_pre_stop=args.keep_pre_stop,
        secrets=tuple(dict(args.secret).items()),
    )


def _settings(config: str, where: str) -> Settings:
    """Raises ConfigError with what the sidecar would say at its start, and what a pod asks for."""
    tree = text_tree(config, where)
    problems = list(plain_secrets(tree))
    try:
        # How long the pod has is for the injection to say.
        settings = settings_elsewhere({**tree, "grace_seconds": None})
    except ConfigError as error:
        raise ConfigError([*problems, *error.problems]) from None
    if settings.drain_seconds > _LONGEST_DRAIN:
        problems.append(
            Problem("drain_seconds", f"must not be above {_LONGEST_DRAIN} in a pod: lower it")
        )
    if not settings.admin.port:
        problems.append(Problem("admin.port", "must be known to probes: 1 to 65535"))
    if settings.admin.socket != _SOCKET:
        problems.append(Problem("admin.socket", f"must stay {_SOCKET}: the drain goes through it"))
    if problems:
        raise ConfigError(problems)
    return settings
