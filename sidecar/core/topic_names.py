"""Names of topics: what is legal, and the nearest legal name."""

from __future__ import annotations

import hashlib
import re
from typing import Final

LONGEST: Final = 249

# In what every dialect of expressions knows: the JSON schema shows it to editors and charts.
TOPIC_PATTERN: Final = r"(\.{0,2}[A-Za-z0-9_-]|\.{3})[A-Za-z0-9._-]*"
LEGAL_TOPIC: Final = re.compile(rf"(?=.{{1,{LONGEST}}}$){TOPIC_PATTERN}")


def legal_topic(wanted: str) -> str:
    """The name with what is not legal replaced; one that is too long keeps its end and a digest."""
    name = re.sub(r"[^A-Za-z0-9._-]", "_", wanted)
    if len(name) <= LONGEST:
        return name
    digest = hashlib.sha256(wanted.encode()).hexdigest()[:12]
    return f"{digest}.{name[len(digest) + 1 - LONGEST :]}"
