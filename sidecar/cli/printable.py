"""Text for a terminal: nothing that others wrote may move the cursor, colour it or begin a line."""

from __future__ import annotations


def printable(text: str) -> str:
    """One line; what cannot be printed as it is written as in Python: \\x1b."""
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)
