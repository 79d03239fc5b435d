"""The composition root: builds the parts, owns the loop's life, the signals and the order of stop.

One process, one event loop, and per route one fetch thread with its own consumer. Stop, by SIGTERM,
SIGINT or a failure: every route drains at once; what is not finished when the time is nearly up
is cut; a client that does not let go of the group does not hold the exit.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import gc
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from random import Random
from typing import TYPE_CHECKING, Any, Final

import uvloop

from sidecar import __version__
from sidecar.admin.server import Address, AdminServer
from sidecar.control import Operations
from sidecar.core.commands import Renew
from sidecar.core.kafka_rules import OffsetReset
from sidecar.core.places import Places
from sidecar.delivery import (
    Credentials,
    TlsOptions,
    batch_shape_of,
    open_delivery,
    shape_of,
)
from sidecar.dispatch.route import Phase, Route
from sidecar.errors import ConfigError, ExitCode, SidecarError
from sidecar.kafka.access_watch import AccessWatch
from sidecar.kafka.client_config import client_config, consumer_config, producer_config
from sidecar.kafka.dead_letter_watch import DeadLetterWatch
from sidecar.kafka.dead_letters import DeadLetterWriter
from sidecar.kafka.embedded import embedded_broker
from sidecar.kafka.fetcher import Fetcher
from sidecar.kafka.letter_desk import THREADS as LETTER_THREADS
from sidecar.kafka.letter_desk import LetterDesk
from sidecar.kafka.mailbox import ThreadMailbox
from sidecar.kafka.retry_topics import RetryTopicMaker
from sidecar.kafka.source import KafkaSource
from sidecar.model import Guarantee, RetryTopic
from sidecar.overview import Overview, Vertical
from sidecar.ports import Delivery, Parking
from sidecar.settings import CLOSE_SECONDS, AuthSettings, RouteSettings, Settings

if TYPE_CHECKING:
    from sidecar.telemetry.tracing import Tracing

log = logging.getLogger(__name__)

CUT_RESERVE: Final = 0.1  # of drain_seconds, at most a second: for the last commit
CUT_LEAVE_SECONDS: Final = 2.0  # after a second signal: for the last commit
# Records in flight are alive, not garbage: at the usual 700 the collector would walk over them with
# every batch.
GC_THRESHOLD: Final = 20_000
WATCHDOG_SECONDS: Final = 3.0  # beyond drain_seconds
LOST_NAMED: Final = 1000


class Runtime:
    """The running sidecar. Everything happens on the loop that calls run.

    embedded: the settings lead to an embedded broker, which has no topic ids.
    """

    def __init__(self, settings: Settings, *, embedded: bool = False) -> None:
        self.settings: Final = settings
        self._embedded = embedded
        self.admin_address: Address | None = None  # once it listens
        self._loop = asyncio.get_running_loop()
        self._asked_to_stop = False
        self._stopping = asyncio.Event()
        self._cut = asyncio.Event()
        self._drained = asyncio.Event()
        self._failure: BaseException | None = None
        self._edges: list[Delivery | Parking] = []  # of all routes; closed after they have ended
        self._renewals: list[Callable[[], object]] = []  # of all clients that stay
        # Before any client is made: what is read by them is what it compares with.
        self._access: Final = AccessWatch(settings, lambda: self._tell(self._renew))
        self._tracing: Final = _open_tracing(settings)
        verticals = [self._build(route) for route in settings.routes]
        self.routes: Final = [vertical.route for vertical in verticals]
        self._running = set(self.routes)
        self.overview: Final = Overview(
            verticals,
            self._loop,
            self._stopping,
            self._drained,
            partition_metrics=settings.admin.partition_metrics,
            strict_readiness=settings.admin.strict_readiness,
        )
        control = Operations(verticals, lambda: self.stop("asked to drain"))
        self._letters = LetterDesk(settings, self._tell, embedded=embedded)
        self._admin = AdminServer(
            settings.admin, self.overview, control, self._letters, failed=self.fail
        )

    async def run(self) -> int:
        """Until stopped; the exit code."""
        self._loop.set_exception_handler(self._on_loop_error)
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self.stop, number.name)
        try:
            self.admin_address = await self._admin.start()
        except SidecarError as error:
            self.fail(error)
        else:
            for route in self.routes:
                route.start()
            self._access.start()
        # What was made so far stays: the collector need not look at it again and again.
        gc.freeze()
        gc.set_threshold(GC_THRESHOLD, 20, 20)
        await self._stopping.wait()
        with _watchdog(self.settings.drain_seconds + WATCHDOG_SECONDS):
            await self._drain()
            await self._close()
        return self._report()

    def stop(self, reason: str) -> None:
        """Drain and end; a second time, cut."""
        if self._asked_to_stop:
            log.warning("%s again: cutting what is not finished", reason)
            self._cut.set()
        else:
            parking = sum(route.waits_to_be_parked for route in self.routes)
            waits = f"; {parking} records wait to be parked or moved" if parking else ""
            log.info("%s: draining within %g s%s", reason, self.settings.drain_seconds, waits)
            self._asked_to_stop = True
            self._stopping.set()

    def fail(self, error: BaseException) -> None:
        """Something that must not happen: drain what can be, then end non-zero."""
        if self._failure is None:
            self._failure = error
        self._stopping.set()

    # --- stop ---------------------------------------------------------------------------------

    async def _drain(self) -> None:
        seconds = self.settings.drain_seconds
        deadline = self._loop.time() + seconds
        self._access.stop()
        self._letters.stop()
        for route in self.routes:
            route.drain()
        reserve = min(1.0, seconds * CUT_RESERVE)
        everything = asyncio.ensure_future(self._until_ended())
        cut = asyncio.ensure_future(self._cut.wait())
        await asyncio.wait(
            (everything, cut),
            timeout=deadline - reserve - self._loop.time(),
            return_when=asyncio.FIRST_COMPLETED,
        )
        cut.cancel()
        if self._cut.is_set():
            deadline = min(deadline, self._loop.time() + CUT_LEAVE_SECONDS)
        for route in self.routes:
            route.cut()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(deadline):
                await everything

    async def _until_ended(self) -> None:
        """The routes, then the redrives: an open transaction holds up those who read its topic."""
        await self._drained.wait()
        await self._letters.close()

    async def _close(self) -> None:
        closings = [self._admin.stop(), *(edge.close() for edge in self._edges)]
        if self._tracing is not None:
            closings.append(self._tracing.close())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await asyncio.gather(*closings)

    def _report(self) -> int:
        code = ExitCode.CLEAN
        for route in self.routes:
            if route.phase is not Phase.ENDED:
                log.warning(
                    "route %s: the client did not leave the group in time", route.settings.name
                )
            if lost := route.lost_records:
                named = ", ".join(map(repr, lost[:LOST_NAMED]))
                log.error("route %s: %d records lost: %s", route.settings.name, len(lost), named)
                code = ExitCode.FAILURE
        if self._failure is None:
            log.info("stopped")
            return code
        if isinstance(self._failure, ConfigError):
            log.error("%s", self._failure)
            return ExitCode.USAGE
        expected = isinstance(self._failure, SidecarError)
        log.error("ended by: %s", self._failure, exc_info=None if expected else self._failure)
        return ExitCode.FAILURE

    # --- from the parts -----------------------------------------------------------------------

    def _on_route_failed(self, route: Route, error: BaseException) -> None:
        log.error("route %s: the fetch thread ended: %s", route.settings.name, error)
        self.fail(error)

    def _on_route_ended(self, route: Route, error: BaseException | None) -> None:
        if error is not None:
            self.fail(error)
        self._running.discard(route)
        if not self._running:
            self._drained.set()

    def _on_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        error = context.get("exception")
        if not isinstance(error, Exception):
            error = RuntimeError(str(context.get("message")))
        log.error("%s", context.get("message"), exc_info=error)
        self.fail(error)

    def _renew(self) -> None:
        """Every route leaves its group as at a rebalance, and joins it with clients made anew."""
        for renew in self._renewals:
            renew()

    def _tell(self, function: Callable[..., object], *args: object) -> None:
        """From a fetch thread to the loop; after the end of the loop there is nobody to tell."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function, *args)

    # --- building -----------------------------------------------------------------------------

    def _build(self, route_settings: RouteSettings) -> Vertical:
        settings = self.settings
        name = route_settings.name
        mailbox = ThreadMailbox()
        places = Places(route_settings.threshold, route_settings.threshold_bytes)
        delivery = open_delivery(
            target=route_settings.parsed_target,
            loop=self._loop,
            content_type=route_settings.content_type,
            max_header_bytes=route_settings.max_header_bytes,
            headers_always=route_settings.headers_always,
            idle_seconds=route_settings.idle_connection_seconds,
            health=settings.app.health,
            tls=None if route_settings.tls is None else TlsOptions(**dict(route_settings.tls)),
            http2=route_settings.http2,
            probe_seconds=route_settings.timeout_seconds,
            answers=route_settings.answer_table,
            shape=shape_of(route_settings, settings.kafka_text("bootstrap.servers")),
            batch_shape=batch_shape_of(route_settings, settings.kafka_text("bootstrap.servers")),
            credentials=_credentials(route_settings),
            route=name,
        )
        if self._tracing is not None:
            group = settings.group_of(route_settings)
            delivery = self._tracing.around(delivery, route_settings, group, self._loop.time)
        retry_topics = settings.retry_topics(route_settings)
        parking = self._parking(route_settings, retry_topics)
        first: list[Callable[[], None]] = []  # on the fetch thread; an embedded broker has all
        config = client_config(settings)
        if (dead_letter := route_settings.dead_letter) is not None and not self._embedded:

            def tell(missing: bool) -> None:
                self._tell(route.dead_letter_topic_missing, missing)

            first.append(DeadLetterWatch(config, name, dead_letter.topic, tell).start)
        if retry_topics and route_settings.retry.create_topics and not self._embedded:
            first.append(RetryTopicMaker(config, name, retry_topics).start)
        route = Route(
            route_settings,
            commit_interval_seconds=settings.commit_interval_seconds,
            scheduler=self._loop,
            wall_clock=time.time,
            random=Random(),
            delivery=delivery,
            parking=parking,
            mailbox=mailbox,
            places=places,
            retry_topics=retry_topics,
            start_fetching=lambda: fetcher.start_in(thread),  # both are made below
            failed=self._on_route_failed,
            ended=self._on_route_ended,
        )
        fetcher = Fetcher(
            source=KafkaSource(
                consumer_config(settings, route_settings),
                [*(route_settings.topics or ()), *(topic.name for topic in retry_topics)],
                route_settings.pattern,
                topic_ids=not self._embedded,
                route=name,
                anew=lambda: consumer_config(settings, route_settings),
            ),
            sink=route,
            tell=self._tell,
            mailbox=mailbox,
            places=places,
            clock=time.monotonic,
            revoke_seconds=settings.revoke_seconds,
            clears_before_dispatch=route_settings.guarantee is Guarantee.AT_MOST_ONCE,
            from_end=settings.offset_reset is OffsetReset.LATEST,
            retry_topics=retry_topics,
            prepare=lambda: [start() for start in first],
            name=name,
        )
        # A daemon: a client that hangs in its library does not hold the exit.
        thread = threading.Thread(target=fetcher.run, name=f"fetch-{name}", daemon=True)
        self._edges.append(delivery)
        self._renewals.append(lambda: mailbox.post(Renew()))
        if parking is not None:
            self._edges.append(parking)
            self._renewals.append(lambda: parking.renew(producer_config(settings, route_settings)))
        return Vertical(route, fetcher, thread)

    def _parking(
        self, route_settings: RouteSettings, retry_topics: Sequence[RetryTopic]
    ) -> DeadLetterWriter | None:
        dead_letter = route_settings.dead_letter
        if dead_letter is None and not retry_topics:
            return None
        return DeadLetterWriter(
            producer_config(self.settings, route_settings),
            None if dead_letter is None else dead_letter.topic,
            self.settings.group_of(route_settings),
            self._tell,
            route=route_settings.name,
        )


