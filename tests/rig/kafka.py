"""KafkaCluster: one or three real brokers on loopback, for tests, benchmarks and chaos runs.

    with KafkaCluster() as kafka:
        kafka.create_topic("orders", partitions=4)
        kafka.node(1).kill()
        kafka.node(1).restart()

The brokers come from Maven Central and run on this machine's Java, or, where that is missing,
from the image apache/kafka in Docker. Whatever becomes of this process, no broker and no data
outlive it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.rig import docker
from tests.rig.distribution import Distribution, obtain
from tests.rig.errors import NoKafka
from tests.rig.guardian import Guardian
from tests.rig.nodes import JavaNode, Node
from tests.rig.operations import KafkaOperations
from tests.rig.ports import free_ports
from tests.rig.properties import Entrance, Properties, node

WAYS = (
    "a real Kafka is needed, by one of three ways: "
    "(1) Java 17+ and Maven on this machine (Debian: apt-get install default-jre-headless maven), "
    "(2) a running Docker, "
    "(3) KAFKA_BOOTSTRAP_SERVERS=host:port of a broker that tests may use"
)


class KafkaCluster(KafkaOperations):
    """A cluster of its own. Without a `with`, call start and stop."""

    def __init__(
        self,
        nodes: int = 1,
        *,
        config: Properties | None = None,
        directory: Path | None = None,
        entrance: Entrance | None = None,
    ) -> None:
        """config: broker properties on top of the rig's own; directory: an empty one for the data.

        entrance: of the only node, where it runs on this machine's Java.
        """
        assert entrance is None or nodes == 1
        self.nodes: tuple[Node, ...] = ()
        self._size = nodes
        self._config: Mapping[str, str | int] = dict(config or {})
        self._data_in = directory
        self._entrance = entrance
        self._guardian: Guardian | None = None
        super().__init__("")

    def node(self, node_id: int) -> Node:
        """Nodes are numbered from 1."""
        return self.nodes[node_id - 1]

    def start(self) -> Self:
        """Start all nodes and return when every one answers. Raises NoKafka or BrokerFailed."""
        assert not self.nodes
        distribution = _distribution_unless_docker()
        self._guardian = Guardian()
        directory = self._data_in or Path(tempfile.mkdtemp(prefix="sidecar-kafka-"))
        self._cleaning = f"rm -rf {directory} || {{ sleep 1; rm -rf {directory}; }}"
        try:
            self._entrust()
            self.nodes = self._make_nodes(distribution, directory)
            self.bootstrap_servers = ",".join(each.address for each in self.nodes)
            for each in self.nodes:
                each.launch()
            for each in self.nodes:
                each.wait_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Kill what runs, remove the data."""
        self.close_clients()
        for each in self.nodes:
            each.kill()
        if self._guardian is not None:
            self._guardian.close()
            self._guardian = None
        self.nodes = ()

    def heal(self) -> None:
        """Resume and start again whatever is paused or dead."""
        for each in self.nodes:
            if each.paused:
                each.resume()
        down = [each for each in self.nodes if not each.running]
        for each in down:
            each.launch()
        for each in self.nodes:
            each.wait_ready()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def _entrust(self) -> None:
        """Tell the guardian what there is to clear up by now."""
        if self._guardian is not None:
            burials = [each.burial for each in self.nodes]
            self._guardian.tell("; ".join([*burials, self._cleaning]))

    def _make_nodes(self, distribution: Distribution | None, directory: Path) -> tuple[Node, ...]:
        if distribution is None:
            assert self._data_in is None, "needs a Java of this machine"
            assert self._entrance is None, "needs a Java of this machine"
            return docker.make_nodes(self._size, self._config, self._entrust)
        ports = free_ports(2 * self._size)
        more = self._config
        if self._entrance is not None:
            more = {**more, **self._entrance.properties(ports[0], ports[1])}
        controllers = {each + 1: ports[self._size + each] for each in range(self._size)}
        return tuple(
            JavaNode(
                node_id,
                ports[node_id - 1],
                {
                    **node(node_id, ports[node_id - 1], controllers, directory / f"{node_id}/data"),
                    **more,
                },
                directory / str(node_id),
                distribution,
                self._entrust,
            )
            for node_id in controllers
        )


def _distribution_unless_docker() -> Distribution | None:
    """What a JVM needs, or None where Docker must do. Raises NoKafka where there is neither."""
    try:
        return obtain()
    except NoKafka as missing:
        if docker.available():
            return None
        raise NoKafka(f"{missing}, no running Docker; {WAYS}") from missing
