"""What KEDA is told to look at, so that nothing waits where no pod is."""

from __future__ import annotations

from typing import Any, Final

import pytest

from sidecar.settings import load_settings
from tests.chart.values import EVERYTHING, LEAST, Values, changed
from tests.rig.helm import Refused, render

pytestmark = pytest.mark.usefixtures("with_helm")
ROUTE: Final = "sidecar/config/routes/0"
RETRIES: Final[Values] = {
    "keda/enabled": True,
    f"{ROUTE}/dead_letter": {"topic": "orders.dlq"},
    f"{ROUTE}/retry": {"topics": [{"delay_seconds": 60}, {"delay_seconds": 1.5, "topic": "mine"}]},
}


def lag_triggers(changes: Values) -> list[dict[str, str]]:
    triggers = render(changed(changes)).of("ScaledObject")["spec"]["triggers"]
    return [each["metadata"] for each in triggers if each["type"] == "kafka"]


def test_keda_scales_by_lag_and_backlog_from_zero() -> None:
    """K8S-7. By what is not settled, not by offsets that nobody committed."""
    spec = render(EVERYTHING).of("ScaledObject")["spec"]
    lag, backlog = spec["triggers"]
    assert spec["minReplicaCount"] == 0
    assert spec["scaleTargetRef"]["name"] == "orders-kafka-dispatch-sidecar"
    assert lag["metadata"]["consumerGroup"] == "billing"
    assert lag["metadata"]["lagThreshold"] == "1000"
    assert "kafka_sidecar_backlog_records" in backlog["metadata"]["query"]


def test_what_waits_in_a_retry_topic_starts_a_pod_and_no_second() -> None:
    """K8S-7. Redrives too: they are written to the first. One record is enough; most is not due."""
    changes = {**RETRIES, "keda/lag": {"threshold": 50, "activationThreshold": 10}}
    own, *waiting = lag_triggers({**changes, "sidecar/config/kafka/auto.offset.reset": "LATEST"})
    assert (own["topic"], own["lagThreshold"]) == ("orders", "50")
    assert (own["activationLagThreshold"], own["offsetResetPolicy"]) == ("10", "latest")
    names = ["orders.billing.retry.0s", "orders.billing.retry.60s", "mine"]
    assert [each["topic"] for each in waiting] == names
    for each in waiting:
        assert each["consumerGroup"] == "billing"
        assert each["activationLagThreshold"] == "0"
        assert int(each["lagThreshold"]) >= 1_000_000_000
        assert each["offsetResetPolicy"] == "earliest"  # as the sidecar begins there


def test_where_a_pod_is_always_there_nothing_has_to_start_it() -> None:
    assert [each["topic"] for each in lag_triggers({**RETRIES, "keda/minReplicas": 1})] == [
        "orders"
    ]


def test_at_most_once_has_nothing_that_waits() -> None:
    once = {f"{ROUTE}/guarantee": "at_most_once", f"{ROUTE}/loss_budget": 10}
    parks = {f"{ROUTE}/dead_letter": {"topic": "orders.dlq"}, "keda/enabled": True}
    assert [each["topic"] for each in lag_triggers({**once, **parks})] == ["orders"]


def test_retry_topics_are_called_what_the_sidecar_calls_them() -> None:
    """Whatever group, name and delay: what is not legal in a topic's name, and what is too long."""
    delays = (0.5, 1.5, 60, 3600, 86_400, 604_800, 123_456.7, 100_000, 0.00001)
    tiers = [{"delay_seconds": delay} for delay in delays]
    routes: list[dict[str, Any]] = [
        {"topics": ["orders"]},
        {"topics": ["b"], "group_id": "grüße an/alle"},
        {"topics": ["c" * 249], "group_id": "g" * 200},
        {"topics": ["d"], "name": "own"},
        {"pattern": r"^orders\..*-(a|b)$"},
        {"pattern": "^.*", "group_id": "all"},
    ]
    for route in routes:
        route |= {"target": "http://127.0.0.1:8080/", "retry": {"topics": tiers}}
    config = {"kafka": LEAST["sidecar"]["config"]["kafka"], "routes": routes}
    settings = load_settings(None, {}, config)
    expected = {
        (settings.group_of(route), topic.name)
        for route in settings.routes
        for topic in settings.retry_topics(route)
    }
    found = {
        (each["consumerGroup"], each["topic"])
        for each in lag_triggers({"keda/enabled": True, "sidecar/config/routes": routes})
        if "topic" in each and each["topic"] not in ("orders", "b", "c" * 249, "d")
    }
    assert len(expected) == len(routes) * (len(delays) + 1)
    assert found == expected


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (
            {"keda": {"enabled": True, "lag": {"enabled": False}, "backlog": {"enabled": True,
             "serverAddress": "http://p"}}},
            "keda.minReplicas is 0 and keda.lag is off: nothing would start the first pod",
        ),
        (
            {"keda/enabled": True, "sidecar/config/kafka/bootstrap.servers": {"env": "BROKERS"}},
            "bootstrap.servers is read by the pod alone, and keda.lag needs it",
        ),
        (
            {"keda/enabled": True, "sidecar/config/kafka/group.id": {"env": "GROUP"}},
            "group.id is read by the pod alone, and keda.lag needs it",
        ),
    ],
)  # fmt: skip
def test_what_would_never_start_a_pod_is_refused(changes: Values, told: str) -> None:
    with pytest.raises(Refused) as refused:
        render(changed(changes))
    assert told in str(refused.value)


def test_a_group_that_is_a_number_is_written_as_the_sidecar_reads_it() -> None:
    triggers = lag_triggers({**RETRIES, "sidecar/config/kafka/group.id": 1234567})
    assert {each["consumerGroup"] for each in triggers} == {"1234567"}
    assert triggers[1]["topic"] == "orders.1234567.retry.0s"
