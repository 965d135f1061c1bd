"""Sorts more records than fit into memory: runs on disk, which are merged block by block.

The same sort does the work in both phases (``ordering``).
"""

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import pyarrow as pa

from beam_spark_runner.transforms.full_window.ordering import Keys, Objects, Places, is_nan
from beam_spark_runner.transforms.full_window.runs import Block, Run, WaitingRecords

DEFAULT_MEMORY_BYTES = 128 << 20
_LEAST_BLOCK_BYTES, _MOST_BLOCK_BYTES = 4 << 10, 256 << 10
_BLOCKS_IN_MEMORY = 64  # as a share of the limit
_DECODED = 4  # bytes of a decoded record with its key, for each byte on disk
_NEW_RECORDS = 1_000  # fewer are sorted faster as objects
_LEAST_RUNS = 4  # that are merged at once
_CHUNK = 128  # records that come out at once

Decode: TypeAlias = Callable[[Block], tuple[list[Any], list[Any]]]
"""Coded records -> values, and what each has as timestamp, windows and pane."""


class UnsortableKeyError(TypeError):
    """Two keys of a partition have no order."""


class ExternalSorter:
    """Sorts coded records in bounded memory; those with equal keys stay in the order they came in.

    Its files have no names: they are gone with the process, however it ends.

    Threads: one at a time.

    Args:
        decode: see ``Decode``.
        key: what a value is sorted by. Called again when a record is read back.
        descends: the largest key comes first.
        memory_bytes: for records that wait, with their keys. A merge takes about as much.
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
            _LEAST_BLOCK_BYTES, min(_MOST_BLOCK_BYTES, memory_bytes // _BLOCKS_IN_MEMORY)
        )
        self._most_runs = max(_LEAST_RUNS, memory_bytes // (_DECODED * self._block_bytes))
        self._new_keys: list[Any] = []  # of records that are not among the next ones yet
        self._new, self._new_bytes = Block([], []), 0
        self._keys, self._waiting = Keys(), WaitingRecords()
        self._levels: list[list[Run]] = []  # each level was merged once more, the oldest is last
        self.spilled_bytes = 0  # written to disk so far, merges included

    def add(self, keys: Sequence[Any], block: Block) -> None:
        """Take records with their keys."""
        coded, numbers = block
        self._new_keys += keys
        self._new.coded.extend(coded)
        self._new.numbers.extend(numbers)
        self._new_bytes += sum(map(len, coded))
        if len(self._new_keys) >= _NEW_RECORDS or self._new_bytes >= self._block_bytes:
            self._settle()
            if self._keys.size_bytes + self._waiting.size_bytes > self._limit:
                self._spill()

    def _settle(self) -> None:
        """Put new records where many are sorted fast."""
        self._keys.extend(self._new_keys)
        self._waiting.extend(self._new)
        self._forget_new()

    def sorted(self) -> Iterator[tuple[list[Any], list[Any]]]:
        """Yield values in order, some at a time, each with what ``decode`` returned.

        Nothing can be added any more.

        Raises:
            UnsortableKeyError: keys have no order.
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
            runs[-self._most_runs :] = [self._merged(runs[-self._most_runs :])]
        self._levels = [runs]  # to be closed, whatever happens
        for parts, places in self._merge(runs):
            order = places.tolist()
            values = [value for part in parts for value in part.values]
            origins = [origin for part in parts for origin in part.origins]
            yield from _chunks([values[i] for i in order], [origins[i] for i in order])
        self.close()

    def close(self) -> None:
        """Give memory and disk back."""
        for run in itertools.chain.from_iterable(self._levels):
            run.close()
        self._levels = []
        self._forget()

    def _forget(self) -> None:
        self._keys, self._waiting = Keys(), WaitingRecords()
        self._forget_new()

    def _forget_new(self) -> None:
        self._new_keys, self._new, self._new_bytes = [], Block([], []), 0

    def _blocks(self) -> Iterator[Block]:
        """Yield what is in memory."""
        if len(self._waiting):
            self._settle()
            yield from map(Block.of, self._in_order())
        elif self._new_keys:
            yield self._new.at(self._places(Objects(self._new_keys)).tolist())

    def _in_order(self) -> Iterator[pa.RecordBatch]:
        """Yield what is in memory and settled."""
        return self._waiting.in_order(self._places(self._keys), self._block_bytes)

    def _places(self, keys: Keys | Objects) -> Places:
        try:
            return keys.places(descends=self._descends)
        except TypeError as error:
            raise UnsortableKeyError(f"the records cannot be sorted: {error}") from error

    def _spill(self) -> None:
        """Write what is in memory as one run, and merge runs where there are many of a level."""
        if not len(self._waiting):
            return
        run = self._written(self._in_order())
        self._forget()
        for level in itertools.count():
            if level == len(self._levels):
                self._levels.append([])
            self._levels[level].append(run)
            if len(self._levels[level]) < self._most_runs:
                return
            run = self._merged(self._levels[level])
            self._levels[level] = []

    def _written(self, batches: Iterable[pa.RecordBatch]) -> Run:
        run = Run(batches)
        self.spilled_bytes += run.size_bytes
        return run

    def _merged(self, runs: Sequence[Run]) -> Run:
        def batches() -> Iterator[pa.RecordBatch]:
            for parts, places in self._merge(runs):
                records = WaitingRecords()
                for part in parts:
                    records.extend(part.block)
                yield from records.in_order(places, self._block_bytes)

        merged = self._written(batches())
        for run in runs:
            run.close()
        return merged

    def _merge(self, runs: Sequence[Run]) -> "Iterator[tuple[list[_Part], Places]]":
        """Yield parts of the runs, and the order of all their records, until all have been read.

        From the blocks that are in memory goes what no later block can come before: up to the
        last record of that block which ends first.
        """
        cursors = [_Cursor(run, self._decode, self._key) for run in runs]
        while cursors := [cursor for cursor in cursors if cursor.load()]:
            first = 0
            for i in range(1, len(cursors)):
                if self._is_before(cursors[i].keys[-1], cursors[first].keys[-1]):
                    first = i
            bound = cursors[first].keys[-1]
            parts = [
                # Of equal ones those of older runs go first; a later block may have more of them.
                cursor.take(bound, descends=self._descends, equals_too=i <= first)
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
    """Records that follow each other in one run."""

    def __init__(
        self, keys: list[Any], values: list[Any], origins: list[Any], block: Block
    ) -> None:
        self.keys = keys
        self.values = values
        self.origins = origins
        self.block = block


class _Cursor(_Part):
    """What has been read of a run, and not taken yet."""

    def __init__(
        self,
        run: Run,
        decode: Decode,
        key: Callable[[Any], Any],
    ) -> None:
        super().__init__([], [], [], Block([], []))
        self._run = run
        self._decode = decode
        self._key = key
        self._next = 0

    def load(self) -> bool:
        """See to it that there are records. False: the run has no more."""
        if self.keys:
            return True
        block = self._run.read(self._next)
        if block is None:
            return False
        self._next += 1
        self.values, self.origins = self._decode(block)
        self.keys, self.block = [*map(self._key, self.values)], block
        return True

    def take(self, bound: Any, *, descends: bool, equals_too: bool) -> _Part:
        """Take the records before ``bound``, or up to it."""
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
