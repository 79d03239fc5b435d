"""A request can be given up in every phase; probes and the end of a delivery."""

from __future__ import annotations

import asyncio

import pytest

from sidecar.model import Result
from tests.contract.delivery.ways import (
    Stage,
    Way,
    a_record,
    answer,
    answering,
    play,
    probed,
    unanswered,
)
from tests.rig.hostile_app import NO_CONTENT, Peer

BIG = b"x" * 8_000_000


# --- abort -----------------------------------------------------------------------------------


def test_abort_while_connecting_sends_nothing(way: Way) -> None:
    async def script(peer: Peer) -> None:
        await peer.answer_all()

    async def act(stage: Stage) -> None:
        slot = stage.slot()
        answered = slot.send()
        assert slot.slot.abort() is False
        await unanswered(answered)
        assert answer(await slot.send())[0] == 204
        assert len(stage.app.received) == 1
        async with asyncio.timeout(0.5):  # what never began to connect holds up no end
            await stage.delivery.close()

    play(way, script, act)


def test_abort_in_any_turn_of_connecting_tells_the_truth(way: Way) -> None:
    """Whenever abort says that nothing was sent, nothing arrives."""

    async def script(peer: Peer) -> None:
        await peer.answer_all()

    async def act(stage: Stage) -> None:
        certain: list[int] = []
        for turns in range(40):
            slot = stage.slot()
            answered = slot.send(a_record(offset=turns))
            for _ in range(turns):
                await asyncio.sleep(0)
            if answered.done():
                continue
            if not slot.slot.abort():
                certain.append(turns)
            await unanswered(answered)
        assert certain
        assert answer(await stage.send())[0] == 204
        arrived = {int(each.values("kafka-offset")[0]) for each in stage.app.received}
        assert not arrived & set(certain)

    play(way, script, act)


def test_a_refusal_after_abort_is_told_to_nobody(way: Way) -> None:
    async def main() -> None:
        async with way.stage(answering()) as stage:
            port = stage.app.port
        delivery = way.delivery(port)
        told = Stage(stage.app, delivery).slot()
        given_up = Stage(stage.app, delivery).slot()
        unheard = given_up.send()
        await asyncio.sleep(0)
        given_up.slot.abort()
        # Begun later, on the same way: when it was refused, the other was as well.
        await told.send()
        await told.send()
        await unanswered(unheard)
        await delivery.close()

    way.run(main)


def test_abort_while_the_body_is_written(way: Way) -> None:
    stuck, gone = asyncio.Event(), asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.head()
        stuck.set()
        await peer.gone()
        gone.set()

    async def act(stage: Stage) -> None:
        slot = stage.slot()
        answered = slot.send(a_record(value=BIG))
        await stuck.wait()
        assert slot.slot.abort() is True
        await unanswered(answered)
        await gone.wait()

    play(way, script, act)


