"""Adversaries for the real sidecar on a real Kafka: it is killed, joined, left, cut off.

    python -m tests.chaos --help

Each scenario produces numbered records, lets a recording application see them, breaks something,
and judges: lost, repeated, out of budget, stuck, parked. `adversaries` harm processes, brokers,
network, disk and clock in rounds of some seconds, and all have one judge, in `turmoil`; `scenarios`
is about processes that end, `failures` about records and applications that fail, `retries` about
what comes back.
"""
