"""Which librdkafka properties an operator may set, and why not the others.

Pure: no client is needed to check a configuration. Invariants that rest on this file: offsets are
committed by the sidecar alone, a position that no longer exists reaches the fetcher as an error,
and nothing is queued inside the client that nobody reads.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from enum import Enum
from functools import cache
from typing import Final

from sidecar.core.kafka_properties import Property, properties
from sidecar.errors import Problem

EMBEDDED: Final = "embedded"
# A mechanism of ours: OAUTHBEARER, with tokens that are signed for Amazon MSK.
AWS_MSK_IAM: Final = "AWS_MSK_IAM"
MAX_POLL_INTERVAL_MS: Final = 300_000

# Files and directories. What OAUTHBEARER signs its requests with is read for each of them.
READ_ONCE: Final = (
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.crl.location",
    "ssl.key.location",
    "ssl.keystore.location",
)

_SECRET_NAME: Final = re.compile(r"password|passphrase|secret|key\.pem$|oauthbearer\.config$")

_ALIASES: Final = {
    "metadata.broker.list": "bootstrap.servers",
    "auto.commit.enable": "enable.auto.commit",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "max.in.flight": "max.in.flight.requests.per.connection",
    "sasl.mechanism": "sasl.mechanisms",
    "sasl.oauthbearer.client.credentials.client.id": "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.credentials.client.secret": "sasl.oauthbearer.client.secret",
}

_OWN_COMMITS: Final = "the sidecar commits what the app has settled, nothing else may"
_NOT_READ: Final = "nothing in the sidecar reads it, it would only cost memory"
_SHARE_ONLY: Final = "it belongs to share consumers, which the sidecar does not use"

# Refused whatever the value.
_REFUSED: Final = {
    "auto.commit.interval.ms": f"{_OWN_COMMITS}; set commit_interval_seconds instead",
    "offset.store.method": _OWN_COMMITS,
    "offset.store.path": _OWN_COMMITS,
    "offset.store.sync.interval.ms": _OWN_COMMITS,
    "statistics.interval.ms": f"{_NOT_READ}; see the sidecar's own metrics",
    "enabled_events": _NOT_READ,
    "consume.callback.max.messages": "the sidecar uses no consume callback",
    "max.poll.records": _SHARE_ONLY,
    "share.acknowledgement.mode": _SHARE_ONLY,
    "group.protocol.type": "the sidecar is a consumer; nothing else can be chosen",
    "internal.termination.signal": "signals belong to the sidecar's own drain",
    "broker.version.fallback": "brokers older than 0.11 have no headers and are not supported",
    "api.version.fallback.ms": "brokers older than 0.11 have no headers and are not supported",
}

# Accepted with this one value, which the sidecar sets anyway.
_FORCED: Final = {
    "enable.auto.commit": ("false", _OWN_COMMITS),
    "enable.auto.offset.store": ("false", _OWN_COMMITS),
    "enable.partition.eof": ("false", _NOT_READ),
    "log.queue": ("false", _NOT_READ),
    "api.version.request": ("true", "brokers without it have no headers and are not supported"),
}

_CLASSIC_ONLY: Final = (
    "session.timeout.ms",
    "heartbeat.interval.ms",
    "partition.assignment.strategy",
)
_STRATEGIES: Final = ("cooperative-sticky", "range", "roundrobin")
_TRUE: Final = frozenset({"true", "t", "1"})
_FALSE: Final = frozenset({"false", "f", "0"})


class OffsetReset(Enum):
    """Where a group begins that has committed nothing yet."""

    EARLIEST = "earliest"
    LATEST = "latest"


def is_secret(name: str) -> bool:
    return _SECRET_NAME.search(name) is not None


def as_text(value: object) -> str:
    """A property's value as librdkafka reads it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


@cache
def settable() -> Mapping[str, Property]:
    """The properties that may be written, with the values that may be."""
    forced = {name: (value,) for name, (value, _) in _FORCED.items()}
    choices = {**forced, "auto.offset.reset": tuple(each.value for each in OffsetReset)}
    return {
        name: known._replace(choices=choices.get(name, known.choices))
        for name, known in properties().items()
        if known.consumer and name not in _ALIASES and name not in _REFUSED
    }


def property_of_variable(suffix: str) -> str:
    """BOOTSTRAP_SERVERS as bootstrap.servers; names that hold a real underscore keep it."""
    lower = suffix.lower()
    for name in properties():
        if "_" in name and name.replace(".", "_") == lower:
            return name
    return lower.replace("_", ".")


def check_kafka_properties(
    kafka: Mapping[str, object], hidden: Collection[str] = ()
) -> list[Problem]:
    """What is wrong with these properties; values of hidden and secret names are not shown."""
    problems = [
        Problem(name, reason)
        for name, value in kafka.items()
        if (reason := _refusal(name, value, name in hidden or is_secret(name)))
    ]
    wrong = {problem.path for problem in problems}
    texts = {name: as_text(value) for name, value in kafka.items() if name not in wrong}
    if "bootstrap.servers" not in kafka:
        problems.append(Problem("bootstrap.servers", "is required: host:port, comma-separated"))
    elif not texts.get("bootstrap.servers", "x").strip():
        problems.append(Problem("bootstrap.servers", "must not be empty"))
    problems.extend(_group_problems(texts))
    problems.extend(_oauth_problems(texts))
    return problems


