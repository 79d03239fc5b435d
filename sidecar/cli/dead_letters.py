"""sidecar dead-letters: look at what was parked, and send it back.

Talks to Kafka with the sidecar's own configuration, while the sidecar runs or not. What it prints
on standard output is the result; progress and remarks go to standard error. Exit code 1 if a
redrive was interrupted or has left something that was meant.
"""

from __future__ import annotations

import json
import re
import signal
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace, RawDescriptionHelpFormatter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from threading import Event
from time import time

from sidecar.cli.letter_text import (
    count_lines,
    header_line,
    letter_json,
    letter_line,
    letter_text,
    plain,
)
from sidecar.cli.numbers import positive_number, whole_number
from sidecar.cli.options import add_file_argument, settings_from
from sidecar.cli.printable import printable
from sidecar.core.answers import parse_statuses
from sidecar.core.letter_filters import parse_key, parse_moment
from sidecar.core.letters import By, Selection
from sidecar.errors import ConfigError, ExitCode, Problem, SidecarError
from sidecar.kafka.letterbox import Letterbox, lettered_routes
from sidecar.kafka.redrive import Redrive, Redriven
from sidecar.settings import RouteSettings, Settings

_ABOUT = """\
Records that the application did not take lie in the route's dead-letter topic.

  sidecar dead-letters count  -c sidecar.yaml              how many, and why
  sidecar dead-letters list   -c sidecar.yaml              the newest, one a line
  sidecar dead-letters show   -c sidecar.yaml 0/17         one with its payload
  sidecar dead-letters redrive -c sidecar.yaml --dry-run   what would be sent back
  sidecar dead-letters redrive -c sidecar.yaml             send it back

A redrive writes each record to a retry topic that only this consumer group reads: the running
sidecar delivers it again as the same record, with the same Idempotency-Key. Each is sent once, even
if the redrive is interrupted (Ctrl-C, kill) and started again. Letters stay in the dead-letter
topic until its retention removes them; those that were sent are left out from then on (--all shows
them)."""


def add_arguments(parser: ArgumentParser) -> None:
    parser.description = _ABOUT
    parser.formatter_class = RawDescriptionHelpFormatter
    actions = parser.add_subparsers(dest="action", metavar="list | show | count | redrive")
    actions.required = True

    listing = actions.add_parser("list", help="one a line", allow_abbrev=False)
    _add_common(listing)
    _add_filters(listing, limit="so many at most (20)")
    listing.add_argument("--oldest", action="store_true", help="the oldest first, not the newest")
    listing.add_argument("--all", action="store_true", help="what was redriven as well")

    showing = actions.add_parser("show", help="one with its payload", allow_abbrev=False)
    _add_common(showing)
    showing.add_argument(
        "where", type=_where, metavar="PARTITION/OFFSET", help="as list prints it: 0/17"
    )

    counting = actions.add_parser("count", help="how many, and why", allow_abbrev=False)
    _add_common(counting)
    _add_filters(counting, limit=None)
    counting.add_argument("--all", action="store_true", help="what was redriven as well")
    counting.add_argument(
        "--by", choices=[each.value for each in By], default=By.REASON.value, help="(reason)"
    )

    redriving = actions.add_parser("redrive", help="send back, each once", allow_abbrev=False)
    _add_common(redriving)
    _add_filters(redriving, limit="so many at most (all)")
    redriving.add_argument("--dry-run", action="store_true", help="only say what would be sent")
    redriving.add_argument(
        "--rate", type=positive_number, metavar="N", help="records a second (no limit)"
    )
    redriving.add_argument(
        "--to-origin",
        action="store_true",
        help="to the original topics instead, as new records: other consumer groups get them too",
    )
    redriving.add_argument(
        "--old",
        action="store_true",
        help="also what is older than the brokers would remember a redrive of it",
    )
    redriving.add_argument("--yes", action="store_true", help="with --to-origin: do not ask")


def _add_common(parser: ArgumentParser) -> None:
    add_file_argument(parser)
    parser.add_argument("--route", metavar="NAME", help="where several have a dead-letter topic")
    parser.add_argument("--json", action="store_true", help="for scripts")


