"""The engine on the event loop: plain callbacks, no task and no thread of its own.

One route is one vertical: executors take records from its buffer, the delivery port carries
them to the application, and what comes back is settled, delayed or parked.
"""
