"""Fuzzing of whatever others write and the sidecar reads: python -m tests.fuzz."""
