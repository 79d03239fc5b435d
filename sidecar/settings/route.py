"""What one route is told: the topics, where their records go, and how.

Owner: as the tree, of which it is a part. A default that depends on another field is computed here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from sidecar.core.answers import AnswerTable, answer_table
from sidecar.core.presets import ENCODINGS, Encoding, Preset
from sidecar.core.target import Target, parse_target, target_pattern
from sidecar.model import Guarantee, OnExhausted, RelieveBy
from sidecar.settings.checks import route_problems
from sidecar.settings.contract import (
    Answers,
    AuthSettings,
    BatchSettings,
    CloudEventsSettings,
    Headers,
    TlsSettings,
)
from sidecar.settings.failures import DeadLetterSettings, RetrySettings
from sidecar.settings.fields import (
    Budget,
    Count,
    PositiveSeconds,
    RatePerSecond,
    Seconds,
    Section,
    TopicName,
)
from sidecar.settings.problems import refusal

DEFAULT_THRESHOLD = 1000


def _default_name(data: Mapping[str, Any]) -> str:
    if data.get("topics"):
        return str(data["topics"][0])
    return re.sub(r"[^A-Za-z0-9_]+", "-", data.get("pattern") or "").strip("-") or "route"


def _default_encoding(data: Mapping[str, Any]) -> Encoding:
    return ENCODINGS[data.get("preset", Preset.DEFAULT)][0]


def _default_threshold(data: Mapping[str, Any]) -> int:
    budget = data.get("loss_budget")
    return DEFAULT_THRESHOLD if budget is None else int(budget)


def _default_on_exhausted(data: Mapping[str, Any]) -> OnExhausted:
    if data.get("dead_letter") is not None:
        return OnExhausted.PARK
    if data.get("guarantee") is Guarantee.AT_MOST_ONCE:
        return OnExhausted.DROP
    return OnExhausted.RETRY_FOREVER


class RouteSettings(Section):
    """Topics, where their records go, and how."""

    topics: tuple[TopicName, ...] | None = Field(
        default=None,
        min_length=1,
        description="topics to read; either this or pattern",
        json_schema_extra={"uniqueItems": True},
    )
    pattern: str | None = Field(
        default=None,
        description="regular expression for topic names, beginning with ^ (POSIX extended)",
        json_schema_extra={"pattern": r"^\^"},
    )
    name: TopicName = Field(
        default_factory=_default_name,
        description="the route's name in metrics, logs and the admin API; default: the first"
        " topic, or the pattern without its special characters",
    )
    target: str = Field(
        description="where records are POSTed: http://host:port/path, https://…, or"
        " unix:///socket:/path; {topic} stands for the record's topic",
        json_schema_extra={"pattern": target_pattern()},
    )
    guarantee: Guarantee = Field(
        default=Guarantee.AT_LEAST_ONCE,
        description="at_least_once loses nothing and may repeat; at_most_once repeats nothing and"
        " may lose up to loss_budget records in a crash",
    )
    loss_budget: Budget | None = Field(
        default=None,
        description="records one crash may lose; at_most_once requires it, nothing else takes it",
    )
    threshold: Count = Field(
        default_factory=_default_threshold,
        ge=1,
        le=1_000_000,
        description="records in flight at most; default 1000, in at_most_once the loss_budget",
    )
    threshold_bytes: Count = Field(
        default=16_777_216, ge=1, description="bytes in flight at most (plus one fetched batch)"
    )
    executors: Count = Field(
        default=16, ge=0, le=10_000, description="concurrent requests; 0 dispatches nothing"
    )
    timeout_seconds: PositiveSeconds = Field(
        default=20.0,
        description="deadline of one attempt, from connecting to the answer's last byte",
    )
    max_records_per_second: RatePerSecond | None = Field(
        default=None, description="records that may start per second; null: as many as can be"
    )
    order: Literal["none"] = Field(default="none", description="order of delivery; none so far")
    group_id: str | None = Field(
        default=None,
        min_length=1,
        description="consumer group of this route; default: kafka's group.id",
    )
    retry: RetrySettings = Field(default_factory=RetrySettings, description="retry policy")
    dead_letter: DeadLetterSettings | None = Field(
        default=None, description="where records go that the app does not take"
    )
    max_parked_in_a_row: Count = Field(
        default=20,
        ge=1,
        le=1_000_000,
        description="records parked, or moved to a retry topic, since the last delivery at most;"
        " further ones wait, and"
        " intake is held until the app takes a record",
    )
    leave_after_held_seconds: Seconds = Field(
        default=300.0,
        description="an app that is away for longer makes the sidecar leave the group until it is"
        " back, so that other members get its partitions; 0: never",
    )
    relieve_after_seconds: Seconds = Field(
        default=300.0,
        description="a record that holds the watermark for this long, while nearly all behind it"
        " are settled, is moved out of the way; 0: never",
    )
    relieve_by: RelieveBy = Field(
        default=RelieveBy.RETRY,
        description="where such a record is moved to: retry, the first retry topic (nothing is"
        " moved where there is none), or park, the dead-letter topic",
    )
    on_exhausted: OnExhausted = Field(
        default_factory=_default_on_exhausted,
        description="what happens when attempts are used up or the app rejects a record; default:"
        " park with a dead_letter topic, else retry_forever (at_most_once: drop)",
    )
    content_type: str = Field(
        default="application/octet-stream",
        pattern=r"^[!-~]+/[!-~]+( ?;[ -~]*[!-~])?$",
        description="Content-Type of records that have no content-type header of their own",
    )
    max_header_bytes: Count = Field(
        default=16_384, ge=1024, le=1_048_576, description="largest request head that is sent"
    )
    headers_always: bool = Field(
        default=False, description="send the lossless Kafka-Headers list with every record"
    )
    idle_connection_seconds: Seconds = Field(
        default=1.0, description="a connection idle for longer is replaced before its next use"
    )
    batch: BatchSettings | None = Field(
        default=None, description="send many records in one request; null: each by itself"
    )
    preset: Preset = Field(
        default=Preset.DEFAULT,
        description="whose rules the app was written for: what it is sent, and what its answers"
        " mean",
    )
    encoding: Encoding = Field(
        default_factory=_default_encoding,
        description="what a record looks like in a request; default: raw, or as the preset has it",
    )
    cloudevents: CloudEventsSettings | None = Field(
        default=None, description="attributes of records that are no CloudEvents themselves"
    )
    answers: Answers = Field(
        default_factory=dict,
        validate_default=True,
        description='outcome by status ("409"), class ("5xx") or range ("300-399"), above the'
        " preset's: delivered, deferred, retry, rejected or app_down; the narrower wins",
    )
    auth: AuthSettings | None = Field(
        default=None, description="how the app knows that a request is the sidecar's"
    )
    headers: Headers = Field(
        default_factory=dict,
        validate_default=True,
        description="headers of every request; a value may be {file: PATH} or {env: NAME}",
    )
    tls: TlsSettings | None = Field(default=None, description="TLS of an https target")
    http2: bool = Field(default=False, description="speak HTTP/2 to an https target")

    @field_validator("target")
    @classmethod
    def _target_parses(cls, target: str) -> str:
        parse_target(target)
        return target

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if problems := route_problems(self):
            raise refusal(problems)
        return self

    @property
    def parsed_target(self) -> Target:
        return parse_target(self.target)

    def reads(self, topic: str) -> bool:
        """True if the route consumes a topic of this name, its retry topics aside."""
        if self.pattern is not None:
            return re.match(self.pattern, topic) is not None
        return topic in (self.topics or ())

    @property
    def answer_table(self) -> AnswerTable:
        """A batch's body is read by rules of its own."""
        return answer_table(self.preset, self.answers, reads=self.batch is None)
