"""Fuzzing of what reads an application's answers: python -m tests.fuzz."""
