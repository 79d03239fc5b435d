"""The command line: exit codes, one line per mistake, and what reaches the runtime."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest

import sidecar
from sidecar.cli import COMMANDS, main
from sidecar.errors import FatalSource
from sidecar.settings import Settings

FLAGS = [
    "--topic=orders", "--target=http://127.0.0.1:8080/", "--bootstrap-servers=127.0.0.1:9092",
    "--group=billing",
]  # fmt: skip


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No variables of the machine, and the logging put back as it was."""
    for name in list(os.environ):
        if name.startswith("SIDECAR_"):
            monkeypatch.delenv(name)
    root = logging.getLogger()
    before = (root.handlers[:], root.level)
    yield
    logging.captureWarnings(capture=False)
    root.handlers[:], level = before
    root.setLevel(level)


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[Settings]:
    """What the runtime was asked to run; it answers 0."""
    asked: list[Settings] = []

    def run(settings: Settings) -> int:
        asked.append(settings)
        return 0

    runtime = types.ModuleType("sidecar.runtime")
    runtime.run = run  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "sidecar.runtime", runtime)
    return asked


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    """The lines on standard error of a command that ends with exit code 2."""
    try:
        code = main(arguments)
    except SystemExit as stop:
        code = stop.code  # type: ignore[assignment]
    out, err = capsys.readouterr()
    assert code == 2
    assert out == ""
    return err.splitlines()


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out == f"sidecar {sidecar.__version__}\n"


def test_help_lists_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["--help"])
    assert stop.value.code == 0
    out = capsys.readouterr().out
    assert all(f"  {command} " in out for command in COMMANDS)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "sidecar: a command is missing: run, check,"),
        (("chek",), "sidecar: unknown command 'chek'; did you mean check?"),
        (("zzz",), "sidecar: unknown command 'zzz'; there are run, check,"),
        (("--json", "run"), "sidecar: options belong behind the command: sidecar run …"),
        (("run", "--grop", "g"), "sidecar run: unrecognized arguments: --grop g"),
        (("run", "--topic"), "sidecar run: argument --topic: expected one argument"),
        (("run",), "sidecar: no configuration: give -c FILE, or --bootstrap-servers, --group,"),
        (("run", "-c", "/no"), "sidecar: /no: cannot be read: No such file or directory"),
        (("check", "-c", "/no"), "sidecar: /no: cannot be read: No such file or directory"),
        (("run", *FLAGS, "--executors=x"), "sidecar: routes[0].executors: must be a whole number"),
        (("run", *FLAGS, "--guarantee=at_most_once"), "sidecar: routes[0].loss_budget: is requi"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, tuple) else "",
)
def test_a_mistake_is_one_line_and_exit_code_2(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    (line,) = refused(capsys, *arguments)
    assert line.startswith(said)


def test_every_problem_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    lines = refused(capsys, "run", "--topic=a", "--target=b", "--threshold=0")
    assert [line.split(":")[1].strip() for line in lines] == [
        "kafka.bootstrap.servers", "routes[0].target", "routes[0].threshold",
    ]  # fmt: skip


def test_flags_alone_make_a_route(ran: list[Settings]) -> None:
    assert main(["run", *FLAGS, "--topic=more", "--threshold=7", "--executors=3"]) == 0
    (settings,) = ran
    (route,) = settings.routes
    assert route.topics == ("orders", "more")
    assert (route.threshold, route.executors) == (7, 3)
    assert settings.group_of(route) == "billing"


def test_a_loss_budget_by_flag(ran: list[Settings]) -> None:
    assert main(["run", *FLAGS, "--guarantee=at_most_once", "--loss-budget=9"]) == 0
    assert ran[0].routes[0].threshold == 9


CONFIG = """
kafka: {bootstrap.servers: "x:1", group.id: file}
routes:
  - {topics: [a], target: "http://127.0.0.1:1/", executors: 2}
"""


def test_flags_come_before_the_environment_and_that_before_the_file(
    ran: list[Settings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "sidecar.yaml"
    file.write_text(CONFIG, encoding="utf-8")
    monkeypatch.setenv("SIDECAR_ROUTES__0__EXECUTORS", "3")
    monkeypatch.setenv("SIDECAR_ROUTES__0__THRESHOLD", "30")
    assert main(["run", "-c", str(file), "--executors=4"]) == 0
    route = ran[0].routes[0]
    assert (route.name, route.executors, route.threshold) == ("a", 4, 30)


def test_flags_for_one_route_are_refused_where_there_are_several(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "sidecar.yaml"
    file.write_text(CONFIG + '  - {topics: [b], target: "http://127.0.0.1:1/"}\n', encoding="utf-8")
    assert refused(capsys, "run", "-c", str(file), "--executors=4") == [
        "sidecar: --executors: for which of the 2 routes? Write it there"
    ]


def test_a_runtime_failure_is_one_line_and_exit_code_1(
    ran: list[Settings], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(settings: Settings) -> int:
        raise FatalSource("fenced:\nanother member has this group.instance.id")

    monkeypatch.setattr(sys.modules["sidecar.runtime"], "run", run)
    assert main(["run", *FLAGS]) == 1
    assert capsys.readouterr().err == (
        "sidecar: fenced: another member has this group.instance.id\n"
    )


def test_the_exit_code_is_the_runtimes(
    ran: list[Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["sidecar.runtime"], "run", lambda settings: 1)
    assert main(["run", *FLAGS]) == 1


def test_the_printed_schema_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config-schema"]) == 0
    schema = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert {"kafka", "routes", "admin", "drain_seconds"} <= schema["properties"].keys()


def test_a_wrong_configuration_is_told_without_loading_the_clients() -> None:
    """Usage and configuration errors come at once: neither Kafka nor web libraries are imported."""
    script = (
        "import sys; from sidecar.cli import main; code = main(['run', '--topic=a']);"
        "heavy = {'confluent_kafka', 'fastapi', 'httpx', 'uvloop'} & set(sys.modules);"
        "sys.exit(f'{code} {sorted(heavy)}')"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stderr.splitlines()[-1] == "2 []"


def test_the_module_runs_as_a_program() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "sidecar", "--version"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"sidecar {sidecar.__version__}\n"
