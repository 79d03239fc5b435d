"""What to do about an error of the client: one clause, where its code or its words tell it.

Pure. The words are librdkafka's, OpenSSL's and the brokers' own; a test on a real broker provokes
each of them.
"""

from __future__ import annotations

from typing import Final

from confluent_kafka import KafkaError

_BY_CODE: Final = {
    KafkaError._ALL_BROKERS_DOWN: "no connection: check bootstrap.servers and security.protocol",
    KafkaError._AUTHENTICATION: "the login was refused: check sasl.mechanisms, sasl.username and"
    " sasl.password",
    KafkaError._RESOLVE: "a host name does not resolve: check bootstrap.servers",
    KafkaError._SSL: "TLS failed: check security.protocol, ssl.ca.location and the port",
    KafkaError._TRANSPORT: "no connection: check bootstrap.servers, security.protocol and the"
    " network's rules",
    KafkaError._UNKNOWN_TOPIC: "create the topic, or correct the name",
    KafkaError.UNKNOWN_TOPIC_OR_PART: "create the topic, or correct the name",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "allow the user this operation on the cluster",
    KafkaError.FENCED_INSTANCE_ID: "another member has the same group.instance.id: give each"
    " its own",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "allow the user Describe and Read on the group",
    KafkaError.INCONSISTENT_GROUP_PROTOCOL: "the group's members assign partitions in another"
    " way: set partition.assignment.strategy to theirs, or choose another group.id",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "allow the user Describe and Read on it",
    KafkaError.UNRELEASED_INSTANCE_ID: "another member has the same group.instance.id: give each"
    " its own",
}

_NO_TLS: Final = (
    "this port speaks no TLS: set security.protocol to PLAINTEXT or SASL_PLAINTEXT, or use the TLS"
    " port"
)

# More than the code tells. The first that is found in the error's text; "…" is for anything.
_BY_WORDS: Final = {
    "certificate verify failed": "ssl.ca.location does not hold the CA that signed the broker's"
    " certificate, or the certificate is for another host name than bootstrap.servers has",
    "PLAINTEXT broker listener": _NO_TLS,
    "ssl/tls alert": "the broker refuses the client certificate, or misses one: check that"
    " ssl.certificate.location is current and signed by a CA that the broker trusts",
    "Unsupported SASL mechanism": "set sasl.mechanisms to one that the broker supports",
    "not valid in current SASL state": "this port takes no login: set security.protocol to SSL or"
    " PLAINTEXT, or use the SASL port",
    "OAUTHBEARER token": "no token: check sasl.oauthbearer.token.endpoint.url, client.id and"
    " client.secret",
    "OAuth token not set": "no token could be signed: see the line before",
    "OAUTHBEARER": "the broker refuses the token: check its issuer, audience and scope",
    "receive 0 after POLLIN (after": "the port hangs up on what is not encrypted: set"
    " security.protocol to SSL or SASL_SSL",
    # It hung up before its answer was read.
    "SSL connection closed by peer (after … in state SSL_HANDSHAKE": _NO_TLS,
    "SSL connection closed by peer (after": "the port hangs up on who does not log in: set"
    " security.protocol to SASL_SSL",
    "key values mismatch": "ssl.key.location is not the key of ssl.certificate.location",
    "ssl.ca.location failed": "the file cannot be read, or holds no certificates (PEM)",
    "ssl.certificate.location failed": "the file cannot be read, or holds no certificate (PEM)",
    "ssl.key.location failed": "the file cannot be read, is no key (PEM), or needs"
    " ssl.key.password",
    "ssl.keystore.location failed": "the file cannot be read, is no PKCS#12 keystore, or needs"
    " ssl.keystore.password",
}


def way_out(error: KafkaError) -> str | None:
    return way_out_of(error.str()) or _BY_CODE.get(error.code())


def way_out_of(text: str) -> str | None:
    """The same for what the client only says in its log."""
    return next(
        (hint for words, hint in _BY_WORDS.items() if all(p in text for p in words.split("…"))),
        None,
    )
