"""The configuration: one frozen tree, and the way to it.

tree: what can be set; route: of it, what one route is told; fields: the kinds of values;
kafka_schema: those of Kafka, for editors; checks: what must agree; sources: flags, environment,
file; problems: errors in the operator's words; loading: all of it together; elsewhere: the same
for a configuration that will run in another place.
"""

from __future__ import annotations

from sidecar.core.kafka_rules import OffsetReset
from sidecar.settings.checks import CLOSE_SECONDS
from sidecar.settings.contract import (
    AuthSettings,
    BatchSettings,
    CloudEventsSettings,
    TlsSettings,
)
from sidecar.settings.elsewhere import settings_elsewhere
from sidecar.settings.failures import DeadLetterSettings, RetrySettings, RetryTopicSettings
from sidecar.settings.loading import json_schema, load_settings
from sidecar.settings.route import RouteSettings
from sidecar.settings.secrets import Secret
from sidecar.settings.tree import AdminSettings, AppSettings, LogSettings, Settings

__all__ = [
    "CLOSE_SECONDS",
    "AdminSettings",
    "AppSettings",
    "AuthSettings",
    "BatchSettings",
    "CloudEventsSettings",
    "DeadLetterSettings",
    "LogSettings",
    "OffsetReset",
    "RetrySettings",
    "RetryTopicSettings",
    "RouteSettings",
    "Secret",
    "Settings",
    "TlsSettings",
    "json_schema",
    "load_settings",
    "settings_elsewhere",
]
