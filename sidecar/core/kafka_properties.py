"""The librdkafka properties that can be written in a file: who reads them, and what they hold.

Pure data for kafka_rules. One line a property: C (consumer), P (producer) or * (both); its name;
its values, as a range, as alternatives, or as text. Callbacks and pointers have no place in a
file and are absent. A test offers every line to the bundled library.
"""

from __future__ import annotations

from functools import cache
from typing import Final, NamedTuple


class Property(NamedTuple):
    """choices is empty where any text will do; low and high are set for whole numbers."""

    consumer: bool
    producer: bool
    choices: tuple[str, ...] = ()
    low: int | None = None
    high: int | None = None


@cache
def properties() -> dict[str, Property]:
    table: dict[str, Property] = {}
    for line in _TABLE.split("\n"):
        role, name, values = line.split(" ", 2)
        consumer, producer = role != "P", role != "C"
        low, dots, high = values.partition("..")
        if dots:
            table[name] = Property(consumer, producer, (), int(low), int(high))
        elif values == "text":
            table[name] = Property(consumer, producer)
        else:
            table[name] = Property(consumer, producer, tuple(values.split("|")))
    return table


_TABLE: Final = """\
P acks text
* allow.auto.create.topics true|false
* api.version.fallback.ms 0..604800000
* api.version.request true|false
* api.version.request.timeout.ms 1..300000
C auto.commit.enable true|false
C auto.commit.interval.ms 0..86400000
C auto.offset.reset smallest|earliest|beginning|largest|latest|end|error
P batch.num.messages 1..1000000
P batch.size 1..2147483647
* bootstrap.servers text
* broker.address.family any|v4|v6
* broker.address.ttl 0..86400000
* broker.version.fallback text
C check.crcs true|false
* client.dns.lookup use_all_dns_ips|resolve_canonical_bootstrap_servers_only
* client.id text
* client.rack text
P compression.codec none|gzip|snappy|lz4|zstd
P compression.level -1..12
P compression.type none|gzip|snappy|lz4|zstd
* connections.max.idle.ms 0..2147483647
C consume.callback.max.messages 0..1000000
C coordinator.query.interval.ms 1..3600000
* debug text
P delivery.report.only.error true|false
P delivery.timeout.ms 0..2147483647
C enable.auto.commit true|false
C enable.auto.offset.store true|false
P enable.gapless.guarantee true|false
P enable.idempotence true|false
* enable.metrics.push true|false
C enable.partition.eof true|false
* enable.random.seed true|false
* enable.sasl.oauthbearer.unsecure.jwt true|false
* enable.ssl.certificate.verification true|false
* enabled_events 0..2147483647
C fetch.error.backoff.ms 0..300000
C fetch.max.bytes 0..2147483135
C fetch.message.max.bytes 1..1000000000
C fetch.min.bytes 1..100000000
C fetch.queue.backoff.ms 0..300000
C fetch.wait.max.ms 0..300000
C group.id text
C group.instance.id text
C group.protocol classic|consumer
C group.protocol.type text
C group.remote.assignor text
C heartbeat.interval.ms 1..3600000
* https.ca.location text
* https.ca.pem text
* internal.termination.signal 0..128
C isolation.level read_uncommitted|read_committed
P linger.ms text
* log.connection.close true|false
* log.queue true|false
* log.thread.name true|false
* log_level 0..7
* max.in.flight 1..1000000
* max.in.flight.requests.per.connection 1..1000000
C max.partition.fetch.bytes 1..1000000000
C max.poll.interval.ms 1..86400000
C max.poll.records 1..2147483647
* message.copy.max.bytes 0..1000000000
* message.max.bytes 1000..1000000000
P message.send.max.retries 0..2147483647
P message.timeout.ms 0..2147483647
* metadata.broker.list text
* metadata.max.age.ms 1..86400000
* metadata.recovery.rebootstrap.trigger.ms 0..2147483647
* metadata.recovery.strategy none|rebootstrap
C offset.store.method none|file|broker
C offset.store.path text
C offset.store.sync.interval.ms -1..86400000
C partition.assignment.strategy text
P partitioner text
* plugin.library.paths text
P produce.offset.report true|false
P queue.buffering.backpressure.threshold 1..1000000
P queue.buffering.max.kbytes 1..2147483647
P queue.buffering.max.messages 0..2147483647
P queue.buffering.max.ms text
C queued.max.messages.kbytes 1..2097151
C queued.min.messages 1..10000000
P queuing.strategy fifo|lifo
* receive.message.max.bytes 1000..2147483647
* reconnect.backoff.jitter.ms 0..3600000
* reconnect.backoff.max.ms 0..3600000
* reconnect.backoff.ms 0..3600000
P request.required.acks text
P request.timeout.ms 1..900000
P retries 0..2147483647
* retry.backoff.max.ms 1..300000
* retry.backoff.ms 1..300000
* sasl.kerberos.keytab text
* sasl.kerberos.kinit.cmd text
* sasl.kerberos.min.time.before.relogin 0..86400000
* sasl.kerberos.principal text
* sasl.kerberos.service.name text
* sasl.mechanism text
* sasl.mechanisms text
* sasl.oauthbearer.assertion.algorithm RS256|ES256
* sasl.oauthbearer.assertion.claim.aud text
* sasl.oauthbearer.assertion.claim.exp.seconds 1..2147483647
* sasl.oauthbearer.assertion.claim.iss text
* sasl.oauthbearer.assertion.claim.jti.include true|false
* sasl.oauthbearer.assertion.claim.nbf.seconds 0..2147483647
* sasl.oauthbearer.assertion.claim.sub text
* sasl.oauthbearer.assertion.file text
* sasl.oauthbearer.assertion.jwt.template.file text
* sasl.oauthbearer.assertion.private.key.file text
* sasl.oauthbearer.assertion.private.key.passphrase text
* sasl.oauthbearer.assertion.private.key.pem text
* sasl.oauthbearer.client.credentials.client.id text
* sasl.oauthbearer.client.credentials.client.secret text
* sasl.oauthbearer.client.id text
* sasl.oauthbearer.client.secret text
* sasl.oauthbearer.config text
* sasl.oauthbearer.extensions text
* sasl.oauthbearer.grant.type client_credentials|urn:ietf:params:oauth:grant-type:jwt-bearer
* sasl.oauthbearer.metadata.authentication.type none|azure_imds|aws_iam
* sasl.oauthbearer.method default|oidc
* sasl.oauthbearer.scope text
* sasl.oauthbearer.sub.claim.name text
* sasl.oauthbearer.token.endpoint.url text
* sasl.password text
* sasl.username text
* security.protocol plaintext|ssl|sasl_plaintext|sasl_ssl
C session.timeout.ms 1..3600000
C share.acknowledgement.mode text
* socket.blocking.max.ms 1..60000
* socket.connection.setup.timeout.ms 1000..2147483647
* socket.keepalive.enable true|false
* socket.max.fails 0..1000000
* socket.nagle.disable true|false
* socket.receive.buffer.bytes 0..100000000
* socket.send.buffer.bytes 0..100000000
* socket.timeout.ms 10..300000
* ssl.ca.certificate.stores text
* ssl.ca.location text
* ssl.ca.pem text
* ssl.certificate.location text
* ssl.certificate.pem text
* ssl.cipher.suites text
* ssl.crl.location text
* ssl.curves.list text
* ssl.endpoint.identification.algorithm none|https
* ssl.engine.id text
* ssl.engine.location text
* ssl.key.location text
* ssl.key.password text
* ssl.key.pem text
* ssl.keystore.location text
* ssl.keystore.password text
* ssl.providers text
* ssl.sigalgs.list text
* statistics.interval.ms 0..86400000
P sticky.partitioning.linger.ms 0..900000
* topic.blacklist text
* topic.metadata.propagation.max.ms 0..3600000
* topic.metadata.refresh.fast.cnt 0..1000
* topic.metadata.refresh.fast.interval.ms 1..60000
* topic.metadata.refresh.interval.ms -1..3600000
* topic.metadata.refresh.sparse true|false
P transaction.timeout.ms 1000..2147483647
P transactional.id text"""
