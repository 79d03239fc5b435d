"""Tries a real cluster without consuming or writing: reachable, topics, group, dead letters.

Blocking, bounded by SECONDS per question. Every finding names what was asked and the way out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Final, TypeVar

from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AclOperation, AdminClient, ClusterMetadata

from sidecar.core.certificates import not_after
from sidecar.core.findings import Finding, fail, ok, warn
from sidecar.errors import ConfigError
from sidecar.kafka.client_config import client_config, consumer_config
from sidecar.kafka.dead_letter_check import dead_letter_findings
from sidecar.kafka.errors import refused_config
from sidecar.kafka.retry_topics import PARTITIONS, new_topic, topic_config
from sidecar.kafka.ways_out import way_out, way_out_of
from sidecar.model import RetryTopic
from sidecar.settings import RouteSettings, Settings
from sidecar.settings.topics import excluded

SECONDS: Final = 10.0
_SECONDS_IN_TROUBLE: Final = 3.0
_PAUSE: Final = 0.2
_FINAL: Final = (KafkaError._AUTHENTICATION, KafkaError._SSL)
READ: Final = AclOperation.READ
WRITE: Final = AclOperation.WRITE
CERTIFICATE: Final = "ssl.certificate.location"
_EXPIRES_SOON: Final = timedelta(days=7)
_T = TypeVar("_T")

_PASSING: Final = {
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
}


def check_kafka(settings: Settings) -> Iterator[Finding]:
    if settings.embedded_broker:
        yield ok("kafka", "the embedded broker is started with the sidecar")
        return
    yield from _Check(settings).findings()


def cannot_connect(settings: Settings) -> str | None:
    """Why the brokers do not take these settings, None if they do."""
    try:
        return _Check(settings).refusal()
    except ConfigError as error:
        return str(error)


class _Check:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._trouble: list[KafkaError] = []
        # The binding's stubs know no callbacks in the configuration.
        config: dict[str, Any] = {**client_config(settings), "error_cb": self._trouble.append}
        self._said_aside = _Said()
        try:
            self._admin = AdminClient(config, logger=self._said_aside)
        except KafkaException as error:
            raise refused_config(error) from error
        self._partitions: dict[str, int] = {}

    def findings(self) -> Iterator[Finding]:
        address = self._settings.kafka_text("bootstrap.servers")
        try:
            cluster = self._cluster()
        except KafkaException as error:
            yield fail("kafka", f"{address}: {self._reason(error)}")
            return
        self._partitions = {
            name: len(topic.partitions)
            for name, topic in cluster.topics.items()
            if topic.error is None
        }
        yield ok("kafka", f"{address}: {_count(len(cluster.brokers), 'broker')}")
        if (ends := self._certificate_ends()) and ends < datetime.now(UTC) + _EXPIRES_SOON:
            yield warn("kafka", self._expiry(ends))
        for route in self._settings.routes:
            topics = list(route.topics or ())
            if route.pattern is not None:
                topics, finding = self._matching(route, route.pattern)
                yield finding
            for topic in topics:
                yield self._topic(route, f"topic {topic}", topic, READ)
            if route.dead_letter is not None:
                parked = route.dead_letter.topic
                yield self._topic(route, f"dead-letter topic {parked}", parked, WRITE)
                known = [topic for topic in topics if topic in self._partitions]
                if parked in self._partitions:
                    yield from dead_letter_findings(
                        self._admin,
                        f"route {route.name}",
                        parked,
                        known,
                        next(iter(cluster.brokers)),
                    )
            for retry_topic in self._settings.retry_topics(route):
                yield self._retry_topic(route, retry_topic)
            yield from self._group(route, [topic for topic in topics if topic in self._partitions])
            if route.dead_letter is not None:
                yield from self._redrives(f"{self._settings.group_of(route)}.redrive", route)

    def refusal(self) -> str | None:
        try:
            self._cluster()
        except KafkaException as error:
            return self._reason(error)
        return None

    def _cluster(self) -> ClusterMetadata:
        """The cluster's metadata; what the client reports meanwhile ends the waiting early."""
        started = monotonic()
        while True:
            try:
                return self._admin.list_topics(timeout=1.0)
            except KafkaException:
                waited = monotonic() - started
                self._admin.poll(0)
                in_vain = any(each.code() in _FINAL for each in self._trouble)
                patience = _SECONDS_IN_TROUBLE if self._trouble else SECONDS
                if in_vain or waited > patience:
                    raise

    # --- topics -----------------------------------------------------------------------------

    def _matching(self, route: RouteSettings, pattern: str) -> tuple[list[str], Finding]:
        left_out = {
            *excluded(self._settings, route),
            *(topic.name for topic in self._settings.retry_topics(route)),
        }
        topics = sorted(
            name for name in self._partitions if re.match(pattern, name) and name not in left_out
        )
        subject = f"route {route.name}"
        if topics:
            return topics, ok(subject, f"pattern {pattern} matches {_count(len(topics), 'topic')}")
        return topics, warn(
            subject, f"pattern {pattern} matches no topic the user may see: correct it, or wait"
        )

    def _retry_topic(self, route: RouteSettings, topic: RetryTopic) -> Finding:
        what = f"retry topic {topic.name}"
        if topic.name in self._partitions:
            return self._topic(route, what, topic.name, READ, WRITE)
        subject = f"route {route.name}"
        if route.retry.create_topics and (refused := self._cannot_be_made(topic)) is None:
            return ok(subject, f"{what} is made at the start")
        config = ", ".join(f"{name}={value}" for name, value in topic_config(topic).items())
        amount = _count(PARTITIONS, "partition")
        if route.retry.create_topics:
            allow = f"{what} cannot be made ({refused}): allow the user Create on it, or create it"
            return fail(subject, f"{allow} with {amount}, {config}")
        return fail(subject, f"{what} does not exist: create it with {amount}, {config}")

    def _cannot_be_made(self, topic: RetryTopic) -> str | None:
        """Why the broker would not make it, None if it would. Nothing is made."""
        try:
            self._ask(
                lambda: self._admin.create_topics(
                    [new_topic(topic)], validate_only=True, request_timeout=SECONDS
                )[topic.name]
            )
        except KafkaException as error:
            return error.args[0].str().strip(" :") or str(error.args[0].name())
        return None

    def _topic(
        self, route: RouteSettings, what: str, topic: str, *operations: AclOperation
    ) -> Finding:
        """what: the topic by the part it plays."""
        subject = f"route {route.name}"
        try:
            description = self._ask(
                lambda: self._admin.describe_topics(
                    TopicCollection([topic]),
                    include_authorized_operations=True,
                    request_timeout=SECONDS,
                )[topic]
            )
        except KafkaException as error:
            return self._undescribed(subject, topic, what, error.args[0], operations)
        count = len(description.partitions)
        self._partitions[topic] = count
        allowed = description.authorized_operations
        for operation in operations:
            if allowed and not {operation, AclOperation.ALL} & set(allowed):
                done = "read" if operation is READ else "written"
                return fail(
                    subject,
                    f"{what} may not be {done}: allow the user {operation.name.capitalize()} on it",
                )
        return ok(subject, f"{what}: {_count(count, 'partition')}")

    def _undescribed(
        self,
        subject: str,
        topic: str,
        what: str,
        error: KafkaError,
        operations: tuple[AclOperation, ...],
    ) -> Finding:
        if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return fail(subject, f"{what} does not exist: create it, or correct the name")
        if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            needed = _listed(["Describe", *(each.name.capitalize() for each in operations)])
            return fail(subject, f"{what} may not be seen: allow the user {needed} on it")
        if topic in self._partitions and way_out(error) is None:
            # Brokers that cannot describe topics still list them.
            return ok(subject, f"{what}: {_count(self._partitions[topic], 'partition')}")
        return fail(subject, f"{what}: {self._said(error)}")

    # --- group ------------------------------------------------------------------------------

    def _group(self, route: RouteSettings, topics: list[str]) -> Iterator[Finding]:
        group = self._settings.group_of(route)
        subject = f"route {route.name}"
        try:
            described = self._ask(
                lambda: self._admin.describe_consumer_groups(
                    [group], include_authorized_operations=True, request_timeout=SECONDS
                )[group]
            )
        except KafkaException as error:
            code = error.args[0].code()
            # A group that nobody has joined yet is unknown to newer brokers.
            if code != KafkaError.GROUP_ID_NOT_FOUND:
                verdict = fail if way_out(error.args[0]) else warn
                yield verdict(subject, f"group {group}: {self._said(error.args[0])}")
                return
        else:
            allowed = described.authorized_operations
            if allowed and not {AclOperation.READ, AclOperation.ALL} & set(allowed):
                yield fail(subject, f"group {group} may not be joined: allow the user Read on it")
                return
            if described.state is ConsumerGroupState.STABLE and (
                other := self._foreign(route, described.partition_assignor)
            ):
                yield other
        yield self._committed(subject, group, topics)

    def _redrives(self, group: str, route: RouteSettings) -> Iterator[Finding]:
        """Nothing, unless the group that keeps their progress is not to be had."""
        try:
            self._ask(
                lambda: self._admin.describe_consumer_groups([group], request_timeout=SECONDS)[
                    group
                ]
            )
        except KafkaException as error:
            if error.args[0].code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
                said = self._said(error.args[0])
                yield fail(f"route {route.name}", f"group {group}, of redrives: {said}")

    def _foreign(self, route: RouteSettings, assignor: str) -> Finding | None:
        """A finding if the members there are assign partitions in a way we do not know."""
        config = consumer_config(self._settings, route)
        ours = config.get("partition.assignment.strategy", "").replace(" ", "").split(",")
        if config.get("group.protocol", "classic") == "consumer" or not assignor:
            return None
        if assignor in ours:
            return None
        return fail(
            f"route {route.name}",
            f"group {config['group.id']} has members that use {assignor}: set"
            f" partition.assignment.strategy: {assignor}, or choose another group",
        )

    def _committed(self, subject: str, group: str, topics: list[str]) -> Finding:
        wanted = [
            TopicPartition(topic, number)
            for topic in topics
            for number in range(self._partitions[topic])
        ]
        begin = f"the others begin at the {self._settings.offset_reset.value}"
        if not wanted:
            return ok(subject, f"group {group} may be read")
        try:
            answer = self._ask(
                lambda: self._admin.list_consumer_group_offsets(
                    [ConsumerGroupTopicPartitions(group, wanted)], request_timeout=SECONDS
                )[group]
            )
        except KafkaException as error:
            code = error.args[0].code()
            if code != KafkaError.GROUP_ID_NOT_FOUND:
                verdict = fail if way_out(error.args[0]) else warn
                return verdict(subject, f"group {group}: {self._said(error.args[0])}")
            known = 0
        else:
            known = sum(each.offset >= 0 for each in answer.topic_partitions)
        text = f"group {group} has offsets for {known} of {len(wanted)} partitions"
        return ok(subject, text if known == len(wanted) else f"{text}; {begin} record")

    # --- errors -----------------------------------------------------------------------------

    def _ask(self, question: Callable[[], Future[_T]]) -> _T:
        """The answer, waiting for a group's coordinator that is just being found or loaded."""
        deadline = monotonic() + SECONDS
        while True:
            try:
                return question().result(timeout=2 * SECONDS)
            except KafkaException as error:
                if error.args[0].code() not in _PASSING or monotonic() > deadline:
                    raise
            sleep(_PAUSE)

    def _reason(self, error: KafkaException) -> str:
        """The cause, which the client reports on the side, before the symptom."""
        self._admin.poll(0)
        if (ends := self._certificate_ends()) and ends < datetime.now(UTC):
            return self._expiry(ends)
        told = [each for each in self._trouble if way_out(each)]
        specific = [each for each in told if each.code() != KafkaError._ALL_BROKERS_DOWN]
        if not specific and self._said_aside.hint:
            return self._said_aside.hint
        return self._said((specific or told or [error.args[0]])[0])

    def _said(self, error: KafkaError) -> str:
        hint = way_out(error)
        # Some errors come with nothing but a name, others with a text that lacks it.
        text = error.str().strip(" :") or error.name()
        said = text if hint or error.name() in text else f"{text} ({error.name()})"
        return f"{said}; {hint}" if hint else said

    def _certificate_ends(self) -> datetime | None:
        """When the client certificate ends, if it is a file that can be read."""
        if not (file := self._settings.kafka_text(CERTIFICATE)):
            return None
        try:
            return not_after(Path(file).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError):
            return None

    def _expiry(self, ends: datetime) -> str:
        file = self._settings.kafka_text(CERTIFICATE)
        expires = "has expired on" if ends < datetime.now(UTC) else "expires on"
        return f"{CERTIFICATE}: {file} {expires} {ends:%Y-%m-%d %H:%M} UTC: renew it"


class _Said:
    """Takes the place of a logger: some failures of a connection are told nowhere else."""

    def __init__(self) -> None:
        self.hint: str | None = None

    def log(self, _: int, message: str, *args: object) -> None:
        self.hint = self.hint or way_out_of(message % args if args else message)


def _listed(words: list[str]) -> str:
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
