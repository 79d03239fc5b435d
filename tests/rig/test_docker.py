"""What the rig asks of Docker, told by a stand-in that writes down its arguments."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.rig import docker
from tests.rig.errors import BrokerFailed
from tests.rig.nodes import Node

_SAYS_YES = 'echo "$@" >>"$0.log"; [ "$1" = inspect ] && echo true; exit 0'
_SAYS_NO = 'echo "no space left" >&2; exit 1'


def _install(directory: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    command = directory / "docker"
    command.write_text(f"#!/bin/sh\n{script}\n")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{directory}{os.pathsep}{os.environ['PATH']}")
    return directory / "docker.log"


def _nodes(size: int) -> tuple[Node, ...]:
    return docker.make_nodes(size, {"min.insync.replicas": 1}, lambda: None)


def test_a_node_publishes_its_port_and_keeps_its_container_over_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = _install(tmp_path, _SAYS_YES, monkeypatch)
    (node,) = _nodes(1)
    states = [node.running]
    node.launch()
    states.append(node.running)
    node.kill()
    node.launch()
    assert states == [False, True]
    network, run, _running, kill, wait, start = log.read_text().splitlines()
    name = f"{network.split()[-1]}-1"
    assert run.startswith(f"run -d --name {name} --network {network.split()[-1]}")
    assert f"-p 127.0.0.1:{node.port}:{node.port} " in run
    assert f"PLAINTEXT://127.0.0.1:{node.port},INTERNAL://{name}:" in run
    assert "-e KAFKA_MIN_INSYNC_REPLICAS=1 " in run
    assert run.endswith(docker.IMAGE)
    assert (kill, wait, start) == (f"kill --signal SIGKILL {name}", f"wait {name}", f"start {name}")
    assert node.burial.startswith(f"docker rm -f -v {name};")


def test_three_nodes_know_each_other_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = _install(tmp_path, _SAYS_YES, monkeypatch)
    nodes = _nodes(3)
    for node in nodes:
        node.launch()
    runs = [line for line in log.read_text().splitlines() if line.startswith("run ")]
    names = [line.split()[3] for line in runs]
    voters = ",".join(f"{n}@{name}:19093" for n, name in enumerate(names, 1))
    assert len(set(names)) == 3
    assert all(f"KAFKA_CONTROLLER_QUORUM_VOTERS={voters} " in line for line in runs)
    assert len({node.port for node in nodes}) == 3


def test_a_refusal_is_told_in_the_words_of_docker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _install(tmp_path, _SAYS_NO, monkeypatch)
    with pytest.raises(BrokerFailed, match="docker run: no space left"):
        _nodes(1)[0].launch()
