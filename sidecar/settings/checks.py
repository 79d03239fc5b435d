"""Checks between settings: each compares things that are right by themselves.

Pure functions of the frozen tree; a problem names what was written and what to change. Only
called for a tree whose fields are valid.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import combinations
from typing import TYPE_CHECKING, Final

from sidecar.core.kafka_rules import AWS_MSK_IAM, MAX_POLL_INTERVAL_MS
from sidecar.core.presets import BATCH_ATTRIBUTES, ENCODINGS, OWN_ATTRIBUTES, Encoding, Preset
from sidecar.core.target import Scheme
from sidecar.core.topic_names import LEGAL_TOPIC
from sidecar.errors import Problem
from sidecar.model import Guarantee, OnExhausted
from sidecar.settings.retry_checks import retry_problems, retry_topic_problems
from sidecar.settings.topics import loop_problems

if TYPE_CHECKING:
    from sidecar.settings.contract import TlsSettings
    from sidecar.settings.route import RouteSettings
    from sidecar.settings.tree import Settings

# What the process may take, after drain_seconds, to close its connections.
CLOSE_SECONDS: Final = 1.0

_OTEL = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")
_SIGNER = "aws_msk_iam_sasl_signer"


def number(value: float) -> str:
    """25.0 as 25."""
    return f"{value:g}"


def route_problems(route: RouteSettings) -> list[Problem]:
    return [
        *_source_problems(route),
        *_guarantee_problems(route),
        *_failure_problems(route),
        *retry_problems(route),
        *_contract_problems(route),
        *_batch_problems(route),
        *_tls_problems(route),
    ]


def _source_problems(route: RouteSettings) -> Iterator[Problem]:
    if route.topics is None and route.pattern is None:
        yield Problem("topics", "is required: a list of topics, or pattern: ^…")
    if route.topics is not None and route.pattern is not None:
        yield Problem("pattern", "is given as well as topics: keep one of them")
    for index, topic in enumerate(route.topics or ()):
        if topic.startswith("^"):
            yield Problem(f"topics[{index}]", f"{topic!r} is an expression: write it as pattern")
        elif not LEGAL_TOPIC.fullmatch(topic):
            yield Problem(f"topics[{index}]", f"{topic!r} is not a legal topic name")
    if len(set(route.topics or ())) < len(route.topics or ()):
        yield Problem("topics", "names a topic twice")
    if route.pattern is not None and (wrong := _wrong_pattern(route.pattern)):
        yield Problem("pattern", wrong)
    if "name" in route.model_fields_set and not LEGAL_TOPIC.fullmatch(route.name):
        yield Problem(
            "name", f"{route.name!r} must hold letters, digits, dot, underscore and hyphen only"
        )


def _wrong_pattern(pattern: str) -> str | None:
    if not pattern.startswith("^"):
        return f"must begin with ^, not {pattern!r}; a plain name belongs to topics"
    if re.search(r"\\[dD]|\(\?|[*+?}]\?", pattern):
        return r"is a POSIX extended expression: no \d, (?…) or lazy repeats; write [0-9] for \d"
    try:
        re.compile(pattern)
    except re.error as error:
        return f"is not a regular expression: {error}"
    return None


def _guarantee_problems(route: RouteSettings) -> Iterator[Problem]:
    if route.guarantee is Guarantee.AT_LEAST_ONCE:
        if route.loss_budget is not None:
            yield Problem(
                "loss_budget",
                "belongs to guarantee: at_most_once; at_least_once loses nothing. Remove it, or"
                " write threshold for the number of records in flight",
            )
    elif route.loss_budget is None:
        yield Problem(
            "loss_budget",
            "is required by at_most_once: how many records may one crash lose?",
        )
    elif route.threshold != route.loss_budget:
        yield Problem(
            "threshold",
            f"({route.threshold}) is the loss_budget ({route.loss_budget}) in at_most_once:"
            " remove one, or make them equal",
        )


def _failure_problems(route: RouteSettings) -> Iterator[Problem]:
    dead_letter = route.dead_letter
    if route.on_exhausted is OnExhausted.PARK and dead_letter is None:
        yield Problem("on_exhausted", "park needs a place: add dead_letter: {topic: …}")
    if route.guarantee is Guarantee.AT_MOST_ONCE and route.on_exhausted in (
        OnExhausted.HALT,
        OnExhausted.RETRY_FOREVER,
    ):
        yield Problem(
            "on_exhausted",
            f"{route.on_exhausted.value} would send again what may have been processed, which"
            " at_most_once promises not to do: choose park or drop",
        )
    if dead_letter is not None and not LEGAL_TOPIC.fullmatch(dead_letter.topic):
        yield Problem("dead_letter.topic", f"{dead_letter.topic!r} is not a legal topic name")
    retry = route.retry
    if retry.initial_backoff_seconds > retry.max_backoff_seconds:
        yield Problem(
            "retry.initial_backoff_seconds",
            f"({number(retry.initial_backoff_seconds)}) must not be above max_backoff_seconds"
            f" ({number(retry.max_backoff_seconds)})",
        )


def _contract_problems(route: RouteSettings) -> Iterator[Problem]:
    if route.auth is not None and route.auth.bearer is not None:
        for name in route.headers:
            if name.lower() == "authorization":
                yield Problem(
                    f"headers.{name}", "is given as well as auth.bearer: keep one of them"
                )
    preset, encoding, cloudevents = route.preset, route.encoding, route.cloudevents
    if encoding not in ENCODINGS[preset]:
        fits = " or ".join(each.value for each in ENCODINGS[preset])
        yield Problem("encoding", f"{encoding.value} is not what {preset.value} sends: {fits}")
    if cloudevents is None:
        return
    if encoding is not Encoding.CLOUDEVENTS:
        yield Problem("cloudevents", "needs encoding: cloudevents")
    for name in cloudevents.extensions:
        if name in OWN_ATTRIBUTES or (route.batch is not None and name in BATCH_ATTRIBUTES):
            yield Problem(
                f"cloudevents.extensions.{name}", "is made by the sidecar: choose another name"
            )
    fixed = {Preset.DAPR: "structured", Preset.KNATIVE: "binary"}.get(preset)
    if fixed and cloudevents.mode not in (None, fixed):
        yield Problem("cloudevents.mode", f"is {fixed} with preset: {preset.value}")


def _batch_problems(route: RouteSettings) -> Iterator[Problem]:
    if route.batch is None:
        return
    if route.preset in (Preset.DAPR, Preset.KNATIVE, Preset.PUBSUB):
        yield Problem(
            "batch",
            f"is nothing that preset: {route.preset.value} knows: remove batch, or leave out"
            " preset and choose encoding: raw or cloudevents",
        )
    if route.headers_always:
        yield Problem(
            "headers_always", "says nothing of batches, which hold all headers: remove it"
        )
    if route.batch.max_records > route.threshold:
        yield Problem(
            "batch.max_records",
            f"({route.batch.max_records}) must not be above threshold ({route.threshold}), or no"
            " batch is ever full: lower it",
        )


def _tls_problems(route: RouteSettings) -> Iterator[Problem]:
    secure = route.parsed_target.scheme is Scheme.HTTPS
    if route.http2 and not secure:
        yield Problem("http2", "needs an https target: remove it, or change target")
    if route.tls is None:
        return
    if not secure:
        yield Problem("tls", "belongs to an https target: remove it, or change target")
    if (route.tls.cert_file is None) is not (route.tls.key_file is None):
        yield Problem("tls", "needs cert_file and key_file together")
    yield from _unreadable(route.tls)


def _unreadable(tls: TlsSettings) -> Iterator[Problem]:
    """Files that exist and hold something else. They are read again when they are used."""
    try:
        context = ssl.create_default_context(cafile=tls.ca_file)
    except OSError as error:
        yield Problem("tls.ca_file", f"{tls.ca_file} holds no certificates (PEM): {error}")
        return
    if tls.cert_file is not None and tls.key_file is not None:
        try:
            # Without an answer to this question a key with a password would ask the terminal.
            context.load_cert_chain(tls.cert_file, tls.key_file, password="")
        except OSError as error:
            yield Problem(
                "tls.cert_file",
                f"{tls.cert_file} and {tls.key_file} are no certificate and key without a"
                f" password (PEM) that belong together: {error}",
            )


def settings_problems(settings: Settings) -> list[Problem]:
    return [
        *_group_id_problems(settings),
        *_pair_problems(settings),
        *loop_problems(settings),
        *retry_topic_problems(settings),
        *_time_problems(settings),
        *_tracing_problems(settings),
        *_msk_problems(settings),
    ]


def _group_id_problems(settings: Settings) -> Iterator[Problem]:
    if "group.id" not in settings.kafka and any(not route.group_id for route in settings.routes):
        yield Problem("kafka.group.id", "is required: the consumer group to join")


def _pair_problems(settings: Settings) -> Iterator[Problem]:
    numbered = list(enumerate(settings.routes))
    for (first, one), (second, other) in combinations(numbered, 2):
        if one.name == other.name:
            yield Problem(
                f"routes[{second}].name",
                f"{other.name!r} is also the name of routes[{first}]: names must differ",
            )
        if settings.group_of(one) == settings.group_of(other):
            shared = sorted(
                {
                    *(topic for topic in one.topics or () if other.reads(topic)),
                    *(topic for topic in other.topics or () if one.reads(topic)),
                }
            )
            if shared:
                yield Problem(
                    f"routes[{second}]",
                    f"reads {shared[0]!r} like routes[{first}], in the same group: each would get"
                    " a part of it. Give one of them a group_id, or take the topic out",
                )


def _time_problems(settings: Settings) -> Iterator[Problem]:
    drain = settings.drain_seconds
    for index, route in enumerate(settings.routes):
        if route.timeout_seconds >= drain:
            yield Problem(
                f"routes[{index}].timeout_seconds",
                f"({number(route.timeout_seconds)}) must be below drain_seconds ({number(drain)}),"
                " or a stop cuts requests that were on time: lower it, or raise drain_seconds"
                " and the pod's terminationGracePeriodSeconds with it",
            )
    if settings.grace_seconds is not None and drain + CLOSE_SECONDS > settings.grace_seconds:
        yield Problem(
            "drain_seconds",
            f"({number(drain)}) must be {number(CLOSE_SECONDS)} s below grace_seconds"
            f" ({number(settings.grace_seconds)}), or the pod is killed before the drain has ended:"
            " lower it, or raise terminationGracePeriodSeconds and grace_seconds",
        )
    longest = settings.kafka_number("max.poll.interval.ms", MAX_POLL_INTERVAL_MS) / 1000
    if settings.revoke_seconds >= longest:
        yield Problem(
            "revoke_seconds",
            f"({number(settings.revoke_seconds)}) must be below kafka's max.poll.interval.ms"
            f" ({number(longest)} s), or waiting for a rebalance costs the membership: lower it",
        )
    interval = settings.commit_interval_seconds
    if interval >= drain:
        yield Problem(
            "commit_interval_seconds",
            f"({number(interval)}) must be below drain_seconds ({number(drain)}): lower it",
        )


def _tracing_problems(settings: Settings) -> Iterator[Problem]:
    if settings.tracing.enabled and not all(map(_is_installed, _OTEL)):
        yield Problem(
            "tracing.enabled",
            "needs what is not installed: pip install 'kafka-dispatch-sidecar[otel]'",
        )


def _msk_problems(settings: Settings) -> Iterator[Problem]:
    chosen = settings.kafka_text("sasl.mechanisms").upper() == AWS_MSK_IAM
    if chosen and not _is_installed(_SIGNER):
        yield Problem(
            "kafka.sasl.mechanisms",
            f"{AWS_MSK_IAM} needs what is not installed: pip install 'kafka-dispatch-sidecar[msk]'",
        )


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # not even its parent
        return False
