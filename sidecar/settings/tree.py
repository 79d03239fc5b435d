"""The configuration: one frozen tree, checked as a whole before anything is started.

Owner: loading builds it once; everything else only reads. What is not given is filled in
here (effective values), so no reader repeats a default. Secrets are SecretStr from the moment
they are read. Every field states its meaning once, in its description: the reference page, the
JSON schema and the error messages take it from there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, Self

from pydantic import (
    Field,
    SecretStr,
    WithJsonSchema,
    field_serializer,
    field_validator,
    model_validator,
)
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from sidecar.core.kafka_rules import (
    EMBEDDED,
    READ_ONCE,
    OffsetReset,
    as_text,
    check_kafka_properties,
    is_secret,
)
from sidecar.core.target import parse_target, target_pattern
from sidecar.core.topic_names import legal_topic
from sidecar.errors import Problem
from sidecar.model import Guarantee, RetryTopic
from sidecar.settings.checks import settings_problems
from sidecar.settings.fields import (
    Count,
    File,
    KafkaValue,
    PositiveSeconds,
    Seconds,
    Section,
)
from sidecar.settings.problems import refusal
from sidecar.settings.route import RouteSettings
from sidecar.settings.secrets import HIDDEN, Secret, read_secret_file
from sidecar.settings.sources import with_lists

DEFAULT_SOCKET = Path("/run/sidecar/admin.sock")


class AppSettings(Section):
    """The co-located application."""

    health: str | None = Field(
        default=None,
        description="URL that answers 2xx when the app is ready; default: connecting decides",
        json_schema_extra={"pattern": target_pattern(placeholder=False)},
    )

    @field_validator("health")
    @classmethod
    def _health_parses(cls, health: str | None) -> str | None:
        if health is not None and "{" in health:
            raise ValueError("a health URL takes no placeholders")
        if health is not None:
            parse_target(health)
        return health


def _token_of(data: Mapping[str, Any]) -> SecretStr | None:
    file = data.get("token_file")
    try:
        return None if file is None else SecretStr(read_secret_file(file).strip())
    except ValueError:
        return None  # _token_is_one says why


class AdminSettings(Section):
    """The admin API. Changes need the token, or come through the socket."""

    host: str = Field(default="127.0.0.1", min_length=1, description="address to listen on")
    port: Count = Field(default=8090, ge=0, le=65_535, description="TCP port; 0 takes a free one")
    socket: Path | None = Field(
        default=DEFAULT_SOCKET,
        description="Unix socket (mode 0600) that needs no token; null: none. The default is left"
        " out with a warning where its directory cannot be written",
    )
    token_file: File | None = Field(default=None, description="file that holds the bearer token")
    token: SecretStr | None = Field(
        default_factory=_token_of,
        description="bearer token; better SIDECAR_ADMIN__TOKEN or token_file than the file itself",
    )
    partition_metrics: bool = Field(
        default=True,
        description="whether /metrics has series for each partition; what is summed up over them"
        " stays",
    )
    names: tuple[str, ...] = Field(
        default=(),
        description="host names by which it is addressed, besides IP addresses and localhost: of an"
        " Ingress or a Service. Requests for any other are refused",
    )
    strict_readiness: bool = Field(
        default=False,
        description="whether an application or brokers that are away lower /readyz",
    )

    @model_validator(mode="after")
    def _token_is_one(self) -> Self:
        if self.token_file is not None and "token" in self.model_fields_set:
            raise refusal([Problem("token", "is given as well as token_file: keep one of them")])
        if self.token_file is not None and self.token is None:
            try:
                read_secret_file(self.token_file)
            except ValueError as error:
                raise refusal([Problem("token_file", str(error))]) from None
        if self.token is not None:
            name = "token" if self.token_file is None else "token_file"
            value = self.token.get_secret_value()
            if not re.fullmatch(r"[!-~]+", value):
                raise refusal(
                    [Problem(name, "must hold visible ASCII without spaces, and not be empty")]
                )
        return self

    @property
    def socket_required(self) -> bool:
        """True if the socket was asked for, so that failing to open it is an error."""
        return self.socket is not None and "socket" in self.model_fields_set


class LogSettings(Section):
    """Logs on standard error."""

    format: Literal["auto", "json", "text"] = Field(
        default="auto", description="json lines, or text for people; auto: text on a terminal"
    )
    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="least severe level that is written"
    )


class TracingSettings(Section):
    """OpenTelemetry spans, one for each attempt. Where they go is said by OTEL_ variables."""

    enabled: bool = Field(
        default=False,
        description="record spans and send them by OTLP over HTTP; needs the extra otel",
    )


def _revealed(value: Any) -> Any:
    match value:
        case Secret():
            return value.latest()
        case SecretStr():
            return value.get_secret_value()
    return value


def _kept(value: Any, hidden: bool) -> KafkaValue:
    return SecretStr(value) if hidden else value


class Settings(BaseSettings):
    """Everything the sidecar can be told before it starts."""

    model_config = SettingsConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    kafka: Annotated[Mapping[str, KafkaValue], WithJsonSchema({"type": "object"})] = Field(
        default_factory=dict,
        validate_default=True,
        description="librdkafka properties of the consumer, and of the producer where they apply;"
        " a value may be {file: PATH} or {env: NAME}",
    )
    routes: tuple[RouteSettings, ...] = Field(min_length=1, description="what goes where")
    app: AppSettings = Field(default_factory=AppSettings, description="the application")
    commit_interval_seconds: PositiveSeconds = Field(
        default=1.0,
        description="longest time between a settled record and the commit that covers it",
    )
    drain_seconds: PositiveSeconds = Field(
        default=25.0,
        description="longest time from the stop signal until everything is finished or cut; the"
        " process ends within a second more",
    )
    revoke_seconds: Seconds = Field(
        default=5.0, description="longest time a rebalance waits for what executes"
    )
    grace_seconds: PositiveSeconds | None = Field(
        default=None,
        description="the pod's terminationGracePeriodSeconds, for checking drain_seconds",
    )
    admin: AdminSettings = Field(default_factory=AdminSettings, description="the admin API")
    log: LogSettings = Field(default_factory=LogSettings, description="logs")
    tracing: TracingSettings = Field(default_factory=TracingSettings, description="spans")

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        # Made directly, a tree depends on its arguments alone; load_settings brings its sources.
        return (init_settings,)

    @model_validator(mode="before")
    @classmethod
    def _lists_are_lists(cls, tree: Any) -> Any:
        return with_lists(tree)

    @field_validator("kafka", mode="plain")
    @classmethod
    def _kafka_is_known(cls, value: object) -> Mapping[str, KafkaValue]:
        if not isinstance(value, Mapping):
            raise refusal([Problem("", "must be a mapping of librdkafka properties")])
        hidden = {name for name, each in value.items() if isinstance(each, SecretStr | Secret)}
        plain = {name: _revealed(each) for name, each in value.items()}
        if problems := check_kafka_properties(plain, hidden):
            raise refusal(problems)
        hidden |= {name for name in plain if is_secret(name)}
        return MappingProxyType(
            {
                name: each if isinstance(each, Secret) else _kept(plain[name], name in hidden)
                for name, each in value.items()
            }
        )

    @field_serializer("kafka")
    def _kafka_is_plain(self, kafka: Mapping[str, KafkaValue]) -> dict[str, object]:
        return {
            name: HIDDEN if isinstance(value, SecretStr | Secret) else value
            for name, value in kafka.items()
        }

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if problems := settings_problems(self):
            raise refusal(problems)
        return self

    @property
    def offset_reset(self) -> OffsetReset:
        """Where a group without a committed offset begins."""
        return OffsetReset(self.kafka_text("auto.offset.reset", "earliest").lower())

    @property
    def embedded_broker(self) -> bool:
        return self.kafka_text("bootstrap.servers") == EMBEDDED

    def group_of(self, route: RouteSettings) -> str:
        return route.group_id or self.kafka_text("group.id")

    def retry_topics(self, route: RouteSettings) -> tuple[RetryTopic, ...]:
        """Those that the route reads: first that of redrives, which has no delay."""
        given = route.retry.topics
        keeps = route.guarantee is Guarantee.AT_LEAST_ONCE
        if not keeps or (not given and route.dead_letter is None):
            return ()
        stem = f"{route.name}.{self.group_of(route)}.retry"
        named = [(topic.topic, topic.delay_seconds) for topic in given]
        return tuple(
            RetryTopic(name or legal_topic(f"{stem}.{delay:g}s"), delay)
            for name, delay in [(None, 0.0), *named]
        )

    def kafka_text(self, name: str, default: str = "") -> str:
        """A property as librdkafka reads it, secrets included, those of files as they are now."""
        return as_text(_revealed(self.kafka.get(name, default)))

    @property
    def kafka_files(self) -> tuple[Path, ...]:
        """What clients of Kafka read when they are made, and not again."""
        references = [each.file for each in self.kafka.values() if isinstance(each, Secret)]
        named = [self.kafka_text(name) for name in READ_ONCE]
        return tuple(sorted({*filter(None, references), *map(Path, filter(None, named))}))

    def kafka_number(self, name: str, default: int) -> int:
        return int(self.kafka_text(name, str(default)))
