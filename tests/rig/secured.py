"""SecuredKafka: a broker that asks who is there, by every way that clusters in the field do.

Besides the rig's own plaintext listener, whose anonymous user may do everything:
* `sasl`    TLS, and SASL by SCRAM-SHA-512, PLAIN or OAUTHBEARER
* `mutual`  TLS, and a client certificate; the user is its subject

Nobody else may do anything that no ACL allows. Certificates are made by the authority; what
the broker trusts and shows is read when it starts.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import trustme
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from cryptography.hazmat.primitives import serialization

from tests.rig.distribution import Distribution
from tests.rig.errors import NoKafka
from tests.rig.kafka import WAYS, KafkaCluster
from tests.rig.nodes import JavaNode, Node
from tests.rig.ports import free_ports
from tests.rig.properties import GUARDED, UNHARMED, one_node

HOST: Final = "127.0.0.1"
PLAIN_PASSWORD: Final = "plain-secret"
_SECURITY: Final = "org.apache.kafka.common.security"
_TIMEOUT: Final = 30.0

Grant = tuple[ResourceType, str, AclOperation]


class SecuredKafka(KafkaCluster):
    """directory: where certificates are written."""

    def __init__(self, directory: Path, authority: trustme.CA) -> None:
        super().__init__(1)
        self._directory: Final = directory
        self.sasl = ""
        self.mutual = ""
        self.renew(authority, [authority])

    def renew(self, authority: trustme.CA, trusted: Iterable[trustme.CA]) -> None:
        """What the broker shows, and whose clients it trusts, from its next start on."""
        shown = authority.issue_cert(HOST, common_name="broker")
        chain = b"".join(each.bytes() for each in shown.cert_chain_pems)
        (self._directory / "broker.pem").write_bytes(_pkcs8(shown.private_key_pem.bytes()) + chain)
        (self._directory / "trusted.pem").write_bytes(bundle(trusted))

    def user(self, name: str, password: str) -> str:
        """Give the user this password by SCRAM-SHA-512; the name."""
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        wanted = UserScramCredentialUpsertion(name, info, password.encode())
        (answer,) = self.admin.alter_user_scram_credentials([wanted]).values()
        answer.result(_TIMEOUT)
        return name

    def allow(self, user: str, *grants: Grant) -> None:
        """A name that ends with an asterisk is a prefix."""
        for answer in self.admin.create_acls(
            [_binding(f"User:{user}", grant) for grant in grants]
        ).values():
            answer.result(_TIMEOUT)

    def forbid(self, user: str, *grants: Grant) -> None:
        """Take back what was allowed."""
        found = [_binding(f"User:{user}", grant) for grant in grants]
        filters = [
            AclBindingFilter(
                each.restype, each.name, each.resource_pattern_type, each.principal, each.host,
                each.operation, each.permission_type,
            )
            for each in found
        ]  # fmt: skip
        for answer in self.admin.delete_acls(filters).values():
            assert answer.result(_TIMEOUT), "there was no such ACL"

    def _make_nodes(self, distribution: Distribution | None, directory: Path) -> tuple[Node, ...]:
        if distribution is None:
            raise NoKafka(f"its certificates lie on this machine, not in Docker; {WAYS}")
        plain, controller, sasl, mutual = free_ports(4)
        self.sasl, self.mutual = f"{HOST}:{sasl}", f"{HOST}:{mutual}"
        common = one_node(plain, controller, directory / "1/data")
        properties = {
            **common,
            **UNHARMED,
            **GUARDED,
            "allow.everyone.if.no.acl.found": "false",
            "super.users": "User:ANONYMOUS",
            "listeners": f"{common['listeners']},SASL://{self.sasl},MUTUAL://{self.mutual}",
            "advertised.listeners": (
                f"{common['advertised.listeners']},SASL://{self.sasl},MUTUAL://{self.mutual}"
            ),
            "listener.security.protocol.map": (
                f"{common['listener.security.protocol.map']},SASL:SASL_SSL,MUTUAL:SSL"
            ),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self._directory / "broker.pem"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self._directory / "trusted.pem"),
            "listener.name.mutual.ssl.client.auth": "required",
            "listener.name.mutual.ssl.principal.mapping.rules": r"RULE:^.*?CN=([^,]+).*$/$1/",
            "listener.name.sasl.sasl.enabled.mechanisms": "SCRAM-SHA-512,PLAIN,OAUTHBEARER",
            _jaas("scram-sha-512"): f"{_SECURITY}.scram.ScramLoginModule required;",
            _jaas("plain"): (
                f'{_SECURITY}.plain.PlainLoginModule required user_plain="{PLAIN_PASSWORD}";'
            ),
            _jaas("oauthbearer"): f"{_SECURITY}.oauthbearer.OAuthBearerLoginModule required;",
        }
        return (JavaNode(1, plain, properties, directory / "1", distribution, self._entrust),)


def bundle(authorities: Iterable[trustme.CA]) -> bytes:
    """Their certificates, one after the other (PEM)."""
    return b"".join(each.cert_pem.bytes() for each in authorities)


def unsecured_token(subject: str, seconds: float = 300) -> str:
    """A JWT that the broker takes without asking who signed it."""
    now = time.time()
    claims = {"sub": subject, "iat": now - 10, "exp": now + seconds}
    parts = ({"alg": "none", "typ": "JWT"}, claims)
    return ".".join(
        [
            *(
                base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")
                for part in parts
            ),
            "",
        ]
    )


def _pkcs8(key: bytes) -> bytes:
    """The key in the one format that Java reads."""
    private = serialization.load_pem_private_key(key, None)
    return private.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _jaas(mechanism: str) -> str:
    return f"listener.name.sasl.{mechanism}.sasl.jaas.config"


def _binding(principal: str, grant: Grant) -> AclBinding:
    kind, name, operation = grant
    prefix = name.endswith("*") and len(name) > 1
    return AclBinding(
        kind,
        name.rstrip("*") if prefix else name,
        ResourcePatternType.PREFIXED if prefix else ResourcePatternType.LITERAL,
        principal,
        "*",
        operation,
        AclPermissionType.ALLOW,
    )
