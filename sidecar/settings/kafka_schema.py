"""The JSON schema of kafka's properties, whose rules are code: what an editor or a chart can know.

What properties say to each other, and a number's range where it is given as text, is left to the
code. A test compares both over everything that the code refuses.
"""

from __future__ import annotations

from typing import Any, Final

from sidecar.core.kafka_properties import Property
from sidecar.core.kafka_rules import settable

_REFERENCE: Final = {"$ref": "#/$defs/KafkaReference"}
_TEXT: Final = {"$ref": "#/$defs/KafkaText"}
DEFINITIONS: Final[dict[str, Any]] = {
    "KafkaReference": {
        "type": "object",
        "properties": {"file": {"type": "string"}, "env": {"type": "string"}},
        "additionalProperties": False,
        "minProperties": 1,
        "maxProperties": 1,
    },
    "KafkaText": {"anyOf": [{"type": ["string", "number", "boolean"]}, _REFERENCE]},
}
_STRATEGY: Final = "(range|roundrobin)"
_PATTERNS: Final = {
    "bootstrap.servers": "[^ ]",
    "partition.assignment.strategy": f"^(cooperative-sticky|{_STRATEGY}( *, *{_STRATEGY})*)$",
}


def kafka_schema() -> dict[str, Any]:
    return {
        "properties": {name: _property(name, known) for name, known in settable().items()},
        "additionalProperties": False,
    }


def _property(name: str, known: Property) -> dict[str, Any]:
    match known:
        case Property(low=int(low), high=int(high)):
            plain = [
                {"type": "integer", "minimum": low, "maximum": high},
                {"type": "string", "pattern": "^-?[0-9]+$"},
            ]
        case Property(choices=choices) if choices:
            spelled = [each for one in choices for each in (one, one.upper(), one.title())]
            values = {"true": [True], "false": [False]}
            texts = list(dict.fromkeys(spelled))
            plain = [{"enum": texts + [each for one in choices for each in values.get(one, ())]}]
        case _ if name in _PATTERNS:
            plain = [{"type": "string", "pattern": _PATTERNS[name]}]
        case _:
            return _TEXT
    return {"anyOf": [*plain, _REFERENCE]}
