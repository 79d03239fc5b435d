"""Dead letters on a real broker: looked at, counted, and sent back once each."""

from __future__ import annotations

import json
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any, Final

import pytest
import yaml
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from sidecar.cli import main
from sidecar.core.letters import REDRIVEN, Selection
from sidecar.core.retry_mark import RETRY_MARK, RetryMark, read_mark
from sidecar.kafka import redrive
from sidecar.kafka.dead_letters import told_headers
from sidecar.kafka.letterbox import Letterbox
from sidecar.kafka.redrive import Redrive, Redriven
from sidecar.model import Assignment, Header, Partition, Record
from sidecar.ports import Story
from sidecar.settings import Settings, load_settings
from tests.conftest import TopicFactory
from tests.rig.operations import KafkaOperations
from tests.rig.waiting import eventually

pytestmark = pytest.mark.kafka

TIMESTAMP: Final = 1_700_000_000_000
HEADERS: Final[Sequence[Sequence[Header]]] = (
    (),
    (("a", b"1"), ("b", b"\xff\x00"), ("a", b"2"), ("a", b"1")),
    (("nothing", None), ("empty", b"")),
    ((RETRY_MARK, b"not ours"), ("traceparent", b"00-1-2-01")),
)


_MAIN: Final = "\nfrom sidecar.cli import main\nraise SystemExit(main())"
# Dies at its third commit: before it is asked for, when everything is with the broker, or after.
KILLED_AT_A_COMMIT: Final = """
import os, signal
from sidecar.kafka import redrive

class Killed(redrive.Producer):
    commits = 0

    def commit_transaction(self, *arguments):
        Killed.commits += 1
        if Killed.commits == 3:
            {then}
            os.kill(os.getpid(), signal.SIGKILL)
        super().commit_transaction(*arguments)

redrive.Producer = Killed
"""


