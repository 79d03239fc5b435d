"""The places: two counters that only rise, and what lies between them."""

from __future__ import annotations

from sidecar.core.places import Places


def test_in_flight_is_what_was_taken_and_is_not_free_again() -> None:
    places = Places(threshold=10, threshold_bytes=100)
    places.taken, places.taken_bytes = 7, 70
    places.freed, places.freed_bytes = 3, 30
    assert (places.in_flight, places.in_flight_bytes) == (4, 40)
    assert (places.threshold, places.threshold_bytes, places.wake_at) == (10, 100, 0)


def test_a_thread_that_sees_the_other_counter_late_sees_too_few_free_places() -> None:
    """Why no lock is needed: the fetch thread's view of freed may lag, its own taken may not."""
    places = Places(threshold=10, threshold_bytes=100)
    places.taken = 10
    seen_late = places.freed
    places.freed += 4
    assert places.threshold - (places.taken - seen_late) <= places.threshold - places.in_flight
