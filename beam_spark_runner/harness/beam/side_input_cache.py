"""A cache of decoded values of side inputs, for all bundles of this worker.

The SDK decodes a view again for every bundle, and an iterable view again for
every element that reads it. Values of the cache are shared by all readers,
which must not mutate side inputs, as Beam requires.
"""

import threading
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, NamedTuple

from apache_beam.coders import coder_impl
from apache_beam.runners.worker.statecache import get_deep_size

from beam_spark_runner.harness.bundle import SideInputValues

_BLOCK = 256  # values that are decoded ahead at most; at first fewer
_MEASURE_EVERY_BYTES = 1 << 20  # a measurement takes half a millisecond
_POINTER_BYTES = 8
_ENTRY_BYTES = 400  # size of an entry without its values
_MAX_SCALES = 1_000


class _Key(NamedTuple):
    side_input: str
    window: bytes
    key: bytes | None


class _Scale:
    """Estimates the memory of a side input's values from their encoded size.

    The ratio is measured on some of the values, with all objects that they refer to.
    """

    def __init__(self) -> None:
        self._measured = self._coded = self._until_next = 0

    def add(self, values: list[Any], coded_bytes: int) -> None:
        self._until_next -= coded_bytes
        if self._until_next <= 0:
            self._until_next = _MEASURE_EVERY_BYTES
            self._measured += get_deep_size(*values)
            self._coded += coded_bytes

    def size_of(self, count: int, coded_bytes: int) -> int:
        return count * _POINTER_BYTES + coded_bytes * self._measured // max(self._coded, 1)


class DecodedCache:
    """An LRU cache of decoded values, for all jobs, with a limit on their estimated size.

    Threads: any. A job may end while a task of another one reads.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._limit_bytes = 0
        self._size = 0
        self._entries: OrderedDict[_Key, tuple[list[Any], int]] = OrderedDict()
        self._scales: dict[str, _Scale] = {}

    def limit(self, limit_bytes: int) -> None:
        """Set the limit in bytes, and evict entries beyond it; 0: cache nothing."""
        with self._lock:
            self._limit_bytes = limit_bytes
            self._evict()

    def forget(self, job_id: str) -> None:
        """Drop the values of a job."""
        with self._lock:
            for id_ in [id_ for id_ in self._entries if id_.side_input.startswith(f"{job_id}/")]:
                self._size -= self._entries.pop(id_)[1]
            for name in [name for name in self._scales if name.startswith(f"{job_id}/")]:
                del self._scales[name]

    def values(
        self, lookup: SideInputValues, window: bytes, key: bytes | None, coder: coder_impl.CoderImpl
    ) -> Iterator[Any]:
        """Iterate over a side input's values of a window, and of a key if it is a multimap."""
        id_ = _Key(lookup.id, window, key)
        with self._lock:
            entry = self._entries.get(id_)
            if entry is not None:
                self._entries.move_to_end(id_)
                return iter(entry[0])
        return self._decoded(id_, lookup, coder)

    def _decoded(
        self, id_: _Key, lookup: SideInputValues, coder: coder_impl.CoderImpl
    ) -> Iterator[Any]:
        decode = coder.decode_from_stream
        # None: the values exceed the limit.
        values: list[Any] | None = [] if self._limit_bytes else None
        with self._lock:
            scale = self._scales.setdefault(id_.side_input, _Scale())
            if len(self._scales) > _MAX_SCALES:  # in epochs, a side input gets new ids
                del self._scales[next(iter(self._scales))]
        size, coded_bytes, length = _ENTRY_BYTES, 0, 1
        for coded, count in lookup.values(id_.window, id_.key):
            stream = coder_impl.create_InputStream(coded)
            remaining, unread = count, stream.size()
            while remaining:
                block = [decode(stream, True) for _ in range(min(remaining, length))]
                yield from block
                if values is not None:
                    rest = stream.size()
                    scale.add(block, unread - rest + len(block))  # encodings may be empty
                    coded_bytes, unread = coded_bytes + unread - rest + len(block), rest
                    values.extend(block)
                    size = _ENTRY_BYTES + scale.size_of(len(values), coded_bytes)
                    if size > self._limit_bytes:
                        values = None
                remaining -= len(block)
                length = min(2 * length, _BLOCK)
        if values is None:
            return
        with self._lock:
            if id_ not in self._entries:
                self._entries[id_] = values, size
                self._size += size
                self._evict()

    def _evict(self) -> None:
        """Drop entries beyond the limit. The caller holds the lock."""
        while self._size > self._limit_bytes:
            _, (_, size) = self._entries.popitem(last=False)
            self._size -= size
