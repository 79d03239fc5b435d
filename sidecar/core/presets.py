"""Applications written for another system: whose rules they know, and what they are sent."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final


class Preset(Enum):
    """Whose rules the application was written for."""

    DEFAULT = "default"
    DAPR = "dapr"
    KNATIVE = "knative"
    PUBSUB = "pubsub"
    LAMBDA = "lambda"


class Encoding(Enum):
    """What a record looks like in a request."""

    RAW = "raw"
    CLOUDEVENTS = "cloudevents"
    PUBSUB = "pubsub"
    LAMBDA = "lambda"


ENCODINGS: Final[Mapping[Preset, tuple[Encoding, ...]]] = {
    Preset.DEFAULT: (Encoding.RAW, Encoding.CLOUDEVENTS),
    Preset.DAPR: (Encoding.CLOUDEVENTS, Encoding.RAW),
    Preset.KNATIVE: (Encoding.CLOUDEVENTS,),
    Preset.PUBSUB: (Encoding.PUBSUB, Encoding.RAW),
    Preset.LAMBDA: (Encoding.LAMBDA,),
}  # the first is the preset's own

# What the sidecar gives every event.
OWN_ATTRIBUTES: Final = frozenset(
    ("specversion", "id", "source", "type", "time", "datacontenttype", "data", "partitionkey")
)
# What every event of a batch is told by, in place of the head of a request of its own.
BATCH_ATTRIBUTES: Final = frozenset(
    (
        "idempotencykey",
        "kafkaheaders",
        "kafkakey",
        "kafkaoffset",
        "kafkapartition",
        "kafkatimestamp",
        "kafkatombstone",
        "kafkatopic",
        "sidecarattempt",
    )
)
