"""ports.Delivery answered by hand: the test is the application.

It insists on the port's rules: one request at a time, nothing on a closed slot, no slot closed
while its request runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sidecar.model import Answer, Record, Result

Probed = Callable[[str | None], None]


class ManualSlot:
    """sent: what abort says of the running request."""

    def __init__(self, delivery: ManualDelivery, number: int) -> None:
        self._delivery = delivery
        self._done: Callable[[Result], None] | None = None
        self.number = number
        self.record: Record | None = None
        self.attempt = 0
        self.closed = False
        self.sent = True

    @property
    def running(self) -> bool:
        return self._done is not None

    def send(self, record: Record, attempt: int, done: Callable[[Result], None]) -> None:
        assert not self.closed, "a request on a closed slot"
        assert self._done is None, "two requests at a time"
        self.record, self.attempt, self._done = record, attempt, done
        self._delivery.running.append(self)
        self._delivery.requests.append((record, attempt))

    def send_batch(
        self, batch: Sequence[tuple[Record, int]], done: Callable[[Result], None]
    ) -> None:
        assert len({record.topic for record, _ in batch}) == 1, "a batch is of one topic"
        record, attempt = batch[0]
        self.send(record, attempt, done)
        self._delivery.requests += batch[1:]

    def answer(self, result: Result | None = None) -> None:
        """Give the running request its result: a plain 204 if none is given."""
        done = self._end()
        done(Answer(204) if result is None else result)

    def abort(self) -> bool:
        self._end()
        self._delivery.aborted += 1
        return self.sent

    def close(self) -> None:
        assert not self.closed, "closed twice"
        assert self._done is None, "closed while a request runs"
        self.closed = True

    def _end(self) -> Callable[[Result], None]:
        done, self._done = self._done, None
        assert done is not None, "no request runs"
        self._delivery.running.remove(self)
        return done


class ManualDelivery:
    """running: the slots whose requests have no answer yet, in the order of their start."""

    def __init__(self) -> None:
        self.slots: list[ManualSlot] = []
        self.running: list[ManualSlot] = []
        self.requests: list[tuple[Record, int]] = []
        self.probes: list[Probed] = []
        self.probed = 0
        self.aborted = 0
        self.closed = False

    @property
    def open(self) -> list[ManualSlot]:
        return [slot for slot in self.slots if not slot.closed]

    def open_slot(self) -> ManualSlot:
        slot = ManualSlot(self, len(self.slots))
        self.slots.append(slot)
        return slot

    def probe(self, done: Probed) -> None:
        assert not self.closed, "a probe after the end"
        self.probed += 1
        self.probes.append(done)

    def answer_probe(self, error: str | None) -> None:
        """Give the oldest probe that waits its answer."""
        self.probes.pop(0)(error)

    async def close(self) -> None:
        self.closed = True