def _add_filters(parser: ArgumentParser, limit: str | None) -> None:
    group = parser.add_argument_group("which", "each may be repeated but the times; all must fit")
    group.add_argument("--reason", action="append", default=[], help="as count prints it")
    group.add_argument(
        "--status", action="append", default=[], type=_statuses, help="422, 5xx or 400-409"
    )
    group.add_argument(
        "--key", action="append", default=[], type=_key, help="text, or base64:… for any bytes"
    )
    group.add_argument(
        "--topic", action="append", default=[], dest="origin", metavar="TOPIC", help="original one"
    )
    group.add_argument("--since", type=_moment, metavar="TIME", help="parked at or after; ISO, 2h")
    group.add_argument("--until", type=_moment, metavar="TIME", help="parked before; ISO or 2h")
    if limit is not None:
        group.add_argument("--limit", type=whole_number, metavar="N", help=limit)


def main(args: Namespace) -> int:
    settings = settings_from(args)
    with Letterbox(settings, _route(settings, args.route)) as box:
        match args.action:
            case "list":
                return _list(box, args)
            case "show":
                return _show(box, args)
            case "count":
                return _count(box, args)
            case _:
                return _redrive(box, args)


def _route(settings: Settings, name: str | None) -> RouteSettings:
    routes = lettered_routes(settings)
    if not routes:
        raise ConfigError([Problem("", "no route has a dead_letter topic")])
    names = ", ".join(route.name for route in routes)
    if name is None and len(routes) > 1:
        raise ConfigError([Problem("--route", f"which one? {names}")])
    for route in routes:
        if name in {None, route.name}:
            return route
    raise ConfigError([Problem("--route", f"{name!r} has no dead_letter topic; there are {names}")])


def _selection(args: Namespace) -> Selection:
    return Selection(
        reasons=frozenset(args.reason),
        statuses=tuple(args.status),
        keys=frozenset(args.key),
        topics=frozenset(args.origin),
        since_ms=args.since,
        until_ms=args.until,
        redriven=getattr(args, "all", False),
    )


# --- the actions --------------------------------------------------------------------------------


def _list(box: Letterbox, args: Namespace) -> int:
    find = box.oldest if args.oldest else box.newest
    letters = find(_selection(args), args.limit or 20)
    if args.json:
        for letter in letters:
            print(json.dumps(letter_json(letter)))
    elif letters:
        print(header_line())
        for letter in letters:
            print(letter_line(letter))
    else:
        _remark(f"no such letter in {box.topic}{_other_reasons(box, _selection(args))}")
    return ExitCode.CLEAN


def _other_reasons(box: Letterbox, selection: Selection) -> str:
    """The reasons there are, for whoever asked for one that there is not."""
    if not selection.reasons:
        return ""
    counted = box.count(replace(selection, reasons=frozenset()), By.REASON)
    named = ", ".join(f"{reason!s} ({number})" for reason, number in counted.most_common())
    return f"; the reasons there are: {named}" if named else ""


def _show(box: Letterbox, args: Namespace) -> int:
    letter = box.letter(*args.where)
    if letter is None:
        number, offset = args.where
        raise SidecarError(f"{box.topic} holds nothing at {number}/{offset}")
    if args.json:
        print(json.dumps(letter_json(letter, payload=True)))
    else:
        print(letter_text(letter))
    return ExitCode.CLEAN


def _count(box: Letterbox, args: Namespace) -> int:
    counted = box.count(_selection(args), By(args.by))
    if args.json:
        groups = [{args.by: plain(what), "letters": each} for what, each in counted.most_common()]
        print(json.dumps({"topic": box.topic, "letters": counted.total(), "groups": groups}))
    else:
        print("\n".join(count_lines(counted)))
    return ExitCode.CLEAN


