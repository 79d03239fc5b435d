"""What the sidecar refuses at its start, `helm template` refuses before.

The cases are those of the settings' own tests, so a new refusal there is a new case here: the
values' schema or a check of the chart knows it, or it is written down why only the sidecar can.
"""

from __future__ import annotations

import re
from typing import Any, Final

import jsonschema
import pytest

from sidecar.core.credentials import is_credential, is_own_header
from sidecar.core.presets import ENCODINGS
from sidecar.errors import ConfigError
from sidecar.settings import load_settings
from tests.chart.test_values_schema import CHART, values_schema
from tests.chart.values import LEAST, Values, changed
from tests.rig.helm import Refused, render
from tests.unit import (
    test_answers,
    test_credentials,
    test_envelopes,
    test_retry_settings,
    test_settings,
    test_settings_checks,
    test_target,
)

CONFIG: Final[Values] = LEAST["sidecar"]["config"]
ROUTE: Final[Values] = {"topics": ["orders"], "target": "http://127.0.0.1:8080/"}

ONLY_THE_SIDECAR: Final = {
    "cannot read": "the pod has other files than whoever renders the chart",
    "the environment has no": "and other variables",
    "tls.ca_file": "files again",
    "tls.cert_file": "files again",
    "is not a regular expression": "whether it compiles is up to the library that compiles it",
    "whose dead letters come back": "a walk through all routes, which a template cannot take",
    "not an IPv6 address": "no expression tells how it is abbreviated",
    "which of them is meant": "ranges of numbers in keys",
    "kafkaoffset: is made by the sidecar": "it is only taken where there are batches",
}  # fmt: skip


def config(*routes: dict[str, Any], **top: Any) -> Values:
    return {
        "kafka": CONFIG["kafka"],
        "routes": [{**ROUTE, **route} for route in routes or ({},)],
        **top,
    }


def without(route: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in {**ROUTE, **route}.items() if value is not None}


def cycle() -> Values:
    ways = (("a", "b"), ("b", "a"))
    return config(*({"topics": [one], "dead_letter": {"topic": other}} for one, other in ways))


def everything() -> list[tuple[str, Values]]:
    """What is told, and the configuration that it is told of."""
    checks = test_settings_checks
    kafka = CONFIG["kafka"]
    group = {"group_id": "g"}
    twice = {"guarantee": "at_most_once", "loss_budget": 9, "retry": test_retry_settings.TIERS}
    return [
        *((said, config(route)) for route, said in checks.ROUTES),
        *((said, {**config(), "routes": [without(one)]}) for one, said in test_settings.ROUTE),
        *((said, config(**top)) for top, said in (*test_settings.TOP, *checks.TIMES)),
        *((f"kafka.{said}", config(kafka={**kafka, **given})) for given, said in checks.REFUSED),
        *((said, config({} if two else group, two)) for two, said in checks.PAIRS),
        *((said, config(*routes)) for routes, said in test_retry_settings.TOPICS),
        *((said, config(given)) for given, said in test_credentials.REFUSED),
        *((said, config({"answers": given})) for given, said in test_answers.REFUSED),
        *((said, config(given)) for given, said in test_envelopes.UNFIT),
        *(
            (f"cloudevents: {given}", config({"encoding": "cloudevents", "cloudevents": given}))
            for given in test_envelopes.ILLEGAL
        ),
        *((f"target: {said}", config({"target": text})) for text, said in test_target.REFUSED),
        *((f"health: {said}", config(app={"health": text})) for text, said in test_target.REFUSED),
        (
            "routes[0].pattern: matches 'orders.dlq'",
            config(checks.PATTERN, kafka={**kafka, "group.protocol": "consumer"}),
        ),
        ("dead_letter.topic: 'b' is read by, whose dead letters come back", cycle()),
        (
            "kafka.security.protocol: must be SASL_SSL with AWS_MSK_IAM",
            config(kafka={**kafka, "sasl.mechanisms": "AWS_MSK_IAM"}),
        ),
        ("retry.topics: would deliver again what may have been", config(twice)),
    ]


CASES: Final = [
    pytest.param(said, case, id=f"{number} {said[:60]}")
    for number, (said, case) in enumerate(everything())
]
SCHEMA: Final = jsonschema.Draft7Validator(values_schema())


def reason(said: str) -> str | None:
    """Why the chart cannot know it."""
    return next((why for part, why in ONLY_THE_SIDECAR.items() if part in said), None)


def values(case: Values) -> Values:
    return changed({"sidecar/config": {"admin": {"host": "0.0.0.0", "port": 8090}, **case}})


@pytest.mark.usefixtures("with_helm")
@pytest.mark.parametrize(
    ("said", "case"), [each for each in CASES if reason(str(each.values[0])) is None]
)
def test_helm_refuses_what_the_sidecar_would(said: str, case: Values) -> None:
    """By the schema, which helm asks first, or by a check: in a sentence that names the value."""
    with pytest.raises(ConfigError):
        load_settings(None, {}, case)
    if any("sidecar" in error.absolute_path for error in SCHEMA.iter_errors(values(case))):
        return  # test_helm_asks_the_schema shows the rest
    with pytest.raises(Refused) as refused:
        render(values(case))
    _, found, sentence = str(refused.value).replace("/", ".").partition("sidecar.config")
    assert found, refused.value
    path = re.findall(r"[a-z_]+", said.partition(":")[0])[-2:]
    names = [*path, *re.findall(r"\w+[._]\w+", said)]
    assert any(name in sentence for name in names), sentence


