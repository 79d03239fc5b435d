"""What becomes of records that the application does not take: retries, retry topics, parking."""

from __future__ import annotations

from pydantic import Field

from sidecar.settings.fields import Count, Number, PositiveSeconds, Seconds, Section, TopicName


class RetryTopicSettings(Section):
    """One durable retry: a topic whose records are delivered again once they are due."""

    delay_seconds: Number = Field(
        gt=0,
        le=604_800,
        description="from the write to the next attempt; never early, at most 1 s late",
    )
    topic: TopicName | None = Field(
        default=None,
        description="name of the topic; default: route name, group and delay, as in"
        " orders.billing.retry.60s",
    )


class RetrySettings(Section):
    """How often and how patiently a record is tried again. The schedule has full jitter."""

    max_attempts: Count = Field(
        default=5, ge=1, le=1000, description="attempts, the first included"
    )
    initial_backoff_seconds: PositiveSeconds = Field(
        default=0.2, description="upper bound of the first wait; it doubles from attempt to attempt"
    )
    max_backoff_seconds: PositiveSeconds = Field(
        default=30.0, description="upper bound of any wait"
    )
    max_age_seconds: PositiveSeconds | None = Field(
        default=None,
        description="no further attempt once the first one is this long ago, whatever the time was"
        " spent with: while the app is away nothing is given up, and the first failure after that"
        " is the last; null: no limit",
    )
    retry_after_max_seconds: Seconds = Field(
        default=300.0, description="the longest wait an app can ask for with Retry-After"
    )
    topics: tuple[RetryTopicSettings, ...] = Field(
        default=(),
        description="durable retries after those in memory, one attempt each, in this order;"
        " at_least_once only",
    )
    create_topics: bool = Field(
        default=True,
        description="create retry topics that are missing; false: somebody else does, and"
        " sidecar check says which are missing",
    )


class DeadLetterSettings(Section):
    """Where records go that the app does not take."""

    topic: TopicName = Field(description="dead-letter topic")
