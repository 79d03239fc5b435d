"""A sidecar HTTP dispatch proxy for Kafka consumers in Kubernetes."""

__version__ = "0.1.0"
