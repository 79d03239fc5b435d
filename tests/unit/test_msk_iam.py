"""Logging in to Amazon MSK: the region, the token, and what is said without credentials."""

from __future__ import annotations

import base64
import logging
import time
from typing import Any, Final
from urllib.parse import parse_qs, urlparse

import pytest

from sidecar.errors import ConfigError
from sidecar.kafka.client_config import client_config, consumer_config, producer_config
from sidecar.kafka.msk_iam import region_of, signing, with_tokens
from sidecar.kafka.topics import connection_settings
from sidecar.settings import Settings, checks, load_settings

BROKERS: Final = "b-1.orders.abc123.c2.kafka.eu-central-1.amazonaws.com:9098"
ROUTES: Final = [{"topics": ["orders"], "target": "http://127.0.0.1:1/"}]


def settings(**kafka: Any) -> Settings:
    given = {
        "bootstrap.servers": BROKERS,
        "group.id": "billing",
        "security.protocol": "SASL_SSL",
        "sasl.mechanisms": "AWS_MSK_IAM",
        **{name.replace("_", "."): value for name, value in kafka.items()},
    }
    return load_settings(None, {}, {"kafka": given, "routes": ROUTES})


@pytest.mark.parametrize(
    ("servers", "env", "region"),
    [
        (BROKERS, {"AWS_REGION": "us-east-1"}, "eu-central-1"),
        ("boot-x.c3.kafka-serverless.us-west-2.amazonaws.com:9098", {}, "us-west-2"),
        ("b-1.x.c2.kafka.cn-north-1.amazonaws.com.cn:9098", {}, "cn-north-1"),
        ("kafka.internal:9098", {"AWS_REGION": "us-east-1"}, "us-east-1"),
        ("kafka.internal:9098", {"AWS_DEFAULT_REGION": "us-east-2"}, "us-east-2"),
    ],
)
def test_the_region_is_that_of_the_brokers_else_that_of_the_pod(
    servers: str, env: dict[str, str], region: str
) -> None:
    assert region_of(servers, env) == region


def test_without_a_region_it_says_what_to_set() -> None:
    with pytest.raises(ConfigError, match=r"does not name: set AWS_REGION$"):
        region_of("kafka.internal:9098", {})


def test_every_client_gets_tokens_and_librdkafka_a_mechanism_it_knows() -> None:
    chosen = settings()
    route = chosen.routes[0]
    consumer = consumer_config(chosen, route)
    for config in (
        consumer,
        client_config(chosen),
        producer_config(chosen, route),
        connection_settings(consumer),
    ):
        assert config["sasl.mechanisms"] == "OAUTHBEARER"
        assert callable(config["oauth_cb"])


def test_other_mechanisms_are_left_as_they_are() -> None:
    config = {"bootstrap.servers": "kafka:9093", "sasl.mechanisms": "SCRAM-SHA-512"}
    assert with_tokens(config) == config


def test_a_token_is_a_signed_address_in_base64(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the brokers' side reads it: for this cluster's service and region, for 15 minutes."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush-hush")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "session")
    token, ends = signing("eu-central-1")("")
    address = urlparse(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode())
    assert (address.scheme, address.netloc) == ("https", "kafka.eu-central-1.amazonaws.com")
    query = {name: value for name, (value,) in parse_qs(address.query).items()}
    assert query["Action"] == "kafka-cluster:Connect"
    assert query["X-Amz-Algorithm"] == "AWS4-HMAC-SHA256"
    assert query["X-Amz-Credential"].startswith("AKIAEXAMPLE/")
    assert query["X-Amz-Credential"].endswith("/eu-central-1/kafka-cluster/aws4_request")
    assert query["X-Amz-Expires"] == "900"
    assert query["X-Amz-Security-Token"] == "session"
    assert len(query["X-Amz-Signature"]) == 64
    assert "hush-hush" not in address.geturl()
    assert 800 < ends - time.time() <= 900


def test_credentials_that_are_missing_are_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    with caplog.at_level(logging.ERROR), pytest.raises(AttributeError):
        signing("eu-central-1")("")
    (said,) = caplog.messages
    assert said.startswith("no token for Amazon MSK (eu-central-1): no AWS credentials were found;")


def test_it_needs_tls() -> None:
    with pytest.raises(ConfigError, match=r"security.protocol: must be SASL_SSL with AWS_MSK_IAM"):
        settings(security_protocol="SASL_PLAINTEXT")


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "_SIGNER", "aws_msk_iam_sasl_signer_that_is_not_here")
    with pytest.raises(ConfigError, match=r"pip install 'kafka-dispatch-sidecar\[msk\]'"):
        settings()
