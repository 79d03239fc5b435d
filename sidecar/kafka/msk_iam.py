"""Logging in to Amazon MSK as an IAM role: tokens signed with what the machine is given.

Purpose: sasl.mechanisms AWS_MSK_IAM, which librdkafka does not know. To the client it is
OAUTHBEARER with a callback; where AWS's credentials come from (IRSA, Pod Identity, variables,
instance) is the signer's affair. Comes with the extra `msk`; its only importer.

Owner: the client whose callback it is; called on threads of librdkafka, now and before each token
ends. Invariant: neither credentials nor tokens show in the log.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from sidecar.core.kafka_rules import AWS_MSK_IAM
from sidecar.errors import ConfigError, Problem
from sidecar.logs import RateLimited, gist

log = logging.getLogger(__name__)

_REGION: Final = re.compile(r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com")

Token = tuple[str, float]  # and when it ends, in Unix seconds


def with_tokens(config: Mapping[str, Any], env: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """The properties as librdkafka takes them: changed where AWS_MSK_IAM is chosen."""
    if config.get("sasl.mechanisms", "").upper() != AWS_MSK_IAM:
        return dict(config)
    region = region_of(config["bootstrap.servers"], env)
    return {**config, "sasl.mechanisms": "OAUTHBEARER", "oauth_cb": signing(region)}


def region_of(servers: str, env: Mapping[str, str]) -> str:
    """By the name of a broker, else by the variable that AWS sets. Raises ConfigError."""
    if found := _REGION.search(servers):
        return found[1]
    if region := env.get("AWS_REGION") or env.get("AWS_DEFAULT_REGION"):
        return region
    reason = f"{AWS_MSK_IAM} needs the cluster's region, which bootstrap.servers does not name"
    raise ConfigError([Problem("kafka.sasl.mechanisms", f"{reason}: set AWS_REGION")])


def signing(region: str) -> Callable[[str], Token]:
    """The callback; a failure is logged, as the client tells of it without the reason."""
    repeating = RateLimited(log)

    def sign(_: str) -> Token:
        # Imported by those alone who need it, as it is installed by them alone.
        from aws_msk_iam_sasl_signer import MSKAuthTokenProvider  # noqa: PLC0415

        try:
            token, ends_ms = MSKAuthTokenProvider.generate_auth_token(region)
        except Exception as error:
            # Without credentials the signer stumbles over None.
            said = "no AWS credentials were found" if isinstance(error, AttributeError) else error
            key = ("signing", gist(str(said)))
            text = "no token for Amazon MSK (%s): %s; check the pod's service account and role"
            repeating.limited(key, logging.ERROR, text, region, said)
            raise
        return token, ends_ms / 1000

    return sign
