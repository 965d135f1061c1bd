"""Messages in the form of ``confluent_kafka.Message``."""


class Record:
    """One with a time of seven seconds."""

    def __init__(self, offset: int, timestamp_ms: int = 7000) -> None:
        self._offset, self._timestamp_ms = offset, timestamp_ms

    def error(self) -> None:
        return None

    def topic(self) -> str:
        return "topic"

    def partition(self) -> int:
        return 0

    def headers(self) -> None:
        return None

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes:
        return b"key"

    def value(self) -> bytes:
        return b"%d" % self._offset

    def timestamp(self) -> tuple[int, int]:
        return 1, self._timestamp_ms
