"""Records that wait to be written, and when they are.

Without threads and clock: whoever calls has both.
"""


class EventBuffer:
    """Collects records until they are due: when there are enough, or the first one is old enough.

    Args:
        full_bytes: The size from which the buffer is full.
        interval_s: The time after which a record is due.
    """

    def __init__(self, full_bytes: int, interval_s: float) -> None:
        self._full_bytes, self._interval_s = full_bytes, interval_s
        self._records: list[bytes] = []
        self._bytes = 0
        self._due_s: float | None = None

    def add(self, record: bytes, now_s: float) -> None:
        """Add a record.

        Args:
            record: The record.
            now_s: The time now, on any clock that is never set back.
        """
        self._records.append(record)
        self._bytes += len(record)
        if self._due_s is None:
            self._due_s = now_s + self._interval_s

    @property
    def is_empty(self) -> bool:
        """Whether no records wait."""
        return not self._records

    @property
    def is_full(self) -> bool:
        """Whether the records are due because of their size."""
        return self._bytes >= self._full_bytes

    def wait_s(self, now_s: float) -> float | None:
        """Return how long the records may still wait. 0: they are due. None: there are none."""
        if self._due_s is None:
            return None
        return 0.0 if self.is_full else max(0.0, self._due_s - now_s)

    def take_all(self) -> bytes:
        """Remove all records, and return them in the order in which they were added."""
        records = b"".join(self._records)
        self._records.clear()
        self._bytes, self._due_s = 0, None
        return records
