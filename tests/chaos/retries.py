"""Records and members that come back: durable retries, relief, redrive, a group that is left.

As in failures, each proof takes its size.
"""

from __future__ import annotations

import signal
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.chaos.failures import ENDLESS, QUICKLY, for_a_while
from tests.chaos.stage import (
    PARTITIONS,
    QUICK,
    Line,
    cut_short,
    drained,
    flows,
    judged,
    number_of,
    origin,
    stage,
    told,
)
from tests.rig.journal import Journal
from tests.rig.operations import Headers, KafkaOperations
from tests.rig.processes import Scene, config, route
from tests.rig.recorder import Rule
from tests.rig.scripted_app import Answer, Request, ScriptedApp
from tests.rig.waiting import eventually

IDENTITY = "Idempotency-Key"


def _bad_is_refused(request: Request) -> Answer:
    return 500 if request.body.startswith(b"bad") else 204


def durable_retries(
    kafka: KafkaOperations,
    directory: Path,
    number: int,
    *,
    tiers: Sequence[Sequence[float]] = ((1, 2, 4), (25,)),
) -> Line:
    """DLQ-8: a route for each list of delays, three bad records in each of its three partitions.

    A delay may be longer than max.poll.interval.ms, and costs no rebalance.
    """
    name = "durable-retries"
    with Scene(directory) as scene, ScriptedApp(_bad_is_refused) as app:
        topics = [f"{name}-{time.time_ns()}-{index}" for index in range(len(tiers))]
        routes = []
        for topic, delays in zip(topics, tiers, strict=True):
            kafka.create_topic(topic, 3)
            kafka.create_topic(f"{topic}.dead", 1)
            retry = {
                "max_attempts": 1,
                "topics": [{"delay_seconds": delay} for delay in delays],
            }
            dead = {"topic": f"{topic}.dead"}
            routes.append(route(topic, app.port, retry=retry, dead_letter=dead))
        times = {"max_poll_interval_ms": 10_000, "session_timeout_ms": 6000}
        what = config(kafka.bootstrap_servers, topics[0], routes, **times)
        sidecar = scene.sidecar(what)
        sidecar.until_said("assigned", len(topics))
        counted = _rebalances(sidecar.status())
        for topic in topics:
            for partition in range(3):
                values = [b"good"] * 50 + [b"bad %d" % each for each in range(3)]
                kafka.produce(topic, [*values, *[b"good"] * 50], partition=partition)
        for topic, delays in zip(topics, tiers, strict=True):
            eventually(
                partial(_holds, kafka, f"{topic}.dead", 9),
                f"the bad ones of {topic} are parked",
                within=sum(delays) + 30,
            )
        late, early, wrong = _gaps(app.requests, topics, tiers)
        stories = {each: [told(m) for m in kafka.read(f"{each}.dead")] for each in topics}
        goods = Counter(each.headers[IDENTITY] for each in app.requests if each.body == b"good")
        figures = {
            "lost": 300 * len(topics) - len(goods),
            "repeated": goods.total() - len(goods),
            "records": 309 * len(topics),
            "latest_s": late,
            "earliest_s": early,
            "rebalances": _rebalances(sidecar.status()) - counted,
        }
        claims = {
            "each tier is one attempt": wrong == 0,
            "never early": early >= 0,
            "at most 1 s late": late <= 1,
            "no rebalance": figures["rebalances"] == 0,
            "nothing lost": figures["lost"] == 0 and figures["repeated"] == 0,
            "parked once each, as what they were": all(
                sorted(map(origin, stories[topic]))
                == [(topic, p, 50 + each) for p in range(3) for each in range(3)]
                for topic in topics
            ),
            "all attempts are told": all(
                {story.get("attempts") for story in stories[topic]} == {b"%d" % (1 + len(delays))}
                for topic, delays in zip(topics, tiers, strict=True)
            ),
            "lag 0": all(drained(kafka, topics[0], topic) for topic in topics),
            "ends in order": sidecar.stop() == 0,
        }
        return judged(name, number, figures, claims)


def _rebalances(status: Mapping[str, Any]) -> int:
    return sum(each["counters"]["rebalances"] for each in status["routes"])


