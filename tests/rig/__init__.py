"""A real Kafka for tests, benchmarks and chaos runs; no pytest in here."""
