"""A pod of real containers, as the chart renders it: what its spec restricts is restricted.

With podman its containers are in a pod of podman; Docker has none, and there they only share what
this pod shares: the network of this machine, where the broker is as well. The ports of a pod's
values have to be free ones.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

from tests.rig.images import Engine
from tests.rig.kubelet import Pod, Spec
from tests.rig.pods import Volumes

_UNITS: Final = {"Mi": "m", "Gi": "g", "Ki": "k"}


class ImageContainer:
    """A container of the engine."""

    def __init__(self, engine: Engine, name: str, options: Sequence[str], command: Sequence[str]):
        self.name = name
        self._engine = engine
        engine.do("run", "-d", "--name", name, *options, *command)

    @property
    def ended(self) -> bool:
        return not self.state["Running"]

    @property
    def state(self) -> dict[str, Any]:
        (found,) = json.loads(self._engine.ask("inspect", self.name))
        state: dict[str, Any] = found["State"]
        return state

    def execute(self, command: Sequence[str], within: float) -> bool:
        return self._engine.done(("exec", self.name, *command), within).returncode == 0

    def stop(self, grace_seconds: float) -> int:
        self._engine.done(("stop", "-t", f"{grace_seconds:.0f}", self.name), grace_seconds + 30)
        return int(self.state["ExitCode"])

    def wait(self, within: float) -> int:
        return int(self._engine.done(("wait", self.name), within).stdout)

    def kill(self) -> None:
        self._engine.do("kill", self.name)
        self.wait(30)

    def log(self) -> str:
        done = self._engine.done(("logs", self.name), 30)
        return done.stdout + done.stderr

    @property
    def peak_bytes(self) -> int:
        """The most memory its group was charged with so far, by the kernel."""
        groups = Path(f"/proc/{self.state['Pid']}/cgroup").read_text(encoding="ascii")
        for line in groups.splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers == "memory":
                at = Path(f"/sys/fs/cgroup/memory{path}/memory.max_usage_in_bytes")
                return int(at.read_text(encoding="ascii"))
        _, _, path = groups.splitlines()[-1].split(":", 2)
        return int(Path(f"/sys/fs/cgroup{path}/memory.peak").read_text(encoding="ascii"))


class ImagePod(Pod):
    """config_maps: by name."""

    def __init__(
        self, spec: Spec, config_maps: Mapping[str, Mapping[str, str]], engine: Engine
    ) -> None:
        self.containers: Final[dict[str, ImageContainer]] = {}
        self._engine = engine
        self._name = f"pod-{uuid.uuid4().hex[:8]}"
        self._volumes = Volumes(spec, config_maps)
        self._made: list[ImageContainer] = []
        super().__init__(spec)

    def _started(self, spec: Spec) -> ImageContainer:
        name = f"{self._name}-{spec['name']}-{len(self._made)}"
        context, limits = spec["securityContext"], spec.get("resources", {}).get("limits", {})
        options = ["--pod", self._name] if self._has_pods else ["--network", "host"]
        if "runAsUser" in context:
            options += ["--user", f"{context['runAsUser']}:{context['runAsGroup']}"]
        if context.get("readOnlyRootFilesystem"):
            options += ["--read-only"]
            options += [] if not self._has_pods else ["--read-only-tmpfs=false"]
        if not context["allowPrivilegeEscalation"]:
            options += ["--security-opt", "no-new-privileges"]
        for capability in context["capabilities"]["drop"]:
            options += ["--cap-drop", capability]
        if "memory" in limits:
            size = limits["memory"][:-2] + _UNITS[limits["memory"][-2:]]
            options += ["--memory", size, "--memory-swap", size]
        for variable in spec.get("env", ()):
            options += ["--env", f"{variable['name']}={variable['value']}"]
        for path, directory in self._volumes.of(spec).items():
            options += ["--volume", f"{directory}:{path}"]
        entrypoint = spec.get("command", ())[:1]
        options += ["--entrypoint", *entrypoint] if entrypoint else []
        command = [spec["image"], *spec.get("command", ())[1:], *spec.get("args", ())]
        found = ImageContainer(self._engine, name, options, command)
        self._made.append(found)
        self.containers[spec["name"]] = found
        return found

    @property
    def _has_pods(self) -> bool:
        return self._engine.run[0] == "podman"

    def asked(self, name: str, *command: str) -> str:
        """What a command prints that is run in a container."""
        return self._engine.do("exec", self.containers[name].name, *command)

    def said(self, name: str) -> str:
        return self.containers[name].log()

    def __enter__(self) -> Self:
        if self._has_pods:
            # What keeps the pod's namespaces is not installed everywhere; any image can.
            image = self._others[0]["image"]
            infra = ("--infra-image", image, "--infra-command", "sleep infinity")
            self._engine.do("pod", "create", "--name", self._name, "--network", "host", *infra)
        return self

    def close(self) -> None:
        for each in self._made:
            self._engine.done(("rm", "-f", "-v", each.name), 60)
        if self._has_pods:
            self._engine.done(("pod", "rm", "-f", "-t", "0", self._name), 60)
        self._volumes.close()
