"""Sorted records, and such records for two threads: one of them answers an SDK harness."""

import threading
from collections.abc import Generator, Iterator
from typing import Protocol


class SortedRecords(Protocol):
    """The records of a shard, see ``Shard``."""

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key; None: there is none."""
        ...

    def put(self, key: bytes, value: bytes) -> None:
        """Set the value of a key."""
        ...

    def delete(self, key: bytes) -> object:
        """Remove a key, if it exists."""
        ...

    def scan(self, prefix: bytes, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Yield keys that begin with a prefix, with values, in order; changes are seen."""
        ...

    def delete_prefix(self, prefix: bytes) -> None:
        """Remove all keys that begin with a prefix."""
        ...


class LockedRecords:
    """See ``SortedRecords``. Each method, and each step of a scan, is atomic.

    The threads use different records, so that this is enough.

    Args:
        records: The records, which both threads use only through this.
    """

    def __init__(self, records: SortedRecords) -> None:
        self._all = records
        # Reentrant: garbage collection may close a scan in a thread that has the lock.
        self._using = threading.RLock()

    def get(self, key: bytes) -> bytes | None:
        """See ``SortedRecords``."""
        with self._using:
            return self._all.get(key)

    def put(self, key: bytes, value: bytes) -> None:
        """See ``SortedRecords``."""
        with self._using:
            self._all.put(key, value)

    def delete(self, key: bytes) -> object:
        """See ``SortedRecords``."""
        with self._using:
            return self._all.delete(key)

    def scan(self, prefix: bytes, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """See ``SortedRecords``."""
        steps = self._all.scan(prefix, start)
        try:
            while True:
                with self._using:
                    item = next(steps, None)
                if item is None:
                    return
                yield item
        finally:
            if isinstance(steps, Generator):
                with self._using:  # closing a cursor needs the lock, too
                    steps.close()

    def delete_prefix(self, prefix: bytes) -> None:
        """See ``SortedRecords``."""
        with self._using:
            self._all.delete_prefix(prefix)
