"""The demo: the sidecar beside a one-at-a-time consumer, on the same partition.

app: the toy application (a process of its own); one_at_a_time: the consumer to compare with;
figures: what both have achieved, and how it is shown; stage: all of it together.
"""
