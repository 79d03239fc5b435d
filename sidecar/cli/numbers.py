"""Numbers on the command line: for the type of add_argument."""

from __future__ import annotations

from argparse import ArgumentTypeError


def whole_number(text: str) -> int:
    """Above 0."""
    if not text.isascii() or not text.isdigit() or int(text) == 0:
        raise ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def positive_number(text: str) -> float:
    """Above 0, and finite."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise ArgumentTypeError(f"{text!r} is not a number above 0")
    return number


def seconds(text: str) -> float:
    """Above 0, and less than a day."""
    number = positive_number(text)
    if number >= 86_400:
        raise ArgumentTypeError(f"{text!r} is a day or more, in seconds")
    return number
