"""Values to render the chart with: the least there is, everything at once, and paths into both."""

from __future__ import annotations

import copy
from typing import Any, Final

Values = dict[str, Any]

# Values that are one object of Kubernetes, with defaults.
WHOLE: Final = (
    "podSecurityContext",
    "app.securityContext",
    "sidecar.securityContext",
    "sidecar.resources",
)

LEAST: Final[Values] = {
    "app": {
        "image": {"repository": "shop/orders", "tag": "1.2"},
        "ports": [{"name": "http", "containerPort": 8080}],
    },
    "sidecar": {
        "config": {
            "kafka": {"bootstrap.servers": "kafka:9092", "group.id": "billing"},
            "routes": [{"topics": ["orders"], "target": "http://127.0.0.1:8080/events/{topic}"}],
        }
    },
}


def changed(changes: Values) -> Values:
    """The least values with others at paths; a number in a path leads into a list."""
    return put(LEAST, changes)


def put(into: Values, changes: Values) -> Values:
    values = copy.deepcopy(into)
    for path, value in changes.items():
        node: Any = values
        *way, last = [int(part) if part.isdigit() else part for part in path.split("/")]
        for part in way:
            node = node[part] if isinstance(part, int) else node.setdefault(part, {})
        node[last] = value
    return values


EVERYTHING: Final = changed(
    {
        "replicaCount": 3,
        "podLabels": {"team": "shop"},
        "podAnnotations": {"note": "1"},
        "imagePullSecrets": [{"name": "registry"}],
        "sidecar/secretMounts": [{"name": "kafka", "secretName": "kafka-credentials"}],
        "sidecar/adminToken": {"secretName": "sidecar-token"},
        "sidecar/env": [{"name": "REGION", "value": "eu"}],
        "sidecar/config/kafka/security.protocol": "SASL_SSL",
        "sidecar/config/kafka/sasl.password": {"file": "/run/secrets/kafka/password"},
        "sidecar/config/drain_seconds": 30.5,
        "podDisruptionBudget/enabled": True,
        "networkPolicy": {
            "enabled": True,
            "adminFrom": [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}],
            "egress": [{"ports": [{"port": 9092, "protocol": "TCP"}]}],
        },
        "podMonitor/enabled": True,
        "keda": {
            "enabled": True,
            "backlog": {"enabled": True, "serverAddress": "http://prometheus:9090"},
        },
    }
)
