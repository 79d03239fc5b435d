"""The broker's jars, fetched once with Maven and kept in a cache keyed on pom.xml.

A finished cache entry is never changed, and appears by one rename: processes that start at the
same time wait for the one that holds the lock. Besides the jars an entry holds what makes a
start quick: a formatted, empty log directory, and an archive of the broker's loaded classes
(measured: 1.7 s instead of 3.0 s until the port is open, and 1.3 s of formatting saved).
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.rig.errors import BrokerFailed, NoKafka
from tests.rig.ports import accepts, free_ports
from tests.rig.properties import one_node, write_properties
from tests.rig.waiting import eventually

HERE = Path(__file__).parent
POM = HERE / "pom.xml"
LEAST_JAVA = 17
COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
JVM_OPTIONS = ("-Xms128m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


@dataclass(frozen=True)
class Distribution:
    """One cache entry."""

    root: Path

    @property
    def formatted(self) -> Path:
        """An empty log directory of node 1, to be copied."""
        return self.root / "formatted"

    def java(self, *arguments: str, options: Sequence[str] = ("-Xshare:auto",)) -> list[str]:
        """The command line that runs a class of the distribution."""
        classpath = os.pathsep.join(str(jar) for jar in sorted((self.root / "jars").glob("*.jar")))
        logging = f"-Dlog4j2.configurationFile={HERE / 'log4j2.properties'}"
        return ["java", *JVM_OPTIONS, *options, logging, "-cp", classpath, *arguments]

    @property
    def classes(self) -> Path:
        return self.root / "classes.jsa"

    def broker(self, properties: Path) -> list[str]:
        options = ["-Xshare:auto"]
        if self.classes.exists():
            # Should it not fit any more the JVM ignores it, which is nothing to warn about.
            options += [f"-XX:SharedArchiveFile={self.classes}", "-Xlog:cds=off"]
        return self.java("kafka.Kafka", str(properties), options=options)


def java_version() -> int | None:
    """The major version of the machine's Java, or None without one."""
    if shutil.which("java") is None:
        return None
    said = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False)
    found = re.search(r'version "(\d+)', said.stderr)
    return int(found[1]) if found else None


def cache_root() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(home) / "kafka-dispatch-sidecar"


def obtain() -> Distribution:
    """The distribution, from the cache or from Maven Central. Raises NoKafka if neither can."""
    version = java_version()
    if version is None or version < LEAST_JAVA:
        raise NoKafka(f"no Java {LEAST_JAVA} or newer")
    key = hashlib.sha256(POM.read_bytes()).hexdigest()[:12]
    root = cache_root()
    entry = root / f"kafka-{key}-java{version}"
    with exclusive(root / f"{entry.name}.lock"):
        if not entry.is_dir():
            _build(entry)
    return Distribution(entry)


def _build(entry: Path) -> None:
    if shutil.which("mvn") is None:
        raise NoKafka("no Maven (mvn) to fetch Kafka's jars with")
    sys.stderr.write("fetching Apache Kafka from Maven Central, once (43 MB)\n")
    draft = Path(tempfile.mkdtemp(prefix=f"{entry.name}.", dir=entry.parent))
    try:
        to = f"-DoutputDirectory={draft / 'jars'}"
        try:
            _run(["mvn", "-B", "-ntp", "-q", "-f", str(POM), COPY, "-DincludeScope=runtime", to])
        except BrokerFailed as error:
            raise NoKafka(f"Kafka's jars could not be fetched: {error}") from error
        _format(Distribution(draft))
        # The archive remembers the classpath it was made with: rename first, archive then.
        draft.rename(entry)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    _archive_classes(Distribution(entry))


def _format(distribution: Distribution) -> None:
    (broker, controller) = free_ports(2)
    with tempfile.TemporaryDirectory() as scratch:
        properties = Path(scratch) / "server.properties"
        write_properties(properties, one_node(broker, controller, distribution.formatted))
        tool = distribution.java("kafka.tools.StorageTool", "format")
        _run([*tool, "--cluster-id", CLUSTER_ID, "--config", str(properties)])


def _archive_classes(distribution: Distribution) -> None:
    """Run a broker once, and have the JVM dump its classes at exit. Only an optimisation."""
    (broker, controller) = free_ports(2)
    with tempfile.TemporaryDirectory() as scratch:
        data = Path(scratch) / "data"
        shutil.copytree(distribution.formatted, data)
        properties = Path(scratch) / "server.properties"
        write_properties(properties, one_node(broker, controller, data))
        dump = Path(scratch) / "classes.jsa"
        command = distribution.java(
            "kafka.Kafka", str(properties), options=(f"-XX:ArchiveClassesAtExit={dump}",)
        )
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            eventually(lambda: accepts(broker) or process.poll() is not None, "a broker", within=60)
            process.terminate()
            process.wait(60)
            shutil.move(dump, distribution.classes)
        finally:
            process.kill()
            process.wait()


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    if done.returncode != 0:
        last = "\n".join((done.stdout + done.stderr).strip().splitlines()[-15:])
        raise BrokerFailed(f"{command[0]} ended with {done.returncode}:\n{last}")


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """For one process at a time, by a lock on this file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