def _gaps(
    requests: Sequence[Request], topics: Sequence[str], tiers: Sequence[Sequence[float]]
) -> tuple[float, float, int]:
    """How much later than due the latest and the earliest attempt came; records that had others."""
    times: dict[str, dict[str, list[float]]] = {topic: defaultdict(list) for topic in topics}
    for each in requests:
        if each.body.startswith(b"bad"):
            times[each.headers["Kafka-Topic"]][each.headers[IDENTITY]].append(each.at)
    lateness = [0.0]
    wrong = 0
    for topic, delays in zip(topics, tiers, strict=True):
        wrong += abs(9 - len(times[topic]))
        for attempts in times[topic].values():
            gaps = [after - before for before, after in pairwise(attempts)]
            wrong += len(gaps) != len(delays)
            lateness += [gap - delay for gap, delay in zip(gaps, delays, strict=False)]
    return max(lateness), min(lateness), wrong


def relieved(kafka: KafkaOperations, directory: Path, number: int, *, good: int = 10_000) -> Line:
    """OBS-3: one record is never answered; it is moved, comes back, and is answered then."""
    name = "relieved"
    with stage(kafka, directory, name) as at:
        bad = good // 2
        retry_topic = f"{at.topic}.retry"
        at.app.answer(Rule("hang", number=bad))
        sidecar = at.sidecar(
            relieve_after_seconds=2,
            retry={"topics": [{"delay_seconds": 3, "topic": retry_topic}]},
        )
        at.produced(good + 1)
        at.until(good)
        others_done = time.monotonic()
        at.until_drained(within=18)
        took = time.monotonic() - others_done
        at.app.answer()
        counters = sidecar.route()["counters"]
        moved = [number_of(each.value()) for each in kafka.read(retry_topic)]
        at.until(good + 1)
        at.until_drained(topic=retry_topic)
        figures = {**at.figures(range(good + 1)), "relieved_s": took}
        claims = {
            "it is moved": moved == [bad],
            "the watermark goes on": took <= 5,
            "counted": counters.get("relieved") == 1,
            "asked twice, delivered once": at.journal.arrivals[bad] == 2,
            "each good one once": figures["lost"] == 0 and figures["repeated"] == 0,
            "nothing parked": figures["parked"] == 0,
            "ends in order": sidecar.stop() == 0,
        }
        return judged(name, number, figures, claims)


def redriven(kafka: KafkaOperations, directory: Path, number: int, *, count: int = 1000) -> Line:
    """Everything is parked, then redriven by a command that is interrupted twice."""
    name = "redriven"
    with Scene(directory) as scene, ScriptedApp(lambda _: 400) as app:
        topic = f"{name}-{time.time_ns()}"
        dead = f"{topic}.dead"
        kafka.create_topic(topic, 3)
        kafka.create_topic(dead, 2)
        what = route(
            topic,
            app.port,
            dead_letter={"topic": dead},
            max_parked_in_a_row=count,
            headers_always=True,
        )
        sidecar = scene.sidecar(config(kafka.bootstrap_servers, topic, [what]))
        headers: Headers = [("twice", b"a"), ("twice", b"\x00"), ("null", None)]
        for each in range(count):
            kafka.producer.produce(
                topic,
                None if each % 10 == 3 else b"value %d \x00\xff" % each,
                None if each % 7 == 0 else b"key %d" % each,
                headers=[*headers[: each % 4]],
            )
        assert kafka.producer.flush(30) == 0
        eventually(partial(_holds, kafka, dead, count), "all are parked")
        eventually(partial(drained, kafka, topic, topic), "the group is at the end")
        before = list(app.requests)
        app.behaviour = lambda _: 204

        redrive = ("dead-letters", "redrive", "-c", str(sidecar.file), "--rate", "200")
        codes = []
        for share, interruption in ((0.1, signal.SIGINT), (0.4, signal.SIGKILL)):
            command = scene.command(*redrive)
            app.until(partial(_more, count + share * count))
            command.send_signal(interruption)
            codes.append(command.wait(30))
        began = time.monotonic()
        already = len(app.requests) - count
        codes.append(scene.command(*redrive).wait(120))
        took = time.monotonic() - began
        app.until(lambda seen: len({each.headers[IDENTITY] for each in seen[count:]}) == count)
        codes.append(scene.command(*redrive).wait(60))  # there is nothing left

        after = app.requests[count:]
        times = Counter(each.headers[IDENTITY] for each in after)
        was = {each.headers[IDENTITY]: _same(each) for each in before}
        parked = sum(kafka.end_offsets(dead).values())
        figures = {
            "lost": count - len(times),
            "repeated": times.total() - len(times),
            "records": count,
            "last_run_s": took,
            "sigint_exit": codes[0],
        }
        claims = {
            "parked once each": len(before) == len(was) == parked == count,
            "each once": set(times.values()) == {1} and times.keys() == was.keys(),
            "as they were": all(_same(each) == was.get(each.headers[IDENTITY]) for each in after),
            "by the rate": took >= (count - already) / 200 * 0.8,
            "interrupted, killed, done, nothing to do": codes == [1, -signal.SIGKILL, 0, 0],
            "ends in order": sidecar.stop() == 0,
        }
        return judged(name, number, figures, claims)