def _redrive(box: Letterbox, args: Namespace) -> int:
    with _stopped_by_signals() as stop:
        redrive = Redrive(
            box,
            _selection(args),
            to_origin=args.to_origin,
            rate=args.rate,
            limit=args.limit,
            old=args.old,
            progress=_show_progress if sys.stderr.isatty() else None,
            stop=stop,
        )
        if args.to_origin and not args.dry_run and not args.yes:
            _ask_first(redrive.plan())
        done = redrive.plan() if args.dry_run else redrive.run()
    if sys.stderr.isatty():
        print("\r", end="", file=sys.stderr)
    if args.json:
        print(json.dumps(_as_json(done, args.dry_run)))
    else:
        for line in _summary(done, args.dry_run):
            print(printable(line))
    if args.dry_run and not redrive.retry_topic_exists():
        _remark(_missing(redrive, box))
    if done.refused:
        _remark(
            f"{done.refused} left, because no sidecar wrote them and where they belong is not"
            f" known: {', '.join(done.refused_first)}" + (" …" if done.refused > 20 else "")
        )
    if done.too_old:
        _remark(
            f"{done.too_old} left: they are so old that the brokers would have forgotten a redrive"
            " of them (offsets.retention.minutes); add --old if there was none"
        )
    if done.interrupted:
        _remark("interrupted; the same command goes on where this one ended")
    whole = not (done.interrupted or done.refused or done.too_old)
    return ExitCode.CLEAN if whole else ExitCode.FAILURE


def _as_json(done: Redriven, dry_run: bool) -> dict[str, object]:
    return {
        "dry_run": dry_run,
        "letters": done.letters,
        "to": dict(done.to),
        "reasons": dict(done.reasons),
        "refused": done.refused,
        "too_old": done.too_old,
        "interrupted": done.interrupted,
    }


def _summary(done: Redriven, dry_run: bool) -> Iterator[str]:
    verb = "would be redriven" if dry_run else "redriven"
    if not done.letters:
        yield f"0 {verb}"
    for topic, number in sorted(done.to.items()):
        yield f"{number} {verb} to {topic}"
    for reason, number in done.reasons.most_common():
        yield f"{number:>9}  {reason}"


def _missing(redrive: Redrive, box: Letterbox) -> str:
    if box.route.retry.create_topics:
        return f"{redrive.retry_topic} does not exist yet and would be created"
    return f"{redrive.retry_topic} does not exist: create it, or set retry.create_topics"


def _ask_first(plan: Redriven) -> None:
    topics = ", ".join(sorted(plan.to)) or "their original topics"
    warning = f"every consumer group that reads {topics} gets these {plan.letters} records as new"
    if not sys.stdin.isatty():
        raise ConfigError([Problem("--to-origin", f"{warning}: add --yes if that is meant")])
    print(f"{printable(warning)}. Go on? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        raise SidecarError("nothing was sent")


def _show_progress(done: Redriven) -> None:
    print(f"\r{done.letters} redriven", end="", file=sys.stderr, flush=True)


def _remark(text: str) -> None:
    print(f"sidecar: {printable(text)}", file=sys.stderr)


@contextmanager
def _stopped_by_signals() -> Iterator[Event]:
    """An event that SIGINT and SIGTERM set; the second one ends the process as usual."""
    stop = Event()
    former = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}

    def asked(number: int, _frame: object) -> None:
        stop.set()
        signal.signal(number, former[signal.Signals(number)])

    for each in former:
        signal.signal(each, asked)
    try:
        yield stop
    finally:
        for each, handler in former.items():
            signal.signal(each, handler)


# --- values -------------------------------------------------------------------------------------


def _where(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"(?:[^/]+/)?([0-9]{1,9})/([0-9]{1,18})", text)
    if found is None:
        raise ArgumentTypeError(f"{text!r} is not PARTITION/OFFSET, as in 0/17")
    return int(found[1]), int(found[2])


def _statuses(text: str) -> range:
    try:
        return parse_statuses(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from None


def _key(text: str) -> bytes:
    try:
        return parse_key(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from None


def _moment(text: str) -> int:
    """Unix milliseconds of a time, or of so long ago."""
    try:
        return parse_moment(text, time())
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from None
