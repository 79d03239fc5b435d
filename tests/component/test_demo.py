"""sidecar demo as a newcomer runs it: a process of its own, with nothing else on the machine.

The output is read to its end, which comes only when everybody who holds it has gone: a process
that the demo left behind would be seen as a timeout.
"""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from typing import Final

import pytest

END_SECONDS: Final = 30.0
QUICK: Final = ("--rate=100", "--slow-every=10", "--slow-seconds=0.4")
PROGRESS: Final = re.compile(
    r" *(?P<seconds>\d+) s \| sidecar \d+/s, (?P<ours>\d+) delivered,.*"
    r"\| one at a time \d+/s, (?P<theirs>\d+) delivered,"
)


class Demo:
    """The process; killed with everything it started if a test leaves it."""

    def __init__(self, *arguments: str) -> None:
        self.started_at = time.monotonic()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "sidecar", "demo", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            # What is written must come at once by itself.
            env={name: text for name, text in os.environ.items() if name != "PYTHONUNBUFFERED"},
        )

    def wait_until_delivering(self) -> str:
        """Both consumers have delivered something; what was written until then."""
        assert self.process.stdout is not None
        seen = ""
        for line in self.process.stdout:
            seen += line
            found = PROGRESS.match(line)
            if found and int(found["ours"]) and int(found["theirs"]):
                return seen
        pytest.fail(f"ended with {self.process.wait()}: {self.process.communicate()[1]}")

    def end(self) -> tuple[int, str, str]:
        """The exit code, and what is left of the two outputs."""
        output, errors = self.process.communicate(timeout=END_SECONDS)
        return self.process.returncode, output, errors


@pytest.fixture
def demos() -> Iterator[list[Demo]]:
    started: list[Demo] = []
    yield started
    for demo in started:
        if demo.process.poll() is None:
            demo.process.kill()
        demo.process.communicate(timeout=END_SECONDS)


def start(demos: list[Demo], *arguments: str) -> Demo:
    demos.append(Demo(*arguments))
    return demos[-1]


@pytest.mark.parametrize("guarantee", ["at_least_once", "at_most_once"])
def test_shows_the_point_and_ends_by_itself(demos: list[Demo], guarantee: str) -> None:
    demo = start(demos, "--seconds=4", f"--guarantee={guarantee}")
    code, output, errors = demo.end()
    assert (code, errors) == (0, "")
    progress = [found for line in output.splitlines() if (found := PROGRESS.match(line))]
    seconds = [int(each["seconds"]) for each in progress]
    assert seconds == sorted(set(seconds))  # a line per second, if the machine is not too busy
    assert len(seconds) >= 3
    ours, theirs = int(progress[-1]["ours"]), int(progress[-1]["theirs"])
    assert ours > 5 * theirs > 0
    assert "The sidecar delivered" in output
    assert output.endswith("What it had in flight was then finished and committed.\n")


def test_says_something_at_once(demos: list[Demo]) -> None:
    demo = start(demos, *QUICK)
    assert demo.process.stdout is not None
    assert "100 records/s go into one partition" in demo.process.stdout.readline()
    demo.wait_until_delivering()
    assert time.monotonic() - demo.started_at < 15  # 2 s on an idle machine
    demo.process.terminate()
    assert demo.end()[0] == 0


def test_the_sidecars_own_words_are_a_click_away(demos: list[Demo]) -> None:
    demo = start(demos, *QUICK)
    seen = demo.wait_until_delivering()
    address = re.search(r"http://\S+/v1/status$", seen, re.MULTILINE)
    assert address
    with urllib.request.urlopen(address[0], timeout=END_SECONDS) as answer:
        status = json.load(answer)
    assert status["routes"][0]["counters"]["delivered"] > 0
    page = re.search(r"(http://\S+/)#token=(\S+)$", seen, re.MULTILINE)
    assert page
    asked = urllib.request.Request(
        f"{page[1]}v1/access", headers={"Authorization": f"Bearer {page[2]}"}
    )
    with urllib.request.urlopen(asked, timeout=END_SECONDS) as answer:
        assert json.load(answer)["may_change"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_cleanly(demos: list[Demo], number: signal.Signals) -> None:
    """As the terminal does it: SIGINT reaches the whole process group."""
    demo = start(demos, *QUICK)
    demo.wait_until_delivering()
    os.killpg(demo.process.pid, number)
    code, output, errors = demo.end()
    assert (code, errors) == (0, "")
    assert "finished and committed" in output


def test_killed_it_leaves_nothing_behind(demos: list[Demo]) -> None:
    demo = start(demos, *QUICK)
    demo.wait_until_delivering()
    demo.process.kill()
    code, _, errors = demo.end()
    assert (code, errors) == (-signal.SIGKILL, "")


def test_ends_when_nobody_reads(demos: list[Demo]) -> None:
    demo = start(demos, *QUICK)
    demo.wait_until_delivering()
    assert demo.process.stdout is not None
    demo.process.stdout.close()
    assert demo.process.stderr is not None
    assert demo.process.wait(END_SECONDS) == 1
    assert "Traceback" not in demo.process.stderr.read()


def test_a_terminal_is_redrawn_in_place() -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "sidecar", "demo", "--seconds=1", *QUICK],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    seen = b""
    try:
        while chunk := os.read(ours, 65536):
            seen += chunk
    except OSError:  # how a terminal says that everybody has gone
        pass
    finally:
        os.close(ours)
        process.kill()
    assert process.wait(END_SECONDS) == 0
    assert seen.count(b"\x1b[8A\x1b[J") >= 2
    assert b"one at a time" in seen
    assert seen.rstrip().endswith(b"finished and committed.")
    assert b"Traceback" not in seen


@pytest.mark.parametrize(
    ("argument", "reason"),
    [
        ("--rate=none", "'none' is not a number above 0"),
        ("--executors=0", "'0' is not a whole number above 0"),
        ("--threshold=2000000", "routes[0].threshold"),
        ("--guarantee=exactly_once", "invalid choice"),
    ],
)
def test_a_wrong_option_is_one_line(demos: list[Demo], argument: str, reason: str) -> None:
    code, output, errors = start(demos, argument).end()
    assert (code, output) == (2, "")
    assert reason in errors
    assert errors.count("\n") == 1
