"""The image, built and run by Docker where it answers, else by buildah and podman.

Without a registry at hand the base is a stand-in: Debian's own Python, put together by mmdebstrap
and kept by buildah under the name below. SIDECAR_IMAGE_BASE names another base.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from tests.rig import docker

ROOT: Final = Path(__file__).parents[2]
STAND_IN: Final = "localhost/sidecar-stand-in:bookworm"
PACKAGES: Final = "python3,python3-venv,ca-certificates"
MIRROR: Final = "http://deb.debian.org/debian"
CERTIFICATES: Final = "/etc/ssl/certs"
BUILD_SECONDS: Final = 900
# As under a kubelet that enforces the restricted pod security standard.
RESTRICTED: Final = (
    *("--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"),
    *("--memory", "256m", "--network", "host"),
)
_LIMITS: Final = '[containers]\ndefault_ulimits = ["nofile=1024:20000", "nproc=4096:4096"]\n'


class NoImages(Exception):
    """Nothing on this machine can build and run an image."""


@dataclass(frozen=True)
class Engine:
    """The commands that build and run; the rest of the arguments is the same for both."""

    build: tuple[str, ...]
    run: tuple[str, ...]

    @cached_property
    def _environment(self) -> dict[str, str]:
        limits = Path(tempfile.gettempdir()) / f"sidecar-containers-{os.getuid()}.conf"
        limits.write_text(_LIMITS, encoding="utf-8")
        return {**os.environ, "CONTAINERS_CONF": str(limits)}

    def command(self, image: str, *arguments: str, options: Sequence[str] = ()) -> list[str]:
        return [*self.run, "run", "--rm", *RESTRICTED, *options, image, *arguments]

    def start(
        self, image: str, *arguments: str, options: Sequence[str] = ()
    ) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command(image, *arguments, options=options),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self._environment,
        )

    def ended(
        self, image: str, *arguments: str, options: Sequence[str] = ()
    ) -> subprocess.CompletedProcess[str]:
        return self._run(self.command(image, *arguments, options=options), 60)

    def done(self, arguments: Sequence[str], within: float) -> subprocess.CompletedProcess[str]:
        """A command of the engine, however it ends. Raises TimeoutExpired."""
        return self._run([*self.run, *arguments], within)

    def do(self, *arguments: str) -> str:
        done = self.done(arguments, 60)
        assert done.returncode == 0, f"{' '.join(arguments)}:\n{done.stderr[-2000:]}"
        return done.stdout.strip()

    def ask(self, *arguments: str) -> str:
        return self.done(arguments, 60).stdout.strip()

    def _run(self, command: Sequence[str], within: float) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            timeout=within,
            env=self._environment,
        )


def engine() -> Engine:
    """Raises NoImages."""
    if docker.available():
        return Engine(("docker", "build", "--network", "host"), ("docker",))
    if not all(map(shutil.which, ("buildah", "podman", "mmdebstrap", "runc"))) or os.geteuid():
        raise NoImages("no Docker; nor, as root, buildah with podman, mmdebstrap and runc")
    build = ("buildah", "bud", "--isolation", "chroot", "--network", "host", "--timestamp", "0")
    own = ("--pull-never", "--volume", f"{CERTIFICATES}:{CERTIFICATES}:ro")
    podman = ("podman", "--runtime", "runc", "--cgroup-manager", "cgroupfs")
    return Engine((*build, *own), (*podman, "--events-backend", "file"))


def build(made: Engine, tag: str, *options: str) -> None:
    base = os.environ.get("SIDECAR_IMAGE_BASE")
    if base is None and made.run[0] == "podman":
        base = STAND_IN
        if not made.ask("images", "-q", STAND_IN):
            _make_stand_in()
    chosen = () if base is None else ("--build-arg", f"PYTHON_IMAGE={base}")
    _do(*made.build, *chosen, *options, "-t", tag, str(ROOT))


def _make_stand_in() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        archive = f"{scratch}/base.tar"
        packages = f"--include={PACKAGES}"
        _do("mmdebstrap", "-q", "--variant=minbase", packages, "bookworm", archive, MIRROR)
        container = _do("buildah", "from", "scratch")
        _do("buildah", "add", "-q", container, archive, "/")
        _do("buildah", "commit", "-q", "--rm", container, STAND_IN)


def _do(*command: str) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=BUILD_SECONDS
    )
    assert done.returncode == 0, f"{' '.join(command)}:\n{done.stderr[-4000:]}"
    return done.stdout.strip()
