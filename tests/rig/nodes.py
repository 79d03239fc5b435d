"""One broker process and what can be done to it: a JVM of this machine, or a Docker container."""

from __future__ import annotations

import shutil
import signal
import subprocess
import uuid
from abc import ABC, abstractmethod
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.rig.distribution import CLUSTER_ID, Distribution
from tests.rig.errors import BrokerFailed
from tests.rig.ports import accepts
from tests.rig.properties import Properties, write_properties
from tests.rig.waiting import eventually

START_SECONDS = 90.0
STOP_SECONDS = 30.0


class Node(ABC):
    """A node of a cluster. Port and data stay the same over kill and restart."""

    def __init__(self, node_id: int, port: int) -> None:
        self.id = node_id
        self.port = port
        self.paused = False

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    @abstractmethod
    def running(self) -> bool:
        """True while the process exists, paused or not."""

    @property
    @abstractmethod
    def last_words(self) -> str:
        """The end of its log."""

    @property
    @abstractmethod
    def burial(self) -> str:
        """The command line that removes the process, whatever state it is in."""

    @abstractmethod
    def launch(self) -> None:
        """Start the process; does not wait for it to answer."""

    @abstractmethod
    def kill(self) -> None:
        """SIGKILL: no flush, no goodbye. Returns when the process is gone."""

    @abstractmethod
    def terminate(self) -> None:
        """SIGTERM: hand leadership over and shut down cleanly. Returns when it is gone."""

    def pause(self) -> None:
        """SIGSTOP: connections stay open, nothing answers."""
        self._signal(signal.SIGSTOP)
        self.paused = True

    def resume(self) -> None:
        self._signal(signal.SIGCONT)
        self.paused = False

    @abstractmethod
    def _signal(self, number: signal.Signals) -> None: ...

    def restart(self) -> None:
        """Start it again on its port and data, after a clean stop if it runs, and wait for it."""
        if self.running:
            self.terminate()
        self.launch()
        self.wait_ready()

    def wait_ready(self) -> None:
        """Until the node answers, and leads or follows what it holds."""
        eventually(self._listens, f"node {self.id} listens", within=START_SECONDS, every=0.02)
        admin = AdminClient({"bootstrap.servers": self.address, "log_level": 0})
        eventually(
            lambda: self._serves(admin), f"node {self.id} serves", within=START_SECONDS, every=0.02
        )

    def _listens(self) -> bool:
        if not self.running:
            raise BrokerFailed(f"node {self.id} ended:\n{self.last_words}")
        return accepts(self.port)

    def _serves(self, admin: AdminClient) -> bool:
        try:
            metadata = admin.list_topics(timeout=2.0)
        except KafkaException:
            return False
        return self.id in metadata.brokers and all(
            partition.leader >= 0 or self.id not in partition.replicas
            for topic in metadata.topics.values()
            for partition in topic.partitions.values()
        )


class JavaNode(Node):
    """A JVM, child of this process. Its files are in `directory`."""

    def __init__(
        self,
        node_id: int,
        port: int,
        properties: Properties,
        directory: Path,
        distribution: Distribution,
        launched: Callable[[], None],
    ) -> None:
        """launched is called whenever there is a new process to bury."""
        super().__init__(node_id, port)
        self._launched = launched
        self._distribution = distribution
        self._properties = properties
        self._directory = directory
        self._log = directory / "broker.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def last_words(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-25:])

    @property
    def burial(self) -> str:
        return f"kill -KILL {self._process.pid}" if self._process and self.running else ":"

    def launch(self) -> None:
        assert not self.running
        properties = self._directory / "server.properties"
        data = Path(str(self._properties["log.dirs"]))
        if not data.exists():
            self._directory.mkdir(parents=True, exist_ok=True)
            shutil.copytree(self._distribution.formatted, data)
            write_properties(data / "meta.properties", self._identity())
            write_properties(properties, self._properties)
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._distribution.broker(properties),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._directory,
                start_new_session=True,
            )
        self._launched()

    def _identity(self) -> Mapping[str, str | int]:
        directory = "-"
        while directory.startswith("-"):  # which the broker refuses
            directory = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        return {
            "version": 1,
            "cluster.id": CLUSTER_ID,
            "node.id": self.id,
            "directory.id": directory,
        }

    def kill(self) -> None:
        self._signal(signal.SIGKILL)
        self._wait()

    def terminate(self) -> None:
        self._signal(signal.SIGTERM)
        try:
            self._wait()
        except subprocess.TimeoutExpired:
            self.kill()

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)

    def _wait(self) -> None:
        if self._process is not None:
            self._process.wait(STOP_SECONDS)
        self.paused = False
