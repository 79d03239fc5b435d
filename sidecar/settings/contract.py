"""Settings of the contract with the application: what it is sent, and what its answers mean."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import combinations
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal

from pydantic import (
    AfterValidator,
    Field,
    PlainSerializer,
    PlainValidator,
    WithJsonSchema,
)
from pydantic.config import JsonDict
from pydantic_core import PydanticCustomError

from sidecar.core.answers import SETTABLE, clash, parse_statuses
from sidecar.core.credentials import (
    HEADER_NAME,
    HEADER_VALUE,
    bearer_value,
    header_line,
    is_own_header,
    signing_keys,
)
from sidecar.core.presets import OWN_ATTRIBUTES
from sidecar.errors import Problem
from sidecar.model import Outcome
from sidecar.settings.fields import Count, File, Number, Section
from sidecar.settings.problems import nearest, refusal
from sidecar.settings.secrets import SECRET_SCHEMA, Secret, hide_all

_OUTCOMES: Final = {outcome.value: outcome for outcome in SETTABLE}


def _answers(value: object) -> Mapping[str, Outcome]:
    if not isinstance(value, Mapping):
        raise refusal(
            [Problem("", 'must be a mapping of statuses to outcomes: {"409": delivered}')]
        )
    problems: list[Problem] = []
    ranges: dict[str, range] = {}
    outcomes: dict[str, Outcome] = {}
    for text, name in value.items():
        outcome = name if isinstance(name, Outcome) else _OUTCOMES.get(str(name))
        if outcome is None:
            known = ", ".join(_OUTCOMES)
            hint = nearest(str(name), _OUTCOMES)
            problems.append(Problem(str(text), f"must be one of {known}, not {name!r}{hint}"))
            continue
        try:
            ranges[text] = parse_statuses(str(text))
        except ValueError as error:
            problems.append(Problem("", str(error)))
            continue
        outcomes[text] = outcome
    problems += [
        Problem(other, f"overlaps {one!r}: which of them is meant?")
        for one, other in combinations(ranges, 2)
        if clash(ranges[one], ranges[other])
    ]
    if problems:
        raise refusal(problems)
    return MappingProxyType(outcomes)


def _plain_answers(answers: Mapping[str, Outcome]) -> dict[str, str]:
    return {text: outcome.value for text, outcome in answers.items()}


ANSWERS_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "patternProperties": {"^([1-5]xx|[1-5][0-9]{2}(-[1-5][0-9]{2})?)$": {"enum": list(_OUTCOMES)}},
    "additionalProperties": False,
}
Answers = Annotated[
    Mapping[str, Outcome],
    PlainValidator(_answers),
    PlainSerializer(_plain_answers),
    WithJsonSchema(ANSWERS_SCHEMA),
]


NOT_GIVEN: Final[JsonDict] = {name: {"not": {}} for name in sorted(OWN_ATTRIBUTES)}
AttributeName = Annotated[str, Field(pattern="^[a-z0-9]{1,20}$")]
AttributeValue = Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f]+$")]


def _headers(value: object) -> Mapping[str, Secret]:
    if not isinstance(value, Mapping):
        raise refusal([Problem("", "must be a mapping of header names to values")])
    problems: list[Problem] = []
    headers: dict[str, Secret] = {}
    for name, given in value.items():
        try:
            secret = Secret.parse(given)
        except PydanticCustomError as error:
            problems += [
                Problem(str(name), each.message) for each in (error.context or {})["problems"]
            ]
            continue
        try:
            header_line(str(name), secret.known)
        except ValueError as error:
            problems.append(Problem("", str(error)))
            continue
        if is_own_header(name):
            problems.append(Problem(name, "is the sidecar's own header"))
        if name.lower() in (each.lower() for each in headers):
            problems.append(Problem(name, "is given twice"))
        headers[name] = secret
    if problems:
        raise refusal(problems)
    return MappingProxyType(headers)


Headers = Annotated[
    Mapping[str, Secret],
    PlainValidator(_headers),
    PlainSerializer(hide_all),
    WithJsonSchema(
        {
            "type": "object",
            "patternProperties": {
                f"^{HEADER_NAME}$": {"pattern": f"^{HEADER_VALUE}$", **SECRET_SCHEMA}
            },
            "additionalProperties": False,
        }
    ),
]


def _checked(check: Callable[[str], object]) -> AfterValidator:
    def validated(secret: Secret | None) -> Secret | None:
        if secret is not None:
            check(secret.known)
        return secret

    return AfterValidator(validated)


class AuthSettings(Section):
    """How the app knows that a request is the sidecar's. Files are read again when they change."""

    bearer: Annotated[Secret | None, _checked(bearer_value)] = Field(
        default=None, description="token that is sent as Authorization: Bearer"
    )
    signature: Annotated[Secret | None, _checked(signing_keys)] = Field(
        default=None,
        description="secret (whsec_…) that requests are signed with, by Standard Webhooks; several"
        " with blanks between while one replaces the other",
    )


class CloudEventsSettings(Section):
    """The attributes of records that are no CloudEvents themselves."""

    source: str | None = Field(
        default=None,
        pattern="^[!-~]+$",
        description="{topic} stands for the record's topic; default: /kafka/{topic}, with preset"
        " dapr: Dapr",
    )
    type: AttributeValue | None = Field(
        default=None,
        description="{topic} stands for the record's topic; default: kafka.record, with preset"
        " dapr: com.dapr.event.sent",
    )
    mode: Literal["binary", "structured"] | None = Field(
        default=None, description="default: binary, with preset dapr: structured"
    )
    extensions: Mapping[AttributeName, AttributeValue] = Field(
        default_factory=dict,
        description="further attributes, the same for every record",
        json_schema_extra={"properties": NOT_GIVEN, "additionalProperties": False},
    )


class BatchSettings(Section):
    """Many records in one request."""

    max_records: Count = Field(
        default=100, ge=1, le=10_000, description="records in one request at most"
    )
    max_wait_seconds: Number = Field(
        default=0.1,
        ge=0,
        le=60,
        description="longest time a record waits for company; 0 sends what is there",
    )
    max_bytes: Count = Field(
        default=1_048_576,
        ge=1,
        description="keys, values and headers in one request at most; a larger record goes alone",
    )


class TlsSettings(Section):
    """TLS towards an https target."""

    ca_file: File | None = Field(
        default=None, description="certificates to trust (PEM); null: the system's"
    )
    cert_file: File | None = Field(default=None, description="client certificate (PEM)")
    key_file: File | None = Field(default=None, description="private key of cert_file (PEM)")
    verify: bool = Field(default=True, description="check the app's certificate and name")
