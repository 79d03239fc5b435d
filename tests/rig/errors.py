"""What can go wrong with the rig itself."""

from __future__ import annotations


class NoKafka(Exception):
    """This machine offers none of the ways to a broker; the message names them."""


class BrokerFailed(Exception):
    """A broker process ended or did not come up; the message carries its last log lines."""