@pytest.mark.parametrize(
    "sent", [b"", b"HTTP/1.1 200", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"]
)
def test_abort_while_the_answer_is_awaited_closes_the_connection(way: Way, sent: bytes) -> None:
    read, gone = asyncio.Event(), asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(sent)
        read.set()
        await peer.gone()
        gone.set()

    async def act(stage: Stage) -> None:
        slot = stage.slot()
        answered = slot.send()
        await read.wait()
        await unanswered(answered)
        assert slot.slot.abort() is True
        await unanswered(answered)
        await gone.wait()

    play(way, script, act)


def test_a_drip_is_ended_by_abort(way: Way) -> None:
    """WIRE-3: each byte restarts nothing: the caller's deadline is total."""
    dripped = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        for _ in range(100):
            await peer.send(b"d")
        dripped.set()
        await peer.gone()

    async def act(stage: Stage) -> None:
        slot = stage.slot()
        answered = slot.send()
        await dripped.wait()
        assert not answered.done()
        assert slot.slot.abort() is True
        await unanswered(answered)

    play(way, script, act)


def test_a_request_may_follow_from_inside_done(way: Way) -> None:
    async def script(peer: Peer) -> None:
        await peer.answer_all()

    async def act(stage: Stage) -> None:
        slot = stage.delivery.open_slot()
        finished: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        count = 0

        def done(result: Result) -> None:
            nonlocal count
            count += 1
            if count < 50:
                slot.send(a_record(offset=count), 1, done)
            else:
                finished.set_result(count)

        slot.send(a_record(offset=0), 1, done)
        await finished
        offsets = [int(each.values("kafka-offset")[0]) for each in stage.app.received]
        assert offsets == list(range(50))
        assert stage.app.accepted == 1

    play(way, script, act)


def test_giving_up_again_and_again_leaks_nothing(way: Way) -> None:
    """WIRE-2: after a churn of aborted requests all slots work, on one connection each."""
    slow = True

    async def script(peer: Peer) -> None:
        while True:
            await peer.request()
            if slow:
                await peer.gone()
                return
            await peer.send(NO_CONTENT)

    async def act(stage: Stage) -> None:
        nonlocal slow
        slots = [stage.slot() for _ in range(8)]
        for turn in range(12):
            for slot in slots:
                slot.send()
            for _ in range(turn):
                await asyncio.sleep(0)
            for slot in slots:
                slot.slot.abort()
        slow = False
        for _ in range(5):
            results = await asyncio.gather(*(slot.send() for slot in slots))
            assert [answer(each)[0] for each in results] == [204] * 8
        await stage.app.until(lambda: stage.app.open <= len(slots))

    play(way, script, act, idle_seconds=60.0)


# --- probes ----------------------------------------------------------------------------------


def test_a_probe_is_content_with_a_connection(way: Way) -> None:
    async def act(stage: Stage) -> None:
        assert await probed(stage) is None

    async def script(peer: Peer) -> None:
        await peer.gone()

    play(way, script, act)


@pytest.mark.parametrize(("status", "fine"), [(200, True), (204, True), (302, False), (503, False)])
def test_a_health_url_wants_a_success(way: Way, status: int, fine: bool) -> None:
    heads: list[bytes] = []

    async def script(peer: Peer) -> None:
        heads.append(await peer.head())
        await peer.send(b"HTTP/1.1 %d S\r\nContent-Length: 0\r\n\r\n" % status)

    async def main() -> None:
        async with way.stage(script) as stage:
            health = way.target(stage.app.port).replace("/events/{topic}", "/healthz?deep")
            asking = Stage(stage.app, way.delivery(stage.app.port, health=health))
            reason = await probed(asking)
            await asking.delivery.close()
        assert (reason is None) is fine
        assert reason is None or str(status) in reason
        assert heads[0].startswith(b"GET /healthz?deep HTTP/1.1\r\nHost: ")

    way.run(main)


def test_a_probe_is_bounded_in_time(way: Way) -> None:
    async def script(peer: Peer) -> None:
        await peer.gone()

    async def main() -> None:
        async with way.stage(script) as stage:
            health = way.target(stage.app.port).replace("{topic}", "healthz")
            asking = Stage(
                stage.app, way.delivery(stage.app.port, health=health, probe_seconds=0.05)
            )
            assert await probed(asking) == "no answer within 0.05 s"
            await asking.delivery.close()

    way.run(main)


def test_closing_ends_everything_that_runs(way: Way) -> None:
    """Nobody is called, and the application sees its connections end."""

    async def script(peer: Peer) -> None:
        await peer.gone()

    async def main() -> None:
        async with way.stage(script) as stage:
            health = way.target(stage.app.port).replace("{topic}", "healthz")
            closing = Stage(stage.app, way.delivery(stage.app.port, health=health))
            answers = [closing.slot().send() for _ in range(3)]
            probes: list[str | None] = []
            closing.delivery.probe(probes.append)
            await stage.app.until(lambda: stage.app.accepted == 4)
            await closing.delivery.close()
            await stage.app.until(lambda: not stage.app.open)
            assert not any(each.done() for each in answers)
            assert not probes

    way.run(main)