def _open_tracing(settings: Settings) -> Tracing | None:
    if not settings.tracing.enabled:
        return None
    # Imported by those alone who need it, as it is installed by them alone.
    from sidecar.telemetry.tracing import open_tracing  # noqa: PLC0415

    return open_tracing()


def _credentials(route: RouteSettings) -> Credentials:
    auth = route.auth or AuthSettings()
    return Credentials(route.headers, auth.bearer, auth.signature)


@contextlib.contextmanager
def _watchdog(seconds: float) -> Iterator[None]:
    """End the process from outside of the interpreter if the body takes longer.

    A client library that hangs while it holds the interpreter's lock stops every thread, so
    nothing written in Python could end it. The stacks of all threads go to standard error.
    """
    faulthandler.dump_traceback_later(seconds, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


def _ignore_signals() -> None:
    """A loop that closes leaves signals to the kernel, and one more would spoil the exit code."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.remove_signal_handler(number)
        signal.signal(number, signal.SIG_IGN)


def run(settings: Settings) -> int:
    """Run until stopped; the exit code. Does not return while a client library hangs."""
    log.info("sidecar %s", __version__)
    embedded = settings.embedded_broker
    with embedded_broker(settings) if embedded else contextlib.nullcontext(settings) as reachable:

        async def main() -> int:
            return await Runtime(reachable, embedded=embedded).run()

        return run_on_loop(main)


def run_on_loop(main: Callable[[], Coroutine[Any, Any, int]]) -> int:
    """Run a coroutine that runs a Runtime; the exit code. See run."""

    async def to_the_end() -> int:
        code = await main()
        _ignore_signals()
        return code

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        code = runner.run(to_the_end())
    if any(t.name.startswith(("fetch-", "park-", LETTER_THREADS)) for t in threading.enumerate()):
        # A thread that sits in the client library would crash the interpreter's own end.
        logging.shutdown()
        sys.stdout.flush()
        os._exit(code)
    return code
