"""Whether a dead-letter topic can hold what is parked in it, and for how long redrives know it.

Blocking, bounded by SECONDS. A cluster that does not tell its settings is believed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from sidecar.core.findings import Finding, warn

SECONDS: Final = 10.0

_SIZE: Final = "max.message.bytes"
_RETENTION: Final = "retention.ms"
_OFFSETS_RETENTION: Final = "offsets.retention.minutes"
_DAY_MS: Final = 86_400_000


def dead_letter_findings(
    admin: AdminClient, subject: str, topic: str, sources: Sequence[str], broker: int
) -> Iterator[Finding]:
    """What is wrong with the settings of a dead-letter topic; sources: what its route reads."""
    dead = _settings_of(admin, ResourceType.TOPIC, topic)
    for source in sources:
        most = _settings_of(admin, ResourceType.TOPIC, source).get(_SIZE)
        if most is not None and _SIZE in dead and dead[_SIZE] < most:
            yield warn(
                subject,
                f"dead-letter topic {topic} takes {dead[_SIZE]} bytes a record, topic {source}"
                f" holds {most}: what is larger cannot be parked. Raise its {_SIZE} above that of"
                " the source, for the headers that tell the story",
            )
            break
    kept_ms = dead.get(_RETENTION)
    if kept_ms is None:
        return
    known_ms = offsets_kept_ms(admin, broker)
    if kept_ms < 0 or kept_ms > known_ms:
        kept = "for ever" if kept_ms < 0 else f"{kept_ms / _DAY_MS:g} days"
        yield warn(
            subject,
            f"dead-letter topic {topic} keeps letters {kept}, but the brokers forget"
            f" {known_ms / _DAY_MS:g} days after a redrive what it has sent, and older letters are"
            f" then only sent with --old. Lower {_RETENTION}, or raise the brokers'"
            f" {_OFFSETS_RETENTION}",
        )


def offsets_kept_ms(admin: AdminClient, broker: int) -> int:
    """How long the offsets of a group without members are kept; where it is not told, 7 days."""
    told = _settings_of(admin, ResourceType.BROKER, str(broker)).get(_OFFSETS_RETENTION)
    return 7 * _DAY_MS if told is None else told * 60_000


def _settings_of(admin: AdminClient, kind: ResourceType, name: str) -> Mapping[str, int]:
    """The settings that are whole numbers; none where they are not told."""
    asked = ConfigResource(kind, name)
    try:
        answer = admin.describe_configs([asked], request_timeout=SECONDS)[asked].result()
    except KafkaException:
        return {}
    return {
        name: int(entry.value)
        for name, entry in answer.items()
        if entry.value is not None and entry.value.lstrip("-").isdigit()
    }
