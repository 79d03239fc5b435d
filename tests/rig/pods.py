"""A pod as processes of this machine: rendered objects in, containers for the kubelet out.

    with ProcessPod(render(values)) as pod:
        pod.start(); pod.delete(); pod.until_ended()

Its volumes are directories; where a mount's path stands in an argument, its directory takes the
place, and the admin socket lies in the one that is mounted at /run/sidecar. A process has this
machine's network, so the ports of a pod's values have to be free ones.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tests.rig.kubelet import Container, Pod, Spec

RUN: Final = "/run/sidecar"
# What the image has in its PATH.
PROGRAMS: Final[Mapping[str, Sequence[str]]] = {"sidecar": (sys.executable, "-m", "sidecar")}


class Volumes:
    """The volumes of a pod as directories, which end with it."""

    def __init__(self, pod: Spec, config_maps: Mapping[str, Mapping[str, str]]) -> None:
        self._home = tempfile.TemporaryDirectory(prefix="pod-")
        home = Path(self._home.name)
        home.chmod(0o755)
        self._directories: dict[str, Path] = {}
        for volume in pod.get("volumes", ()):
            if "hostPath" in volume:
                self._directories[volume["name"]] = Path(volume["hostPath"]["path"])
                continue
            directory = self._directories[volume["name"]] = home / volume["name"]
            directory.mkdir()
            directory.chmod(0o777)  # who a container runs as may write
            if "configMap" in volume:
                for name, text in config_maps[volume["configMap"]["name"]].items():
                    (directory / name).write_text(text, encoding="utf-8")

    def of(self, container: Spec) -> dict[str, Path]:
        """Directories by mount path."""
        mounts = container.get("volumeMounts", ())
        return {each["mountPath"]: self._directories[each["name"]] for each in mounts}

    def close(self) -> None:
        self._home.cleanup()


class Process:
    """A container: a process, and those that are run in it."""

    def __init__(self, spec: Spec, mounts: Mapping[str, Path], log: Path) -> None:
        self._mounts = mounts
        self._log = log
        self._environment = {**os.environ}
        for variable in spec.get("env", ()):
            self._environment[variable["name"]] = variable["value"]
        if RUN in mounts:
            self._environment["SIDECAR_ADMIN__SOCKET"] = str(mounts[RUN] / "admin.sock")
        entrypoint = spec.get("command") or [spec["name"]]
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                self._resolved([*entrypoint, *spec.get("args", ())]),
                env=self._environment,
                stdout=output,
                stderr=output,
            )

    @property
    def ended(self) -> bool:
        return self.process.poll() is not None

    def execute(self, command: Sequence[str], within: float) -> bool:
        with self._log.open("ab") as output:
            try:
                done = subprocess.run(
                    self._resolved(command),
                    env=self._environment,
                    stdout=output,
                    stderr=output,
                    check=False,
                    timeout=within,
                )
            except subprocess.TimeoutExpired:
                return False
        return done.returncode == 0

    def stop(self, grace_seconds: float) -> int:
        self.process.terminate()
        try:
            return self.process.wait(grace_seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()

    def wait(self, within: float) -> int:
        return self.process.wait(within)

    def _resolved(self, command: Sequence[str]) -> list[str]:
        found = [*PROGRAMS.get(command[0], command[:1]), *command[1:]]
        for path, directory in self._mounts.items():
            found = [word.replace(path, str(directory)) for word in found]
        return found


class ProcessPod(Pod):
    """config_maps: by name. containers: started ones that take the place of a process, by name."""

    def __init__(
        self,
        spec: Spec,
        config_maps: Mapping[str, Mapping[str, str]],
        logs: Path,
        containers: Mapping[str, Container] | None = None,
    ) -> None:
        self._volumes = Volumes(spec, config_maps)
        self._logs = logs
        self._given = containers or {}
        super().__init__(spec)

    def _started(self, spec: Spec) -> Container:
        name = spec["name"]
        if name in self._given:
            return self._given[name]
        return Process(spec, self._volumes.of(spec), self.log(name))

    def log(self, name: str) -> Path:
        return self._logs / f"{name}.log"

    def said(self, name: str) -> str:
        return self.log(name).read_text(encoding="utf-8")

    def close(self) -> None:
        self._volumes.close()


def pod_and_config_maps(
    objects: Sequence[Mapping[str, Any]], kind: str = "Deployment"
) -> tuple[Spec, dict[str, Mapping[str, str]]]:
    """The pod of the only workload of a kind, and the contents of all ConfigMaps by name."""
    (workload,) = (each for each in objects if each["kind"] == kind)
    config_maps = {
        each["metadata"]["name"]: each["data"] for each in objects if each["kind"] == "ConfigMap"
    }
    spec: Spec = workload["spec"]["template"]["spec"]
    return spec, config_maps
