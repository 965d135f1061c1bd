"""Keyed records that two threads use: the task's, and the one that answers an SDK harness."""

import threading
from collections.abc import Iterable, Iterator, Sequence

from beam_spark_runner.state.remote.remote_records import RemoteRecords


class LockedRecords:
    """See ``RemoteRecords``. Each method, and each step of a scan, is atomic.

    Args:
        records: The records, which are used only through this.
    """

    def __init__(self, records: RemoteRecords) -> None:
        self._records = records
        # Reentrant: garbage collection may close a scan in a thread that has the lock.
        self._using = threading.RLock()

    def get(self, key: bytes) -> bytes | None:
        """See ``SortedRecords``."""
        with self._using:
            return self._records.get(key)

    def put(self, key: bytes, value: bytes) -> None:
        """See ``SortedRecords``."""
        with self._using:
            self._records.put(key, value)

    def delete(self, key: bytes) -> None:
        """See ``SortedRecords``."""
        with self._using:
            self._records.delete(key)

    def scan(self, prefix: bytes, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """See ``SortedRecords``."""
        steps = self._records.scan(prefix, start)
        while True:
            with self._using:
                item = next(steps, None)
            if item is None:
                return
            yield item

    def ask(self, user_keys: Iterable[bytes]) -> None:
        """See ``RemoteRecords``."""
        with self._using:
            self._records.ask(user_keys)

    def ask_values(self, user_keys: Iterable[bytes]) -> None:
        """See ``RemoteRecords``."""
        with self._using:
            self._records.ask_values(user_keys)

    def ask_records(self, keys: Sequence[bytes]) -> None:
        """See ``RemoteRecords``."""
        with self._using:
            self._records.ask_records(keys)

    def delete_prefix(self, prefix: bytes) -> None:
        """See ``SortedRecords``."""
        with self._using:
            self._records.delete_prefix(prefix)
