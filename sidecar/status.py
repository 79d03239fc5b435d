"""What the sidecar says about itself, as plain values. Pure; nothing here does anything.

Made by those who know (dispatch, runtime), shown by the admin surface; neither imports the other.
Field names are those of the JSON. Times are UTC; None means that it is not known or there is none.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from sidecar.model import Guarantee


class RouteState(Enum):
    """Where a route is in its life, and whether somebody stopped it."""

    WAITING = "waiting"  # for the application; nothing is fetched yet
    RUNNING = "running"
    PAUSED = "paused"  # by the operator
    HALTED = "halted"  # by on_exhausted: halt
    LEFT_GROUP = "left_group"  # the application has been away for long
    DRAINING = "draining"
    LEAVING = "leaving"
    ENDED = "ended"


class AppState(Enum):
    """Availability of the application."""

    WAITING = "waiting"
    UP = "up"
    HELD = "held"
    TRIAL = "trial"


class CauseName(Enum):
    """Why a route is slow or stopped."""

    WAITING_FOR_APP = "waiting_for_app"
    HELD = "held"
    PARKED_IN_A_ROW = "parked_in_a_row"
    LEFT_GROUP = "left_group"
    PAUSED = "paused"
    HALTED = "halted"
    DRAINING = "draining"
    NO_EXECUTORS = "no_executors"
    RATE_LIMITED = "rate_limited"
    UNANSWERED = "unanswered"
    EXECUTORS_BUSY = "executors_busy"
    APP_OVERLOADED = "app_overloaded"
    RETRYING = "retrying"
    DEAD_LETTER_WRITES_FAILING = "dead_letter_writes_failing"
    KAFKA_TROUBLE = "kafka_trouble"
    REBALANCING = "rebalancing"
    NO_PARTITIONS = "no_partitions"
    WATERMARK_HELD = "watermark_held"


class RecordAction(Enum):
    """What is to become of one record, by hand."""

    PARK = "park"
    DROP = "drop"
    RETRY = "retry"


class RecordPlace(Enum):
    """Where a record in flight is."""

    BUFFERED = "buffered"
    EXECUTING = "executing"
    DELAYED = "delayed"
    PARKING = "parking"


class RedriveState(Enum):
    """How far a redrive is."""

    RUNNING = "running"
    STOPPING = "stopping"  # after the transaction that runs
    STOPPED = "stopped"  # before it had seen everything; another one goes on there
    FINISHED = "finished"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Cause:
    """One reason why a route is slow or stopped, and what to do about it."""

    cause: CauseName
    since: datetime | None
    detail: str
    next_step: str


@dataclass(frozen=True, slots=True)
class ExecutorsStatus:
    """configured: as started; wanted: as changed since; effective: as many of these as may run.

    running: open; busy: with a request.
    """

    configured: int
    wanted: int
    effective: int
    running: int
    busy: int


@dataclass(frozen=True, slots=True)
class ThresholdStatus:
    """Records in flight at most. configured: as started; wanted: as changed since.

    effective is above wanted for as long as more records are in flight; the_loss_budget: whether
    it is also what a crash may lose (at_most_once).
    """

    configured: int
    wanted: int
    effective: int
    in_flight: int
    the_loss_budget: bool


@dataclass(frozen=True, slots=True)
class RateLimitStatus:
    """Records that may start per second; None: as many as can be."""

    configured: float | None
    wanted: float | None


@dataclass(frozen=True, slots=True)
class ExposureStatus:
    """What a crash at this moment would cost, in records."""

    would_lose: int
    would_repeat: int


@dataclass(frozen=True, slots=True)
class AvailabilityStatus:
    """What is known of the application, and since when."""

    state: AppState
    since: datetime
    last_error: str


@dataclass(frozen=True, slots=True)
class CountersStatus:
    """Since the start of the process, in records unless the name says otherwise."""

    received: int
    delivered: int
    retries: int
    parked: int
    retried_later: int
    relieved: int
    dropped: int
    already_done: int
    lost: int
    late_results: int
    rebalances: int
    commit_failures: int
    park_failures: int
    out_of_range: int
    failures: dict[str, int]


@dataclass(frozen=True, slots=True)
class RatesStatus:
    """Of the last ten seconds. failed: attempts, in records; throttled_share: of the requests
    those answered that the application has too much to do (429, 503), None where there was none.
    """

    received_per_second: float
    delivered_per_second: float
    failed_per_second: float
    throttled_share: float | None


@dataclass(frozen=True, slots=True)
class PercentilesStatus:
    """Of the last minute, of the requests that reached the application; None: there was none."""

    p50: float | None
    p95: float | None
    p99: float | None


@dataclass(frozen=True, slots=True)
class RouteStatus:
    """One route. in_flight = buffered + executing + delayed; parking is part of delayed.

    threshold is the effective one, see thresholds. last_failure: of an attempt, in words.
    generation rises with every change by an operator.
    """

    name: str
    target: str
    guarantee: Guarantee
    state: RouteState
    threshold: int
    threshold_bytes: int
    buffered: int
    executing: int
    delayed: int
    parking: int
    in_flight: int
    in_flight_bytes: int
    oldest_age_seconds: float | None
    executors: ExecutorsStatus
    thresholds: ThresholdStatus
    rate_limit: RateLimitStatus
    exposure: ExposureStatus
    availability: AvailabilityStatus
    causes: list[Cause]
    rates: RatesStatus
    attempt_seconds: PercentilesStatus
    counters: CountersStatus
    last_failure: str
    generation: int


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """One assigned partition. Offsets are next-to-read offsets.

    span: highest received offset minus watermark; outstanding: received and not settled;
    lag: end of the partition minus watermark; paused: whether fetching is paused.
    delay_seconds: of a retry topic, whose lag is mostly what is not due yet; None for any other.
    """

    route: str
    topic: str
    partition: int
    epoch: int
    committed: int | None
    watermark: int | None
    span: int
    outstanding: int
    lag: int | None
    paused: bool | None
    oldest_offset: int | None
    oldest_age_seconds: float | None
    delay_seconds: float | None

    @property
    def unfetched(self) -> int | None:
        """Records that are to be fetched; what is not due yet in a retry topic is none."""
        return None if self.lag is None or self.delay_seconds else max(0, self.lag - self.span)


@dataclass(frozen=True, slots=True)
class HeaderStatus:
    """A header of a record; value in base64, None where it has none."""

    name: str
    value: str | None


@dataclass(frozen=True, slots=True)
class PayloadStatus:
    """What a record holds, in base64. truncated: each part is cut to its first 1 024 bytes."""

    key: str | None
    value: str | None
    headers: list[HeaderStatus]
    truncated: bool


@dataclass(frozen=True, slots=True)
class ExecutingRecord:
    """A record that an executor holds: how long since it was fetched, and since its request began.

    topic, partition and offset are the original ones, also after a retry topic or a redrive.
    attempt: which request this is, 1 for the first. payload: only where it was asked for.
    """

    route: str
    topic: str
    partition: int
    offset: int
    attempt: int
    age_seconds: float
    executing_seconds: float
    payload: PayloadStatus | None = None


@dataclass(frozen=True, slots=True)
class Status:
    """Everything at a glance; exposure and in_flight are sums over the routes."""

    version: str
    started_at: datetime
    uptime_seconds: float
    alive: bool
    started: bool
    ready: bool
    drained: bool
    in_flight: int
    exposure: ExposureStatus
    routes: list[RouteStatus]


@dataclass(frozen=True, slots=True)
class RedriveStatus:
    """The last redrive of a route that was asked for here.

    letters: sent, or in a dry run what would be; to: how many to which topic. refused: so many that
    no sidecar wrote, of which the first are named; too_old: so many may have been sent so long ago
    that the brokers have forgotten it. Both were left.
    """

    route: str
    state: RedriveState
    dry_run: bool
    started_at: datetime
    ended_at: datetime | None
    letters: int
    to: dict[str, int]
    reasons: dict[str, int]
    refused: int
    refused_first: list[str]
    too_old: int
    error: str | None
