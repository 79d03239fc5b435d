"""Kafka: the record source, the fetch thread around it, and the embedded broker."""
