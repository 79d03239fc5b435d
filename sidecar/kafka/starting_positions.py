"""Where partitions start: at what the group has committed, else where the policy says.

Owner: the fetcher, on its thread, which decides when to ask and when to ask again. Keeps nothing
between two calls.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from sidecar.model import Partition
from sidecar.ports import Committed, RecordSource

REQUEST_SECONDS: Final = 5.0
HINT_SECONDS: Final = 1.0  # for what everything works without


class Found(NamedTuple):
    """A model.Start without its assignment, which begins when all of them are found."""

    offset: int
    committed: bool
    metadata: str = ""
    topic_id: str = ""


NOT_FOUND: Final = Found(-1, committed=False)


class StartingPositions:
    """Methods raise SourceError where the broker does not answer.

    from_end: where the group has no position, start at the end of the partition; not so in the
    group's own topics, which hold nothing but what it has still to do. with_topic_ids: the group
    commits done-maps, which nobody can read without the topic's id.
    """

    def __init__(
        self,
        source: RecordSource,
        *,
        from_end: bool,
        with_topic_ids: bool,
        own_topics: Collection[str] = (),
    ) -> None:
        self._source: Final = source
        self._from_end: Final = from_end
        self._with_topic_ids: Final = with_topic_ids
        self._own_topics: Final = own_topics

    def find(self, partitions: Sequence[Partition]) -> dict[Partition, Found]:
        committed = self._source.committed(partitions, REQUEST_SECONDS)
        found: dict[Partition, Found] = {}
        knows: dict[str, bool] = {}
        for partition in partitions:
            offset, metadata = committed.get(partition, Committed(None, ""))
            if offset is not None:
                found[partition] = Found(offset, committed=True, metadata=metadata)
            else:
                found[partition] = Found(self.by_policy(partition, knows), committed=False)
        if not self._with_topic_ids:
            return found
        ids = self._source.topic_ids({partition.topic for partition in partitions}, HINT_SECONDS)
        return {
            partition: each._replace(topic_id=ids.get(partition.topic, ""))
            for partition, each in found.items()
        }

    def by_policy(self, partition: Partition, knows: dict[str, bool]) -> int:
        """Without a commit: the beginning, or the end if so configured.

        A partition of a topic that the group knows starts at its beginning in any case: it was
        added, or lost its position, while the group was there. knows keeps what was asked before.
        """
        low, high = self._source.watermarks(partition, REQUEST_SECONDS)
        topic = partition.topic
        if not self._from_end or topic in self._own_topics:
            return low
        if topic not in knows:
            knows[topic] = self._source.group_knows(topic, REQUEST_SECONDS)
        return low if knows[topic] else high
