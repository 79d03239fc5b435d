"""Tries a real cluster without consuming or writing: reachable, topics, group, dead letters.

Blocking, bounded by SECONDS per question. Every finding names what was asked and the way out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from concurrent.futures import Future
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

from sidecar.core.findings import Finding, fail, ok, warn
from sidecar.kafka.client_config import client_config, consumer_config
from sidecar.kafka.dead_letter_check import dead_letter_findings
from sidecar.kafka.errors import WAYS_OUT, refused_config
from sidecar.kafka.retry_topics import PARTITIONS, topic_config
from sidecar.model import RetryTopic
from sidecar.settings import RouteSettings, Settings
from sidecar.settings.topics import excluded

SECONDS: Final = 10.0
_SECONDS_IN_TROUBLE: Final = 3.0
_PAUSE: Final = 0.2
READ: Final = AclOperation.READ
WRITE: Final = AclOperation.WRITE
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


class _Check:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._trouble: list[KafkaError] = []
        # The binding's stubs know no callbacks in the configuration.
        config: dict[str, Any] = {**client_config(settings), "error_cb": self._trouble.append}
        try:
            self._admin = AdminClient({**config, "log_level": 0})
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

    def _cluster(self) -> ClusterMetadata:
        """The cluster's metadata; what the client reports meanwhile ends the waiting early."""
        started = monotonic()
        while True:
            try:
                return self._admin.list_topics(timeout=1.0)
            except KafkaException:
                waited = monotonic() - started
                self._admin.poll(0)
                if waited > SECONDS or (self._trouble and waited > _SECONDS_IN_TROUBLE):
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
        if route.retry.create_topics:
            return ok(subject, f"{what} is made at the start")
        config = ", ".join(f"{name}={value}" for name, value in topic_config(topic).items())
        amount = _count(PARTITIONS, "partition")
        return fail(subject, f"{what} does not exist: create it with {amount}, {config}")

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
            return self._undescribed(subject, topic, what, error.args[0])
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

    def _undescribed(self, subject: str, topic: str, what: str, error: KafkaError) -> Finding:
        if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return fail(subject, f"{what} does not exist: create it, or correct the name")
        if topic in self._partitions and error.code() not in WAYS_OUT:
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
                verdict = fail if code in WAYS_OUT else warn
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
                verdict = fail if code in WAYS_OUT else warn
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
        told = [each for each in self._trouble if each.code() in WAYS_OUT]
        specific = [each for each in told if each.code() != KafkaError._ALL_BROKERS_DOWN]
        return self._said((specific or told or [error.args[0]])[0])

    def _said(self, error: KafkaError) -> str:
        hint = WAYS_OUT.get(error.code())
        # Some errors come with nothing but a name, others with a text that lacks it.
        text = error.str().strip(" :") or error.name()
        said = text if hint or error.name() in text else f"{text} ({error.name()})"
        return f"{said}; {hint}" if hint else said


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
