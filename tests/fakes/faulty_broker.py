"""The embedded broker with switches for faults, for tests only.

Owner: the test. Uses the library handle of EmbeddedBroker; only where can_create_topics is True.
"""

from __future__ import annotations

import ctypes

from sidecar.kafka.embedded import EmbeddedBroker

OFFSET_COMMIT = 8
_FIRST_BROKER = 1


class FaultyBroker(EmbeddedBroker):
    def set_down(self) -> None:
        """Close all connections and refuse new ones."""
        self._do("rd_kafka_mock_broker_set_down", ctypes.c_int32(_FIRST_BROKER))

    def set_up(self) -> None:
        self._do("rd_kafka_mock_broker_set_up", ctypes.c_int32(_FIRST_BROKER))

    def set_delay(self, seconds: float) -> None:
        """Every answer comes this much later."""
        milliseconds = ctypes.c_int(round(seconds * 1000))
        self._do("rd_kafka_mock_broker_set_rtt", ctypes.c_int32(_FIRST_BROKER), milliseconds)

    def fail_next(self, api_key: int, *codes: int) -> None:
        """Answer the next requests of this kind with these error codes, one each."""
        errors = (ctypes.c_int * len(codes))(*codes)
        self._do(
            "rd_kafka_mock_push_request_errors_array",
            ctypes.c_int16(api_key),
            ctypes.c_size_t(len(codes)),
            errors,
        )

    def _do(self, function: str, *arguments: object) -> None:
        assert self._library is not None
        getattr(self._library, function)(ctypes.c_void_p(self._cluster), *arguments)