class Post:
    """One group's dead letters: a topic, a configuration, the command line."""

    def __init__(
        self, kafka: KafkaOperations, directory: Path, group: str, topic: str, **route: Any
    ) -> None:
        self.kafka = kafka
        self.topic = topic
        self.group = group
        self.origin = f"{topic}.source"
        self.file = directory / "sidecar.yaml"
        self.tree = {
            "kafka": {"bootstrap.servers": kafka.bootstrap_servers, "group.id": group},
            "routes": [
                {
                    "name": "r",
                    "topics": [self.origin],
                    "target": "http://127.0.0.1:1/",
                    "dead_letter": {"topic": topic},
                    **route,
                }
            ],
        }
        self.file.write_text(yaml.safe_dump(self.tree), encoding="utf-8")
        self.retry_topic = f"r.{group}.retry.0s"
        self.parked_from = round(time.time() * 1000) - 60_000

    def settings(self) -> Settings:
        return load_settings(None, {}, self.tree)

    def park(
        self,
        offsets: Sequence[int],
        *,
        reason: Callable[[int], str] = lambda _: "timeout",
        partitions: int = 1,
        origin: str = "",
        group: str = "",
    ) -> None:
        """Letters of records at these offsets, the way the sidecar writes them."""
        refused: list[KafkaError] = []

        def written(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                refused.append(error)

        for offset in offsets:
            record = self.record(offset, origin)
            story = Story(reason(offset), "said", 500 + offset % 3, 5, 1.5, 2.25, b"no")
            self.kafka.producer.produce(
                self.topic,
                record.value,
                record.key,
                offset % partitions,
                headers=list(told_headers(record, story, group or self.group)),
                timestamp=self.parked_from + offset,
                on_delivery=written,
            )
            self.kafka.producer.poll(0)
        assert (self.kafka.producer.flush(30), refused) == (0, [])

    def record(self, offset: int, origin: str = "") -> Record:
        return Record(
            Assignment(Partition(origin or self.origin, 3), 1),
            offset,
            TIMESTAMP + offset,
            None if offset % 5 == 0 else b"key-%d" % (offset % 7),
            None if offset % 11 == 0 else b"" if offset % 13 == 0 else b"value %d \xff" % offset,
            [*HEADERS[offset % len(HEADERS)]],
            0,
        )

    def command(self, action: str, *arguments: str) -> list[str]:
        return ["dead-letters", action, "-c", str(self.file), *arguments]

    def start(self, *arguments: str, fault: str = "") -> subprocess.Popen[str]:
        """A redrive as a process; fault: Python to run in it before."""
        how = ["-c", fault + _MAIN] if fault else ["-m", "sidecar"]
        return subprocess.Popen(
            [sys.executable, *how, *self.command("redrive", *arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def redriven(self) -> list[Message]:
        return self.kafka.read(self.retry_topic)

    def count_redriven(self, least: int) -> None:
        """Wait until readers of the retry topic can see so many."""

        def there() -> bool:
            known = self.kafka.admin.list_topics(timeout=10).topics
            return self.retry_topic in known and len(self.redriven()) >= least

        eventually(there, f"{least} are redriven")

    def until_redriven(self, offsets: Sequence[int]) -> None:
        """Wait until exactly these are in the retry topic: a broker shows them a moment later."""
        assert eventually(
            lambda: len(found := self.identities()) >= len(offsets) and [found],
            f"{len(offsets)} are redriven",
        ) == [list(offsets)]

    def identities(self) -> list[int]:
        """The original offsets of what can be read in the retry topic, ascending."""
        marks = [read_mark(headers_of(each)) for each in self.redriven()]
        return sorted(mark.offset for mark in marks if mark is not None)


@pytest.fixture
def post(kafka: KafkaOperations, topic: TopicFactory, group: str, tmp_path: Path) -> Post:
    return Post(kafka, tmp_path, group, topic(3, name="dlq"))


def headers_of(message: Message) -> list[Header]:
    found: Any = message.headers()
    return list(found or [])


def said(capsys: pytest.CaptureFixture[str]) -> Any:
    """What the command printed as JSON."""
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


# --- once each ----------------------------------------------------------------------------------


def test_a_thousand_come_back_once_each_over_two_interruptions(post: Post) -> None:
    """Killed once, interrupted once: key, value, headers, order as they were, the mark behind."""
    post.kafka.create_topic(post.retry_topic, 3)
    post.park(range(1000), partitions=3)

    killed = post.start("--rate", "300")
    post.count_redriven(100)
    killed.kill()
    killed.communicate()
    after_kill = len(post.redriven())
    assert 100 <= after_kill < 1000

    interrupted = post.start("--rate", "300")
    post.count_redriven(after_kill + 100)
    interrupted.send_signal(signal.SIGINT)
    _, remark = interrupted.communicate(timeout=60)
    assert interrupted.returncode == 1
    assert "interrupted; the same command goes on" in remark
    assert len(post.redriven()) < 1000

    last = post.start()
    out, remark = last.communicate(timeout=60)
    assert (last.returncode, remark) == (0, "")
    assert re.match(r"\d+ redriven to r\.", out)

    post.count_redriven(1000)
    lanes: dict[int, list[int]] = {}
    for message in post.redriven():
        *own, _ = headers = headers_of(message)
        mark = read_mark(headers)
        assert mark is not None
        lanes.setdefault(message.partition() or 0, []).append(mark.offset)
        record = post.record(mark.offset)
        assert mark == RetryMark(post.origin, 3, record.offset, record.timestamp_ms, 5, 1500, 0)
        assert (message.key(), message.value(), own) == (record.key, record.value, record.headers)
    assert {number: lane == sorted(lane) for number, lane in lanes.items()} == {
        0: True, 1: True, 2: True,
    }  # fmt: skip
    assert sorted(offset for lane in lanes.values() for offset in lane) == list(range(1000))
    assert main(post.command("redrive")) == 0
    assert len(post.redriven()) == 1000


@pytest.mark.parametrize(
    ("then", "least"), [("self.flush()", 50), ("super().commit_transaction(*arguments)", 75)]
)
def test_a_kill_around_a_commit_neither_loses_nor_repeats(
    post: Post, then: str, least: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nor does it keep anybody from looking, while its transaction is open."""
    post.park(range(200))
    killed = post.start("--rate", "100", fault=KILLED_AT_A_COMMIT.format(then=then))
    killed.communicate(timeout=60)
    assert killed.returncode == -signal.SIGKILL
    assert main(post.command("count", "--json")) == 0
    assert said(capsys)[0]["letters"] == 200 - least
    post.until_redriven(range(least))
    assert main(post.command("redrive")) == 0
    post.until_redriven(range(200))


def test_what_the_broker_takes_for_a_duplicate_is_not_redriven(
    post: Post, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The client reports it as written, without an offset; the broker need not have it."""

    class Forgetful(Producer):
        def produce(self, *record: Any, **more: Any) -> None:
            on_delivery = more.pop("on_delivery")

            def reported(error: KafkaError | None, message: Message) -> None:
                without: Any = SimpleNamespace(offset=lambda: None)
                on_delivery(error, without if message.value() == record[1] else message)

            more["on_delivery"] = reported
            super().produce(*record, **more)

    post.park(range(20))
    with monkeypatch.context() as patch:
        patch.setattr(redrive, "Producer", Forgetful)
        assert main(post.command("redrive")) == 1
    assert "may not have it" in capsys.readouterr().err
    assert main(post.command("redrive")) == 0
    post.until_redriven(list(range(20)))


def test_a_second_redrive_takes_over_from_the_first(post: Post) -> None:
    post.park(range(300))
    first = post.start("--rate", "20")
    post.count_redriven(10)
    second = post.start()
    out, _ = second.communicate(timeout=60)
    _, remark = first.communicate(timeout=60)
    assert second.returncode == 0, out
    assert first.returncode == 1
    assert f"another redrive of {post.topic} by group {post.group} has begun" in remark
    post.until_redriven(list(range(300)))


def test_filters_one_after_the_other_send_nothing_twice(
    post: Post, capsys: pytest.CaptureFixture[str]
) -> None:
    post.park(range(300), reason=lambda each: f"reason-{each % 3}", partitions=3)
    assert main(post.command("redrive", "--reason", "reason-1", "--limit", "30")) == 0
    post.count_redriven(30)
    assert main(post.command("redrive", "--status", "501", "--json")) == 0
    post.until_redriven(list(range(1, 300, 3)))
    post.park(range(300, 400), partitions=3)
    assert main(post.command("redrive", "--key", "key-2")) == 0
    capsys.readouterr()
    sent = {each for each in range(400) if each < 300 and each % 3 == 1}
    sent |= {each for each in range(400) if each % 7 == 2 and each % 5}
    post.until_redriven(sorted(sent))
    assert main(post.command("count", "--json")) == 0
    (counted,) = said(capsys)
    assert counted["letters"] == 400 - len(sent)
    assert main(post.command("redrive", "--topic", post.origin)) == 0
    post.until_redriven(list(range(400)))


def test_the_rate_is_kept(post: Post) -> None:
    post.park(range(60))
    stop = Event()
    seen: list[int] = []
    with Letterbox(post.settings(), post.settings().routes[0]) as box:
        redrive = Redrive(
            box, Selection(), rate=40, progress=lambda done: seen.append(done.letters), stop=stop
        )
        done = redrive.run()
    assert done == Redriven(Counter({post.retry_topic: 60}), Counter({"timeout": 60}))
    assert seen == [10, 20, 30, 40, 50, 60]


def test_what_the_progress_cannot_remember_is_not_sent(
    post: Post, capsys: pytest.CaptureFixture[str]
) -> None:
    """The way out that is told works."""
    last = 21_000
    post.park(range(last + 1), reason=lambda each: "wanted" if each == last else "other")
    assert main(post.command("redrive", "--reason", "wanted")) == 1
    assert f"{last} letters before it are left by the filter" in capsys.readouterr().err
    assert post.redriven() == []
    assert main(post.command("redrive", "--limit", "5000")) == 0
    assert main(post.command("redrive", "--reason", "wanted")) == 0
    post.until_redriven([*range(5000), last])


# --- looking ------------------------------------------------------------------------------------


def test_a_dry_run_changes_nothing(post: Post, capsys: pytest.CaptureFixture[str]) -> None:
    post.park(range(20), reason=lambda each: "even" if each % 2 == 0 else "odd")
    assert main(post.command("redrive", "--dry-run", "--reason", "odd")) == 0
    told = capsys.readouterr()
    assert told.out.splitlines() == [
        f"10 would be redriven to {post.retry_topic}",
        "       10  odd",
    ]
    assert "does not exist yet and would be created" in told.err
    assert post.retry_topic not in post.kafka.admin.list_topics(timeout=10).topics
    assert post.kafka.commits(f"{post.group}.redrive", post.topic) == {}


def test_letters_are_listed_shown_and_counted(
    post: Post, capsys: pytest.CaptureFixture[str]
) -> None:
    post.park(range(9), reason=lambda each: "odd" if each % 2 else "even", partitions=3)
    assert main(post.command("redrive", "--key", "key-2")) == 0
    capsys.readouterr()

    assert main(post.command("list", "--json", "--limit", "3")) == 0
    newest = said(capsys)
    assert [each["origin"]["offset"] for each in newest] == [8, 7, 6]
    assert newest[1]["reason"] == "odd"
    assert newest[1]["key"] == "key-0"
    assert (newest[1]["status"], newest[1]["attempts"]) == (501, 5)
    assert newest[1]["first_attempt"] == "1970-01-01T00:00:01Z"
    assert "value" not in newest[1]

    assert main(post.command("list", "--json", "--oldest", "--all")) == 0
    oldest = said(capsys)
    assert [each["origin"]["offset"] for each in oldest] == list(range(9))
    assert [each["origin"]["offset"] for each in oldest if each["redriven"]] == [2]

    assert main(post.command("list", "--reason", "ood")) == 0
    assert "the reasons there are: even (4), odd (4)" in capsys.readouterr().err

    assert main(post.command("list")) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + 8
    assert f"{post.origin}/3/8" in lines[1]

    assert main(post.command("show", "2/1", "--json")) == 0
    (shown,) = said(capsys)
    assert shown["value"] == {"base64": "dmFsdWUgNSD/"}
    assert shown["headers"] == [["a", "1"], ["b", {"base64": "/wA="}], ["a", "2"], ["a", "1"]]
    assert main(post.command("show", f"{post.topic}/2/1")) == 0
    assert "base64:dmFsdWUgNSD/" in capsys.readouterr().out
    assert main(post.command("show", "2/99")) == 1

    for by, groups in {
        "reason": {"even": 4, "odd": 4},
        "status": {500: 3, 501: 3, 502: 2},
        "topic": {post.origin: 8},
    }.items():
        capsys.readouterr()
        assert main(post.command("count", "--by", by, "--json")) == 0
        (counted,) = said(capsys)
        assert {each[by]: each["letters"] for each in counted["groups"]} == groups
    assert main(post.command("count", "--since", "1h", "--status", "4xx")) == 0
    assert capsys.readouterr().out == "        0  in all\n"
    assert main(post.command("count", "--until", "1h")) == 0
    assert capsys.readouterr().out == "        0  in all\n"


def test_the_newest_are_found_however_far_back(post: Post) -> None:
    post.park(range(3000), reason=lambda each: "rare" if each == 7 else "often")
    with Letterbox(post.settings(), post.settings().routes[0]) as box:
        (rare,) = box.newest(Selection(reasons=frozenset({"rare"})), 5)
        newest = box.newest(Selection(), 5)
    assert rare.origin is not None
    assert rare.origin.offset == 7
    assert [each.offset for each in newest] == [2999, 2998, 2997, 2996, 2995]


# --- whose letters ------------------------------------------------------------------------------


def test_what_no_sidecar_wrote_is_named_and_left(
    post: Post, capsys: pytest.CaptureFixture[str]
) -> None:
    post.park([1])
    post.kafka.produce(post.topic, [b"foreign"], headers=[("x", b"y")], partition=2)
    assert main(post.command("count", "--reason", "unknown", "--json")) == 0
    assert said(capsys)[0]["letters"] == 1
    assert main(post.command("redrive")) == 1
    told = capsys.readouterr()
    assert f"1 redriven to {post.retry_topic}" in told.out
    assert "1 left, because no sidecar wrote them" in told.err
    assert f"{post.topic}/2/0" in told.err
    post.until_redriven([1])


def test_letters_of_other_groups_and_routes_stay_theirs(
    post: Post, capsys: pytest.CaptureFixture[str]
) -> None:
    post.park([1, 2])
    post.park([3], group="somebody else")
    post.park([4, 5], origin="others")
    other = {**post.tree["routes"][0], "name": "s", "topics": ["others"]}  # type: ignore[index]
    post.tree["routes"] = [*post.tree["routes"], other]
    post.file.write_text(yaml.safe_dump(post.tree), encoding="utf-8")
    assert main(post.command("redrive")) == 2
    assert "--route: which one? r, s" in capsys.readouterr().err
    assert main(post.command("redrive", "--route", "r")) == 0
    post.until_redriven([1, 2])
    assert main(post.command("redrive", "--route", "s")) == 0
    post.until_redriven([1, 2])
    post.retry_topic = f"s.{post.group}.retry.0s"
    post.until_redriven([4, 5])


def test_back_to_the_original_topic_is_a_new_record(
    post: Post, topic: TopicFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only when it is meant, without anything of ours but the identity it had."""
    source = topic(2, name="source")
    post.origin = source
    post.tree["routes"][0]["topics"] = [source]  # type: ignore[index]
    post.file.write_text(yaml.safe_dump(post.tree), encoding="utf-8")
    post.park(range(8))
    assert main(post.command("redrive", "--to-origin")) == 2
    assert "add --yes if that is meant" in capsys.readouterr().err
    assert post.kafka.read(source) == []
    assert main(post.command("redrive", "--to-origin", "--yes")) == 0
    found = {}
    for message in post.kafka.read(source):
        *own, (name, identity) = headers_of(message)
        assert name == REDRIVEN
        offset = int((identity or b"").split(b"/")[2])
        assert identity == f"{source}/3/{offset}/{TIMESTAMP + offset}".encode()
        record = post.record(offset)
        assert (message.key(), message.value(), own) == (record.key, record.value, record.headers)
        found[offset] = message
    assert sorted(found) == list(range(8))
    assert main(post.command("redrive")) == 0  # neither way sends them again
    assert post.identities() == []


def test_a_topic_made_anew_is_not_taken_for_the_old_one(post: Post) -> None:
    post.park(range(5))
    assert main(post.command("redrive")) == 0
    post.kafka.delete_topic(post.topic)
    post.kafka.create_topic(post.topic, 3)
    post.park(range(5, 25))
    assert main(post.command("redrive")) == 0
    post.until_redriven(range(25))


def test_progress_that_cannot_be_read_is_told_with_the_way_out(
    post: Post, capsys: pytest.CaptureFixture[str]
) -> None:
    group = f"{post.group}.redrive"
    post.park(range(5))
    consumer = Consumer(post.kafka.client_config(**{"group.id": group}))
    consumer.commit(
        offsets=[TopicPartition(post.topic, 0, 3, "of somebody else")], asynchronous=False
    )
    consumer.close()
    assert main(post.command("redrive")) == 1
    assert f"kafka-consumer-groups.sh --delete --group {group}" in capsys.readouterr().err
    post.kafka.admin.delete_consumer_groups([group])[group].result(30)
    assert main(post.command("redrive")) == 0
    post.until_redriven(range(5))


def test_an_offset_that_an_operator_sets_is_taken_as_it_is(post: Post) -> None:
    """What lies before it counts as redriven, and nothing behind it."""
    post.park(range(10))
    assert main(post.command("redrive", "--limit", "8")) == 0
    consumer = Consumer(post.kafka.client_config(**{"group.id": f"{post.group}.redrive"}))
    consumer.commit(offsets=[TopicPartition(post.topic, 0, 6)], asynchronous=False)
    consumer.close()
    assert main(post.command("redrive")) == 0
    post.until_redriven([*range(6), 6, 6, 7, 7, 8, 9])


def test_what_may_have_been_sent_and_forgotten_is_left(
    kafka: KafkaOperations,
    topic: TopicFactory,
    group: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Until it is asked for; once there is progress, age does not matter."""
    post = Post(kafka, tmp_path, group, topic(3, config={"retention.ms": "-1"}))
    eight_days_ms = 8 * 24 * 3600 * 1000
    post.park(range(3))
    post.parked_from -= eight_days_ms
    post.park(range(3, 5))
    post.park(range(5, 7), partitions=3)
    assert main(post.command("redrive")) == 1
    told = capsys.readouterr()
    assert "3 redriven" in told.out
    assert "4 left: they are so old that the brokers would have forgotten a redrive" in told.err
    post.until_redriven(range(3))
    assert main(post.command("redrive", "--old", "--limit", "3")) == 0
    assert main(post.command("redrive", "--old")) == 0
    post.until_redriven(range(7))


def test_a_retry_topic_that_may_not_be_created_is_told(
    kafka: KafkaOperations,
    topic: TopicFactory,
    group: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    post = Post(kafka, tmp_path, group, topic(1), retry={"create_topics": False})
    post.park([1])
    assert main(post.command("redrive")) == 1
    assert f"retry topic {post.retry_topic} does not exist: create it" in capsys.readouterr().err
    kafka.create_topic(post.retry_topic, 2)
    assert main(post.command("redrive")) == 0
    post.until_redriven([1])


def test_a_record_that_the_retry_topic_refuses_is_named(
    post: Post, capsys: pytest.CaptureFixture[str]
) -> None:
    """And nothing of its transaction is sent, nor remembered."""
    post.kafka.create_topic(post.retry_topic, 3, config={"max.message.bytes": "20000"})
    post.park([1, 2])
    post.kafka.producer.produce(
        post.topic,
        random.Random(1).randbytes(30_000),
        partition=0,
        headers=list(told_headers(post.record(3), Story("r", "", None, 1, 0, 0, b""), post.group)),
    )
    post.kafka.producer.flush()
    assert main(post.command("redrive")) == 1
    assert f"{post.topic}/0/2 to {post.retry_topic}: MSG_SIZE_TOO_LARGE" in capsys.readouterr().err
    assert post.identities() == []
    assert main(post.command("redrive", "--limit", "2")) == 0
    post.until_redriven([1, 2])


@pytest.mark.parametrize(
    ("route", "arguments", "said"),
    [
        ({"dead_letter": None}, ["count"], "no route has a dead_letter topic"),
        ({}, ["count", "--route", "x"], "--route: 'x' has no dead_letter topic; there are r"),
        (
            {"guarantee": "at_most_once", "loss_budget": 5},
            ["redrive"],
            "route r is at_most_once and reads no retry topic",
        ),
        ({}, ["show", "x"], "'x' is not PARTITION/OFFSET, as in 0/17"),
        ({}, ["list", "--since", "x"], "'x' is neither a time"),
        ({}, ["list", "--status", "x"], "'x' is not a status"),
        ({}, ["list", "--key", "base64:%"], "'base64:%' is not base64"),
        ({}, ["redrive", "--rate", "0"], "'0' is not a number above 0"),
    ],
)
def test_mistakes_are_told_in_one_line(
    kafka: KafkaOperations,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    route: dict[str, Any],
    arguments: list[str],
    said: str,
) -> None:
    post = Post(kafka, tmp_path, "g", "nowhere", **route)
    command = post.command(arguments[0], *arguments[1:])
    try:
        code = main(command)
    except SystemExit as ended:
        code = int(ended.code or 0)
    assert code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line


def test_a_missing_dead_letter_topic_is_told(
    kafka: KafkaOperations, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    post = Post(kafka, tmp_path, "g", "missing.dlq")
    assert main(post.command("count")) == 1
    assert "dead-letter topic missing.dlq: UNKNOWN_TOPIC_OR_PART" in capsys.readouterr().err
