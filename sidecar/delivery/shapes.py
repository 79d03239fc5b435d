"""Which shape a route's records get."""

from __future__ import annotations

from sidecar.core.presets import Encoding, Preset
from sidecar.delivery.batches import CloudEventsBatch, LambdaBatch, RecordsBatch
from sidecar.delivery.cloudevents import CloudEventShape, Wrapping
from sidecar.delivery.envelopes import DaprShape, LambdaShape, PubSubShape
from sidecar.delivery.request import BatchShape, Shape
from sidecar.model import OnExhausted
from sidecar.settings import CloudEventsSettings, RouteSettings


def shape_of(route: RouteSettings, bootstrap_servers: str) -> Shape | None:
    """None for what needs no shape: the value itself."""
    match route.preset, route.encoding:
        case Preset.DAPR, encoding:
            wraps = encoding is Encoding.CLOUDEVENTS
            wrapping = _wrapping(route) if wraps else None
            return DaprShape(wrapping, _pubsub_name(route), route.headers)
        case Preset.KNATIVE, _:
            return CloudEventShape(_wrapping(route), unpack=True)
        case _, Encoding.CLOUDEVENTS:
            return CloudEventShape(_wrapping(route))
        case _, Encoding.PUBSUB:
            parks = route.on_exhausted is OnExhausted.PARK
            subscription = f"projects/kafka/subscriptions/{route.name}"
            return PubSubShape(subscription, tells_attempt=parks)
        case _, Encoding.LAMBDA:
            return LambdaShape(bootstrap_servers)
    return None


def batch_shape_of(route: RouteSettings, bootstrap_servers: str) -> BatchShape | None:
    """None for a route that sends each record by itself."""
    if route.batch is None:
        return None
    match route.encoding:
        case Encoding.CLOUDEVENTS:
            return CloudEventsBatch(_wrapping(route))
        case Encoding.LAMBDA:
            return LambdaBatch(bootstrap_servers)
    return RecordsBatch()


def _pubsub_name(route: RouteSettings) -> str:
    extensions = {} if route.cloudevents is None else route.cloudevents.extensions
    return extensions.get("pubsubname", route.name)


def _wrapping(route: RouteSettings) -> Wrapping:
    given = route.cloudevents or CloudEventsSettings()
    extensions = dict(given.extensions)
    source, type_ = "/kafka/{topic}", "kafka.record"
    if route.preset is Preset.DAPR:
        source, type_ = "Dapr", "com.dapr.event.sent"
        extensions["pubsubname"] = _pubsub_name(route)
    return Wrapping(
        source=given.source or source,
        type=given.type or type_,
        structured=given.mode == "structured" or route.preset is Preset.DAPR,
        content_type=route.content_type,
        extensions=extensions,
    )