def _refusal(name: str, value: object, secret: bool) -> str | None:
    if name in _ALIASES:
        return f"is another name of {_ALIASES[name]}: write that one"
    if name in _REFUSED:
        return f"cannot be set: {_REFUSED[name]}"
    known = properties().get(name)
    if known is None:
        return _unknown(name)
    if not known.consumer:
        return "is a producer property: the sidecar sets what its producer needs"
    if not isinstance(value, (str, int, float)):
        return "must be text, a number or true/false"
    if wrong := _wrong_value(known, as_text(value)):
        return wrong if secret else f"{wrong}, not {as_text(value)!r}"
    if name in _FORCED:
        forced, reason = _FORCED[name]
        given = "true" if as_text(value).lower() in _TRUE else "false"
        return None if given == forced else f"must stay {forced}: {reason}"
    if name == "auto.offset.reset" and as_text(value).lower() not in ("earliest", "latest"):
        return "must be earliest or latest"
    return None


def _unknown(name: str) -> str:
    names = [each for each, known in properties().items() if known.consumer]
    guess = name.lower().replace("_", ".").replace("-", ".")
    matches = [guess] if guess in names else get_close_matches(guess, names, n=1, cutoff=0.6)
    hint = f"; did you mean {matches[0]}?" if matches else ""
    return f"unknown librdkafka property{hint}"


def _wrong_value(known: Property, text: str) -> str | None:
    if known.low is not None and known.high is not None:
        if re.fullmatch(r"-?[0-9]+", text) and known.low <= int(text) <= known.high:
            return None
        return f"must be a whole number from {known.low} to {known.high}"
    if known.choices == ("true", "false"):
        return None if text.lower() in _TRUE | _FALSE else "must be true or false"
    if known.choices and text.lower() not in (choice.lower() for choice in known.choices):
        return f"must be one of {', '.join(known.choices)}"
    return None


def _group_problems(texts: Mapping[str, str]) -> list[Problem]:
    if texts.get("group.protocol", "classic").lower() == "consumer":
        return [
            Problem(
                name, "does not belong to group.protocol consumer: the broker decides it; remove it"
            )
            for name in _CLASSIC_ONLY
            if name in texts
        ]
    problems = []
    if "group.remote.assignor" in texts:
        problems.append(
            Problem("group.remote.assignor", "needs group.protocol: consumer; add it or remove it")
        )
    strategies = texts.get("partition.assignment.strategy", _STRATEGIES[0]).split(",")
    chosen = [strategy.strip() for strategy in strategies]
    if unknown := [strategy for strategy in chosen if strategy not in _STRATEGIES]:
        problems.append(
            Problem(
                "partition.assignment.strategy",
                f"must be one of {', '.join(_STRATEGIES)}, not {unknown[0]!r}",
            )
        )
    elif len(chosen) > 1 and _STRATEGIES[0] in chosen:
        problems.append(
            Problem(
                "partition.assignment.strategy",
                "mixes cooperative-sticky with eager strategies, which librdkafka refuses:"
                " keep one kind",
            )
        )
    heartbeat = int(texts.get("heartbeat.interval.ms", "3000"))
    session = int(texts.get("session.timeout.ms", "45000"))
    longest = int(texts.get("max.poll.interval.ms", MAX_POLL_INTERVAL_MS))
    if heartbeat >= session:
        problems.append(
            Problem(
                "heartbeat.interval.ms",
                f"({heartbeat}) must be below session.timeout.ms ({session}); a third is usual",
            )
        )
    if session > longest:
        problems.append(
            Problem(
                "session.timeout.ms",
                f"({session}) must not be above max.poll.interval.ms ({longest}): lower it",
            )
        )
    return problems


def _oauth_problems(texts: Mapping[str, str]) -> list[Problem]:
    mechanism = texts.get("sasl.mechanisms", "").upper()
    if mechanism == AWS_MSK_IAM:
        if texts.get("security.protocol", "").lower() == "sasl_ssl":
            return []
        return [Problem("security.protocol", f"must be SASL_SSL with {AWS_MSK_IAM}")]
    chosen = "OAUTHBEARER" in mechanism
    by_itself = (
        texts.get("sasl.oauthbearer.method", "").lower() == "oidc"
        or texts.get("enable.sasl.oauthbearer.unsecure.jwt", "").lower() in _TRUE
        or texts.get("sasl.oauthbearer.metadata.authentication.type", "none").lower() != "none"
    )
    if not chosen or by_itself:
        return []
    return [
        Problem(
            "sasl.mechanisms",
            "OAUTHBEARER needs a source of tokens: set sasl.oauthbearer.method: oidc and its"
            " client id, client secret and token endpoint",
        )
    ]
