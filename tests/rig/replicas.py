"""Pods of one workload: each has the recording application, and what it has seen is judged.

Whether a pod is processes or real containers is up to whoever makes it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Self

from tests.rig.journal import Journal
from tests.rig.kubelet import Pod, What
from tests.rig.operations import KafkaOperations
from tests.rig.processes import Scene, at_the_end
from tests.rig.waiting import eventually

PARTITIONS: Final = 6
RATE: Final = 300  # records a second; the app takes 30 ms for one
DELAY_MS: Final = 30


class Replica:
    """One pod, which ends with a `with`."""

    def __init__(self, pod: Pod, journal: Path) -> None:
        self.pod: Final = pod
        self._journal = Journal(journal)

    @property
    def seen(self) -> Journal:
        self._journal.refresh()
        return self._journal

    def start(self) -> Self:
        self.pod.start()
        eventually(lambda: self.pod.ready, "it is ready")
        return self


def roll(
    kafka: KafkaOperations, topic: str, group: str, scene: Scene, make: Callable[[], Replica]
) -> None:
    """Replace two pods under load, one after the other; nothing may be lost, repeated or refused.

    A new pod is ready before an old one is deleted. make makes one that is not started.
    """
    everyone: list[Replica] = []
    with ExitStack() as pods:

        def one_more() -> Replica:
            more = make()
            everyone.append(more)
            pods.enter_context(more.pod)
            return more.start()

        old = [one_more(), one_more()]
        load = scene.load(
            kafka.bootstrap_servers,
            topic,
            partitions=PARTITIONS,
            count=100_000,
            rate=RATE,
            delay_ms=DELAY_MS,
        )
        eventually(lambda: all(each.seen.arrivals for each in old), "both pods have work")
        for each in old:
            new = one_more()
            each.pod.delete()
            assert each.pod.until_ended()["sidecar"] == 0, each.pod.said("sidecar")[-3000:]
            assert each.pod.stop_seconds < each.pod.grace_seconds
            assert each.pod.at("app", What.HOOK_FAILED) == float("inf")
            eventually(lambda: new.seen.arrivals, "the new pod has work")  # noqa: B023
        load.terminate()
        confirmed = int(load.communicate(timeout=60)[0].split()[1])
        at_the_end(kafka, group, topic)
        eventually(
            lambda: sum(len(each.seen.answered) for each in everyone) >= confirmed, "all are seen"
        )
        _judge(everyone, confirmed)


def _judge(everyone: list[Replica], confirmed: int) -> None:
    arrivals: Counter[int] = Counter()
    for each in everyone:
        assert each.seen.arrivals == each.seen.answered, "a request was not answered"
        arrivals += each.seen.arrivals
        assert "held" not in each.pod.said("sidecar")
    lost = [number for number in range(confirmed) if not arrivals[number]]
    repeated = {number: count for number, count in arrivals.items() if count > 1}
    assert not lost, f"lost: {lost}"
    assert not repeated, f"repeated: {repeated}"
