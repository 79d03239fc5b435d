"""What is kept in corpus/: a file an input; true ones, and those that found faults."""

from __future__ import annotations

from pathlib import Path
from typing import Final

_DIRECTORY: Final = Path(__file__).parent / "corpus"


def kept(kind: str) -> dict[str, bytes]:
    """The inputs of a kind, by the names of their files."""
    files = sorted((_DIRECTORY / kind).iterdir())
    return {file.name: file.read_bytes() for file in files}
