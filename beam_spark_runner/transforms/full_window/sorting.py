"""An external merge sort: sorted runs on disk, which are merged block by block.

Both phases sort with ``ordering``.
"""

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import pyarrow as pa

from beam_spark_runner.transforms.full_window.ordering import Keys, Objects, Places, is_nan
from beam_spark_runner.transforms.full_window.runs import RecordBlock, SortedRun, WaitingRecords

DEFAULT_MEMORY_BYTES = 128 << 20
_MIN_BLOCK_BYTES, _MAX_BLOCK_BYTES = 4 << 10, 256 << 10
_BLOCKS_IN_MEMORY = 64  # the memory limit divided by the size of a block
_DECODED = 4  # bytes in memory of a decoded record with its key, for each byte on disk
_NEW_RECORDS = 1_000  # fewer records are sorted faster as objects
_MIN_RUNS = 4  # runs that are merged at once
_CHUNK = 128  # records that are yielded at once

Decode: TypeAlias = Callable[[RecordBlock], tuple[list[Any], list[Any]]]
"""Encoded records -> values, and the origin of each: its timestamp, windows and pane."""


class UnsortableKeyError(TypeError):
    """Two keys of a partition have no order."""


class ExternalSorter:
    """Sorts encoded records in bounded memory. The sort is stable.

    Its files have no names, so that they are deleted however the process ends.

    Threads: one at a time.

    Args:
        decode: See ``Decode``.
        key: Returns the key of a value. It is called again for records that are read from disk.
        descends: Whether the largest key comes first.
        memory_bytes: The memory of waiting records and their keys. A merge needs about as much.
    """

    def __init__(
        self,
        decode: Decode,
        key: Callable[[Any], Any],
        *,
        descends: bool,
        memory_bytes: int,
    ) -> None:
        self._decode = decode
        self._key = key
        self._descends = descends
        self._limit = memory_bytes
        self._block_bytes = max(
            _MIN_BLOCK_BYTES, min(_MAX_BLOCK_BYTES, memory_bytes // _BLOCKS_IN_MEMORY)
        )
        self._most_runs = max(_MIN_RUNS, memory_bytes // (_DECODED * self._block_bytes))
        self._new_keys: list[Any] = []  # of new records, which ``_settle`` has not moved yet
        self._new, self._new_bytes = RecordBlock([], []), 0
        self._keys, self._records = Keys(), WaitingRecords()
        self._levels: list[list[SortedRun]] = []  # level n has runs that were merged n times
        self.spilled_bytes = 0  # written to disk so far, merges included

    def add(self, keys: Sequence[Any], block: RecordBlock) -> None:
        """Add records with their keys."""
        coded, numbers = block
        self._new_keys += keys
        self._new.coded.extend(coded)
        self._new.numbers.extend(numbers)
        self._new_bytes += sum(map(len, coded))
        if len(self._new_keys) >= _NEW_RECORDS or self._new_bytes >= self._block_bytes:
            self._settle()
            if self._keys.size_bytes + self._records.size_bytes > self._limit:
                self._spill()

    def _settle(self) -> None:
        """Move new records to the columns, in which many records are sorted fast."""
        self._keys.extend(self._new_keys)
        self._records.extend(self._new)
        self._forget_new()

    def sorted(self) -> Iterator[tuple[list[Any], list[Any]]]:
        """Yield values in order, in chunks, with the origins that ``decode`` returned.

        No records may be added any more.

        Raises:
            UnsortableKeyError: Two keys have no order.
        """
        if not self._levels:
            for block in self._blocks():
                yield from _chunks(*self._decode(block))
            self.close()
            return
        self._settle()
        self._spill()
        runs = [run for level in reversed(self._levels) for run in level]  # oldest first
        while len(runs) > self._most_runs:  # the newest are the smallest
            runs[-self._most_runs :] = [self._merge_to_run(runs[-self._most_runs :])]
        self._levels = [runs]  # so that ``close`` closes them
        for parts, places in self._merge(runs):
            order = places.tolist()
            values = [value for part in parts for value in part.values]
            origins = [origin for part in parts for origin in part.origins]
            yield from _chunks([values[i] for i in order], [origins[i] for i in order])
        self.close()

    def close(self) -> None:
        """Free memory and disk space."""
        for run in itertools.chain.from_iterable(self._levels):
            run.close()
        self._levels = []
        self._forget()

    def _forget(self) -> None:
        self._keys, self._records = Keys(), WaitingRecords()
        self._forget_new()

    def _forget_new(self) -> None:
        self._new_keys, self._new, self._new_bytes = [], RecordBlock([], []), 0

    def _blocks(self) -> Iterator[RecordBlock]:
        """Yield the records in memory, sorted."""
        if len(self._records):
            self._settle()
            yield from map(RecordBlock.of, self._in_order())
        elif self._new_keys:
            yield self._new.at(self._places(Objects(self._new_keys)).tolist())

    def _in_order(self) -> Iterator[pa.RecordBatch]:
        """Yield the settled records in memory, sorted."""
        return self._records.in_order(self._places(self._keys), self._block_bytes)

    def _places(self, keys: Keys | Objects) -> Places:
        try:
            return keys.places(descends=self._descends)
        except TypeError as error:
            raise UnsortableKeyError(f"the records cannot be sorted: {error}") from error

    def _spill(self) -> None:
        """Write the settled records as one run, and merge the runs of each level that is full."""
        if not len(self._records):
            return
        run = self._spill_run(self._in_order())
        self._forget()
        for level in itertools.count():
            if level == len(self._levels):
                self._levels.append([])
            self._levels[level].append(run)
            if len(self._levels[level]) < self._most_runs:
                return
            run = self._merge_to_run(self._levels[level])
            self._levels[level] = []

    def _spill_run(self, batches: Iterable[pa.RecordBatch]) -> SortedRun:
        run = SortedRun(batches)
        self.spilled_bytes += run.size_bytes
        return run

    def _merge_to_run(self, runs: Sequence[SortedRun]) -> SortedRun:
        def batches() -> Iterator[pa.RecordBatch]:
            for parts, places in self._merge(runs):
                records = WaitingRecords()
                for part in parts:
                    records.extend(part.block)
                yield from records.in_order(places, self._block_bytes)

        result = self._spill_run(batches())
        for run in runs:
            run.close()
        return result

    def _merge(self, runs: Sequence[SortedRun]) -> "Iterator[tuple[list[_Part], Places]]":
        """Yield parts of the runs, and the sorted indices of their records, until all are read.

        Each run has one block in memory. The last key of the block that ends first is a bound: no
        later block has records before it, so that all records up to it are merged.
        """
        cursors = [_Cursor(run, self._decode, self._key) for run in runs]
        while cursors := [cursor for cursor in cursors if cursor.load()]:
            first = 0
            for i in range(1, len(cursors)):
                if self._is_before(cursors[i].keys[-1], cursors[first].keys[-1]):
                    first = i
            bound = cursors[first].keys[-1]
            parts = [
                # Among equal keys, older runs come first; later blocks may have more of them, so
                # that newer runs have to wait.
                cursor.take_before(bound, descends=self._descends, equals_too=i <= first)
                for i, cursor in enumerate(cursors)
            ]
            keys = Keys()
            for part in parts:
                keys.extend(part.keys)
            yield parts, self._places(keys)

    def _is_before(self, key: Any, other: Any) -> bool:
        if is_nan(key) or is_nan(other):
            return not is_nan(key)
        return bool(other < key if self._descends else key < other)


def _chunks(values: list[Any], origins: list[Any]) -> Iterator[tuple[list[Any], list[Any]]]:
    for start in range(0, len(values), _CHUNK):
        yield values[start : start + _CHUNK], origins[start : start + _CHUNK]


class _Part:
    """Consecutive records of one run."""

    def __init__(
        self, keys: list[Any], values: list[Any], origins: list[Any], block: RecordBlock
    ) -> None:
        self.keys = keys
        self.values = values
        self.origins = origins
        self.block = block


class _Cursor(_Part):
    """The records of a run that have been read, and not been merged yet."""

    def __init__(
        self,
        run: SortedRun,
        decode: Decode,
        key: Callable[[Any], Any],
    ) -> None:
        super().__init__([], [], [], RecordBlock([], []))
        self._run = run
        self._decode = decode
        self._key = key
        self._next = 0

    def load(self) -> bool:
        """Read a block if there are no records; return whether there are records now."""
        if self.keys:
            return True
        block = self._run.read(self._next)
        if block is None:
            return False
        self._next += 1
        self.values, self.origins = self._decode(block)
        self.keys, self.block = [*map(self._key, self.values)], block
        return True

    def take_before(self, bound: Any, *, descends: bool, equals_too: bool) -> _Part:
        """Remove and return the records before ``bound``, with ``equals_too`` also equal ones."""
        comparable = len(self.keys)
        while comparable and is_nan(self.keys[comparable - 1]):
            comparable -= 1
        if is_nan(bound):
            end = len(self.keys) if equals_too else comparable
        elif descends:
            end = _bisect_descending(self.keys, bound, comparable, equals_too=equals_too)
        else:
            bisect = bisect_right if equals_too else bisect_left
            end = bisect(self.keys, bound, 0, comparable)
        part = _Part(
            self.keys[:end], self.values[:end], self.origins[:end], self.block.part(0, end)
        )
        self.keys, self.values = self.keys[end:], self.values[end:]
        self.origins, self.block = self.origins[end:], self.block.part(end)
        return part


def _bisect_descending(keys: list[Any], bound: Any, high: int, *, equals_too: bool) -> int:
    low = 0
    while low < high:
        middle = (low + high) // 2
        is_taken = not keys[middle] < bound if equals_too else bound < keys[middle]
        if is_taken:
            low = middle + 1
        else:
            high = middle
    return low
