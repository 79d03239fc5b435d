"""What the sidecar says about itself, as plain values. Pure; nothing here does anything.

Made by those who know (dispatch, runtime), shown by the admin surface; neither imports the other.
Field names are those of the JSON. Times are UTC; None means that it is not known or there is none.
The text below a field is its description in openapi/admin.json, with an example behind "e.g."
(admin/descriptions).
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
    """which (e.g. "held")"""
    since: datetime | None
    """null where it is not known"""
    detail: str
    """what was seen, in words"""
    next_step: str
    """what to do about it, in words"""


@dataclass(frozen=True, slots=True)
class ExecutorsStatus:
    """How many requests may be out at once, and are."""

    configured: int
    """as started (e.g. 16)"""
    wanted: int
    """as changed since (e.g. 20)"""
    effective: int
    """as many of the wanted ones as may run: fewer after 429 and 503 (e.g. 20)"""
    running: int
    """open (e.g. 20)"""
    busy: int
    """with a request out (e.g. 7)"""


@dataclass(frozen=True, slots=True)
class ThresholdStatus:
    """How many records may be in flight."""

    configured: int
    """records, as started (e.g. 1000)"""
    wanted: int
    """records, as changed since (e.g. 500)"""
    effective: int
    """records; above wanted for as long as more are in flight (e.g. 612)"""
    in_flight: int
    """records (e.g. 612)"""
    the_loss_budget: bool
    """whether it is also what a crash may lose (at_most_once)"""


@dataclass(frozen=True, slots=True)
class RateLimitStatus:
    """How many records may start per second."""

    configured: float | None
    """records per second, as started; null: as many as can be (e.g. 50.0)"""
    wanted: float | None
    """records per second, as changed since; null: as many as can be (e.g. 25.0)"""


@dataclass(frozen=True, slots=True)
class ExposureStatus:
    """What a crash at this moment would cost, in records."""

    would_lose: int
    """records (at_most_once) (e.g. 0)"""
    would_repeat: int
    """records (at_least_once) (e.g. 90)"""


@dataclass(frozen=True, slots=True)
class AvailabilityStatus:
    """What is known of the application, and since when."""

    state: AppState
    """what is known of the application (e.g. "up")"""
    since: datetime
    """when it became so"""
    last_error: str
    """in words; empty where there was none"""


@dataclass(frozen=True, slots=True)
class CountersStatus:
    """Since the start of the process, in records unless the name says otherwise."""

    received: int
    """fetched (e.g. 6092)"""
    delivered: int
    """the application took them (e.g. 6067)"""
    retries: int
    """attempts after the first"""
    parked: int
    """written to the dead-letter topic, and confirmed"""
    retried_later: int
    """moved to a retry topic"""
    relieved: int
    """moved or parked because they held the watermark for too long"""
    dropped: int
    """given up by configuration, by the application or by hand"""
    already_done: int
    """an earlier owner of the partition had done them"""
    lost: int
    """committed and not finished (at_most_once)"""
    late_results: int
    """came after the partition had left"""
    rebalances: int
    """of the group, as this member saw them"""
    commit_failures: int
    """commits"""
    park_failures: int
    """writes to dead-letter and retry topics"""
    out_of_range: int
    """times that the position was no longer in the log"""
    failures: dict[str, int]
    """failed attempts, in records, by reason (e.g. {"timeout": 3})"""


@dataclass(frozen=True, slots=True)
class RatesStatus:
    """Of the last ten seconds."""

    received_per_second: float
    """records (e.g. 380.0)"""
    delivered_per_second: float
    """records (e.g. 393.0)"""
    failed_per_second: float
    """attempts, in records (e.g. 1.8)"""
    throttled_share: float | None
    """of the requests those answered that the application has too much to do (429, 503); null
    where there was none (e.g. 0.013)"""


@dataclass(frozen=True, slots=True)
class PercentilesStatus:
    """Of the last minute, of the requests that reached the application; None: there was none."""

    p50: float | None
    """seconds (e.g. 0.0052)"""
    p95: float | None
    """seconds (e.g. 0.159)"""
    p99: float | None
    """seconds (e.g. 1.5)"""


@dataclass(frozen=True, slots=True)
class RouteStatus:
    """One route."""

    name: str
    """(e.g. "orders")"""
    target: str
    """the template of the address (e.g. "http://127.0.0.1:8080/events/{topic}")"""
    guarantee: Guarantee
    state: RouteState
    """where it is in its life, and whether somebody stopped it"""
    threshold: int
    """records in flight at most, in effect now; see thresholds (e.g. 1000)"""
    threshold_bytes: int
    """bytes in flight at most (e.g. 16777216)"""
    buffered: int
    """records that wait for an executor (e.g. 492)"""
    executing: int
    """records with a request out (e.g. 15)"""
    delayed: int
    """records that wait for their next attempt, or to be parked (e.g. 52)"""
    parking: int
    """records that wait to be parked; part of delayed (e.g. 2)"""
    in_flight: int
    """records: buffered, executing and delayed (e.g. 559)"""
    in_flight_bytes: int
    """keys, values and headers (e.g. 114000)"""
    oldest_age_seconds: float | None
    """since the oldest record in flight was fetched; null where none is (e.g. 1.5)"""
    executors: ExecutorsStatus
    thresholds: ThresholdStatus
    rate_limit: RateLimitStatus
    exposure: ExposureStatus
    availability: AvailabilityStatus
    causes: list[Cause]
    """why it is slow or stopped, what stops it first; empty while all is well"""
    rates: RatesStatus
    attempt_seconds: PercentilesStatus
    counters: CountersStatus
    last_failure: str
    """of an attempt, in words (e.g. "the application answered 500")"""
    generation: int
    """rises with every change by an operator; the ETag (e.g. 1764500000000)"""


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """One assigned partition."""

    route: str
    """(e.g. "orders")"""
    topic: str
    """(e.g. "orders")"""
    partition: int
    """(e.g. 3)"""
    epoch: int
    """of the assignment: rises with each (e.g. 1)"""
    committed: int | None
    """next offset to read by the last commit; null where it is not known (e.g. 91234)"""
    watermark: int | None
    """next offset to commit: all before it is settled (e.g. 91300)"""
    span: int
    """highest received offset minus watermark (e.g. 300)"""
    outstanding: int
    """records received and not settled (e.g. 80)"""
    lag: int | None
    """end of the partition minus watermark; null where the end is not known (e.g. 1200)"""
    paused: bool | None
    """whether fetching is paused"""
    oldest_offset: int | None
    """of the oldest record in flight (e.g. 91300)"""
    oldest_age_seconds: float | None
    """since it was fetched (e.g. 1.5)"""
    delay_seconds: float | None
    """of a retry topic, whose lag is mostly what is not due yet; null for any other (e.g. 60.0)"""

    @property
    def unfetched(self) -> int | None:
        """Records that are to be fetched; what is not due yet in a retry topic is none."""
        return None if self.lag is None or self.delay_seconds else max(0, self.lag - self.span)


@dataclass(frozen=True, slots=True)
class HeaderStatus:
    """A header of a record."""

    name: str
    value: str | None
    """in base64; null where it has none"""


@dataclass(frozen=True, slots=True)
class PayloadStatus:
    """What a record holds."""

    key: str | None
    """in base64; null where it has none"""
    value: str | None
    """in base64; null where it has none"""
    headers: list[HeaderStatus]
    """in their order"""
    truncated: bool
    """whether each part is cut to its first 1 024 bytes"""


@dataclass(frozen=True, slots=True)
class ExecutingRecord:
    """A record that an executor holds, by what it was before a retry topic or a redrive."""

    route: str
    """(e.g. "orders")"""
    topic: str
    """the original one (e.g. "orders")"""
    partition: int
    """the original one (e.g. 3)"""
    offset: int
    """the original one (e.g. 91300)"""
    attempt: int
    """which request this is, 1 for the first (e.g. 2)"""
    age_seconds: float
    """since it was fetched (e.g. 9.5)"""
    executing_seconds: float
    """since its request began (e.g. 2.0)"""
    payload: PayloadStatus | None = None
    """only where it was asked for"""


@dataclass(frozen=True, slots=True)
class Status:
    """Everything at a glance."""

    version: str
    """(e.g. "1.2.3")"""
    started_at: datetime
    uptime_seconds: float
    """since the start of the process (e.g. 97.0)"""
    alive: bool
    """as /livez"""
    started: bool
    """as /startupz"""
    ready: bool
    """as /readyz"""
    drained: bool
    """whether everything is finished after a drain"""
    in_flight: int
    """records, of all routes (e.g. 559)"""
    exposure: ExposureStatus
    """of all routes"""
    routes: list[RouteStatus]
    """in the order of the configuration"""


@dataclass(frozen=True, slots=True)
class RedriveStatus:
    """The last redrive of a route that was asked for here."""

    route: str
    state: RedriveState
    """how far it is"""
    dry_run: bool
    """whether letters are only counted"""
    started_at: datetime
    ended_at: datetime | None
    """null while it runs"""
    letters: int
    """sent, or in a dry run what would be (e.g. 1000)"""
    to: dict[str, int]
    """how many to which topic"""
    reasons: dict[str, int]
    """how many that were parked for which reason"""
    refused: int
    """so many no sidecar wrote; they were left"""
    refused_first: list[str]
    """the first of them"""
    too_old: int
    """so many may have been sent so long ago that the brokers have forgotten it; they were left"""
    error: str | None
    """what ended it, in words; null where nothing did"""
