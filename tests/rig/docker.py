"""Brokers as containers of the image apache/kafka, where there is Docker and no Java.

Each node publishes one port on 127.0.0.1; among themselves the nodes talk by container name.
"""

from __future__ import annotations

import functools
import shutil
import signal
import subprocess
import uuid
from collections.abc import Callable

from tests.rig.distribution import CLUSTER_ID
from tests.rig.errors import BrokerFailed
from tests.rig.nodes import STOP_SECONDS, Node
from tests.rig.ports import free_ports
from tests.rig.properties import COMMON, Properties, replication

IMAGE = "apache/kafka:4.3.1"
_INTERNAL = 19092
_CONTROLLER = 19093


@functools.cache
def available() -> bool:
    """True if a Docker daemon answers."""
    return shutil.which("docker") is not None and _docker("info", check=False).returncode == 0


def make_nodes(size: int, config: Properties, launched: Callable[[], None]) -> tuple[Node, ...]:
    network = f"sidecar-kafka-{uuid.uuid4().hex[:8]}"
    ports = free_ports(size)
    names = {node_id: f"{network}-{node_id}" for node_id in range(1, size + 1)}
    return tuple(
        DockerNode(
            node_id,
            ports[node_id - 1],
            network,
            {**_properties(node_id, ports[node_id - 1], names), **config},
            launched,
        )
        for node_id in names
    )


def _properties(node_id: int, port: int, names: dict[int, str]) -> dict[str, str | int]:
    return {
        **COMMON,
        **replication(len(names)),
        "node.id": node_id,
        "listeners": (f"PLAINTEXT://:{port},INTERNAL://:{_INTERNAL},CONTROLLER://:{_CONTROLLER}"),
        "advertised.listeners": (
            f"PLAINTEXT://127.0.0.1:{port},INTERNAL://{names[node_id]}:{_INTERNAL}"
        ),
        "listener.security.protocol.map": (
            "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT"
        ),
        "inter.broker.listener.name": "INTERNAL",
        "controller.quorum.voters": ",".join(
            f"{each}@{name}:{_CONTROLLER}" for each, name in names.items()
        ),
    }


class DockerNode(Node):
    """A container. It is created by the first launch and started again by later ones."""

    def __init__(
        self,
        node_id: int,
        port: int,
        network: str,
        properties: Properties,
        launched: Callable[[], None],
    ) -> None:
        super().__init__(node_id, port)
        self._name = f"{network}-{node_id}"
        self._network = network
        self._properties = properties
        self._launched = launched
        self._created = False

    @property
    def running(self) -> bool:
        if not self._created:
            return False
        state = _docker("inspect", "-f", "{{.State.Running}}", self._name, check=False)
        return state.stdout.strip() == "true"

    @property
    def last_words(self) -> str:
        said = _docker("logs", "--tail", "25", self._name, check=False)
        return said.stdout + said.stderr

    @property
    def burial(self) -> str:
        # The network goes with the last of its containers; before that, it refuses.
        return f"docker rm -f -v {self._name}; docker network rm {self._network}"

    def launch(self) -> None:
        if self._created:
            _docker("start", self._name)
            return
        _docker("network", "create", self._network, check=False)  # the first of its nodes does
        self._created = True
        self._launched()
        settings = [
            argument
            for name, value in self._properties.items()
            for argument in ("-e", f"KAFKA_{name.upper().replace('.', '_')}={value}")
        ]
        _docker(
            *("run", "-d", "--name", self._name, "--network", self._network),
            *("-p", f"127.0.0.1:{self.port}:{self.port}"),
            *("-e", f"CLUSTER_ID={CLUSTER_ID}", "-e", "KAFKA_HEAP_OPTS=-Xms128m -Xmx512m"),
            *settings,
            IMAGE,
        )

    def kill(self) -> None:
        self._signal(signal.SIGKILL)
        self._wait()

    def terminate(self) -> None:
        if self._created:
            _docker("stop", "--time", str(int(STOP_SECONDS)), self._name)
            self._wait()

    def _signal(self, number: signal.Signals) -> None:
        if self._created:
            _docker("kill", "--signal", number.name, self._name, check=False)

    def _wait(self) -> None:
        if self._created:
            _docker("wait", self._name)
        self.paused = False


def _docker(*arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        ["docker", *arguments], capture_output=True, text=True, check=False, timeout=300
    )
    if check and done.returncode != 0:
        raise BrokerFailed(f"docker {arguments[0]}: {done.stderr.strip()}")
    return done