def _holds(kafka: KafkaOperations, topic: str, count: int) -> bool:
    return sum(kafka.end_offsets(topic).values()) >= count


def _more(than: float, requests: Sequence[Request]) -> bool:
    return len(requests) > than


def _same(request: Request) -> tuple[str, bytes, list[tuple[str, str]]]:
    """What must not change from one delivery of a record to the next."""
    kept = [each for each in request.headers.items() if each[0] != "Sidecar-Attempt"]
    return request.path, request.body, kept


def left_group(
    kafka: KafkaOperations,
    directory: Path,
    number: int,
    *,
    away: float = 30,
    rate: float = 300,
) -> Line:
    """K8S-3: the application of one of two members goes away; the member leaves, and comes back.

    Rounds take the classic and the new protocol in turn.
    """
    name = "left-group"
    protocol = {"group_protocol": "consumer"} if number % 2 else QUICK
    with stage(kafka, directory, name) as at:
        healthy, journal = at.another_app()
        more: dict[str, Any] = {"leave_after_held_seconds": 3}
        more |= {"retry": {"max_attempts": 1, **QUICKLY}, "kafka": protocol}
        leaver = at.sidecar(**more)
        stayer = at.sidecar(port=healthy.port, **more)
        load = at.load(ENDLESS, rate, delay_ms=5)
        eventually(lambda: _both_work(at.journal, journal), "both work", within=60)
        at.app.stop()
        gone = time.monotonic()
        eventually(lambda: members(kafka, at.topic) == 1, "one leaves", every=0.1)
        left = time.monotonic() - gone
        newer = max(journal.arrivals)
        eventually(lambda: flows(journal, newer), "the other has every partition")
        taken = time.monotonic() - gone
        for_a_while(away - taken)
        still = members(kafka, at.topic)
        at.journal.refresh()
        seen = at.journal.arrivals.total()
        at.app.start()
        back = time.monotonic()
        eventually(lambda: _more_than(at.journal, seen), "it works again")
        returned = time.monotonic() - back
        count = cut_short(load)
        at.until_drained()
        figures = at.figures(range(count), journal)
        figures |= {"left_s": left, "taken_over_s": taken, "returned_s": returned}
        claims = {
            "in its time": 3 <= left <= 7,
            "taken over at once": taken - left <= 5,
            "stays away": still == 1,
            "comes back": returned <= 10 and members(kafka, at.topic) == 2,
            "nothing lost": figures["lost"] == 0,
            "nothing parked, so nobody charged": figures["parked"] == 0,
            "end in order": (leaver.stop(), stayer.stop()) == (0, 0),
        }
        return judged(name, number, figures, claims)


def members(kafka: KafkaOperations, group: str) -> int:
    """How many members the group has."""
    told = kafka.admin.describe_consumer_groups([group])[group].result(30)
    return len(told.members)


def _both_work(*journals: Journal) -> bool:
    """Whether each application gets records of some partitions, together of all, none twice."""
    for journal in journals:
        journal.refresh()
    recent = [{n % PARTITIONS for n in sorted(journal.arrivals)[-60:]} for journal in journals]
    return all(recent) and sum(map(len, recent)) == PARTITIONS == len(set().union(*recent))


def _more_than(journal: Journal, arrivals: int) -> bool:
    journal.refresh()
    return journal.arrivals.total() > arrivals