@pytest.mark.usefixtures("with_helm")
def test_helm_asks_the_schema(major: int) -> None:
    """All of its complaints at once, each by the value's name; the sidecar's words are better."""
    wrong = values(
        config(
            {"target": "ftp://x/", "topics": ["a b"], "executors": -1, "headers": {"a b": "x"}},
            {"target": "http://app:70000/", "topics": ["^a"], "dead_letter": {"topic": ".."}},
            kafka={
                **CONFIG["kafka"],
                "auto.offset.reset": "smallest",
                "sesion.timeout.ms": 5,
                "fetch.min.bytes": 0,
            },
        )
    )
    with pytest.raises(Refused) as refused:
        render(wrong, major=major)
    told = str(refused.value).replace("/", ".")
    for name in (
        *("routes.0.target", "routes.1.target", "routes.0.topics.0", "routes.1.topics.0"),
        *("routes.0.executors", "routes.0.headers", "routes.1.dead_letter.topic"),
        *("kafka.auto.offset.reset", "sesion.timeout.ms", "kafka.fetch.min.bytes"),
    ):
        assert name in told, told


def is_rendered(case: Values) -> bool:
    try:
        render(values(case))
    except Refused:
        return False
    return True


@pytest.mark.usefixtures("with_helm")
def test_what_only_the_sidecar_sees_is_rendered_and_nothing_else_is_called_so() -> None:
    """A line of that list is needed, and is true."""
    for part in ONLY_THE_SIDECAR:
        passes = [
            case
            for said, case in everything()
            if part in said and not list(SCHEMA.iter_errors(values(case)))
        ]
        assert any(is_rendered(case) for case in passes), part


# --- what is right is not refused -----------------------------------------------------------------


@pytest.mark.usefixtures("with_helm")
def test_every_target_is_taken_that_the_sidecar_understands() -> None:
    targets = [text for text, _, _ in test_target.UNDERSTOOD]
    routes = [{"topics": [f"t{at}"], "target": target} for at, target in enumerate(targets)]
    assert "Deployment" in render(values(config(*routes))).kinds


@pytest.mark.usefixtures("with_helm")
@pytest.mark.parametrize("given", test_settings_checks.PASSES, ids=str)
def test_every_property_is_taken_that_the_sidecar_takes(given: dict[str, Any]) -> None:
    if given == {"bootstrap.servers": "embedded"}:
        return
    assert "Deployment" in render(values(config(kafka={**CONFIG["kafka"], **given}))).kinds


@pytest.mark.usefixtures("with_helm")
@pytest.mark.parametrize(
    "given",
    [
        {"group.protocol": {"env": "A"}, "group.remote.assignor": "uniform"},
        {"sasl.mechanisms": "AWS_MSK_IAM", "security.protocol": {"env": "A"}},
        {"sasl.mechanisms": "OAUTHBEARER", "sasl.oauthbearer.method": {"env": "A"}},
        {"heartbeat.interval.ms": 45_000, "session.timeout.ms": {"file": "/a"}},
        {"max.poll.interval.ms": {"env": "A"}, "auto.offset.reset": {"env": "A"}},
    ],
    ids=str,
)
def test_what_only_the_pod_knows_is_taken_to_be_right(given: dict[str, Any]) -> None:
    assert "Deployment" in render(values(config(kafka={**CONFIG["kafka"], **given}))).kinds


# --- rules that are written twice -----------------------------------------------------------------

TEMPLATES: Final = "".join(
    each.read_text(encoding="utf-8") for each in sorted(CHART.glob("templates/_*.tpl"))
)


def test_the_chart_knows_what_each_preset_sends() -> None:
    table = " ".join(
        f'"{preset.value}" (list {" ".join(f"{chr(34)}{each.value}{chr(34)}" for each in fits)})'
        for preset, fits in ENCODINGS.items()
    )
    assert f"dict {table} -" in TEMPLATES


@pytest.mark.parametrize(
    "name",
    [
        *("Authorization", "Proxy-Authorization", "Cookie", "X-API-Key", "apikey", "X-Auth"),
        *("X-Auth-Token", "X-Access-Key", "X-Hub-Signature-256", "X-Secret", "X-Password"),
        *("X-Team", "Accept", "X-Partition-Key", "X-Author", "X-Keyboard"),
        *("Host", "Kafka-Key", "ce-id", "Sidecar-Attempt", "Traceparent", "X-Host", "Hosts"),
    ],
)
def test_the_chart_knows_the_same_headers(name: str) -> None:
    (own,) = re.findall(r'regexMatch "(\^\(connection[^"]*)" \$header', TEMPLATES)
    (credential,) = re.findall(r'regexMatch "(authorization[^"]*)" \$header', TEMPLATES)
    assert bool(re.search(own, name.lower())) is is_own_header(name)
    assert bool(re.search(credential, name.lower())) is is_credential(name)
