"""Sorts more records than fit into memory: runs on disk, which are merged block by block.

Python's own sort does the work in both phases: it takes keys of any kind that has an order, and
what it merges it finds in order already.
"""

import array
import itertools
import os
import sys
import tempfile
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

DEFAULT_MEMORY_BYTES = 128 << 20
_RECORD_BYTES = 33 + 4 * 8  # what a bytes object costs beside its bytes, and its places in lists
_LEAST_BLOCK_BYTES, _MOST_BLOCK_BYTES = 4 << 10, 256 << 10
_BLOCKS_IN_MEMORY = 64  # as a share of the limit
_DECODED = 4  # bytes of a decoded record with its key, for each byte on disk
_LEAST_RUNS = 4  # that are merged at once
_CHUNK = 128  # records that come out at once
_FLAT = frozenset({int, float, str, bytes, bool, type(None)})


class UnsortableKeyError(TypeError):
    """Two keys of a partition have no order."""


class WindowedBytes(bytes):
    """A record with its timestamp, windows and pane; plain bytes have those of no interest."""


class ExternalSorter:
    """Sorts coded records in bounded memory; those with equal keys stay in the order they came in.

    Its files have no names: they are gone with the process, however it ends.

    Threads: one at a time.

    Args:
        decode: coded records -> values, and what each has as timestamp, windows and pane.
        key: what a value is sorted by. Called again when a record is read back.
        descends: the largest key comes first.
        memory_bytes: for records that wait, with their keys. A merge takes about as much.
    """

    def __init__(
        self,
        decode: Callable[[Sequence[bytes]], tuple[list[Any], list[Any]]],
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
        self._keys: list[Any] = []
        self._coded: list[bytes] = []
        self._size = 0
        self._levels: list[list[_Run]] = []  # of runs: each level was merged once more, oldest last
        self.spilled_bytes = 0  # written to disk so far, merges included

    def add(self, keys: Sequence[Any], coded: Sequence[bytes]) -> None:
        """Take records with their keys."""
        self._keys += keys
        self._coded += coded
        self._size += sum(map(len, coded)) + _RECORD_BYTES * len(coded) + _bytes_of(keys)
        if self._size > self._limit:
            self._spill()

    def sorted(self) -> Iterator[tuple[list[Any], list[Any]]]:
        """Yield values in order, some at a time, each with what ``decode`` has told.

        Nothing can be added any more.

        Raises:
            UnsortableKeyError: keys have no order.
        """
        if not self._levels:
            coded = self._in_order()
            for start in range(0, len(coded), _CHUNK):
                yield self._decode(coded[start : start + _CHUNK])
            return
        self._spill()
        runs = [run for level in reversed(self._levels) for run in level]  # oldest first
        while len(runs) > self._most_runs:  # the newest are the smallest
            runs[-self._most_runs :] = [self._merged(runs[-self._most_runs :])]
        self._levels = [runs]  # to be closed, whatever happens
        for cursors, order in self._merge(runs):
            values = [value for cursor in cursors for value in cursor.values]
            origins = [origin for cursor in cursors for origin in cursor.origins]
            for start in range(0, len(order), _CHUNK):
                some = order[start : start + _CHUNK]
                yield [values[i] for i in some], [origins[i] for i in some]
        self.close()

    def close(self) -> None:
        """Give memory and disk back."""
        for run in itertools.chain.from_iterable(self._levels):
            run.close()
        self._keys, self._coded, self._levels = [], [], []

    def _in_order(self) -> list[bytes]:
        """Take what is in memory."""
        coded = [self._coded[i] for i in self._order(self._keys)]
        self._keys, self._coded, self._size = [], [], 0
        return coded

    def _order(self, keys: list[Any]) -> list[int]:
        try:
            return sorted(range(len(keys)), key=keys.__getitem__, reverse=self._descends)
        except TypeError as error:
            raise UnsortableKeyError(f"the records cannot be sorted: {error}") from error

    def _spill(self) -> None:
        """Write what is in memory as one run, and merge runs where there are many of a level."""
        if not self._coded:
            return
        run = self._written([self._in_order()])
        for level in itertools.count():
            if level == len(self._levels):
                self._levels.append([])
            self._levels[level].append(run)
            if len(self._levels[level]) < self._most_runs:
                return
            run = self._merged(self._levels[level])
            self._levels[level] = []

    def _written(self, parts: Iterable[list[bytes]]) -> "_Run":
        run = _Run()
        try:
            for coded in parts:
                ends = [*itertools.accumulate(map(len, coded))]
                start = size = 0
                while start < len(coded):
                    end = bisect_left(ends, size + self._block_bytes) + 1
                    self.spilled_bytes += run.append(coded[start:end])
                    start, size = end, ends[min(end, len(ends)) - 1]
        except BaseException:
            run.close()
            raise
        return run

    def _merged(self, runs: "Sequence[_Run]") -> "_Run":
        def parts() -> Iterator[list[bytes]]:
            for cursors, order in self._merge(runs):
                coded = [each for cursor in cursors for each in cursor.coded]
                yield [coded[i] for i in order]

        merged = self._written(parts())
        for run in runs:
            run.close()
        return merged

    def _merge(self, runs: "Sequence[_Run]") -> "Iterator[tuple[list[_Part], list[int]]]":
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
            yield parts, self._order([key for part in parts for key in part.keys])

    def _is_before(self, key: Any, other: Any) -> bool:
        return bool(other < key if self._descends else key < other)


class _Run:
    """Sorted records in a file without a name."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(prefix="beam-sort-", buffering=0)  # noqa: SIM115
        self._blocks: list[tuple[int, int]] = []  # where each begins, and its size
        self._end = 0

    def append(self, coded: list[bytes]) -> int:
        """Write a block; return its size in bytes.

        Its form: twice the number of records, and one more if there are lengths with flags; the
        length of each, or twice that, and one more if it is windowed; the records.
        """
        has_flags = WindowedBytes in set(map(type, coded))
        lengths = array.array("Q", [2 * len(coded) + has_flags])
        if has_flags:
            lengths.extend([2 * len(each) + (type(each) is WindowedBytes) for each in coded])
        else:
            lengths.extend(map(len, coded))
        block = b"".join((lengths.tobytes(), *coded))
        view = memoryview(block)
        while view:
            view = view[os.write(self._file.fileno(), view) :]
        self._blocks.append((self._end, len(block)))
        self._end += len(block)
        return len(block)

    def read(self, number: int) -> list[bytes] | None:
        """Return the records of a block; None if there are fewer blocks."""
        if number == len(self._blocks):
            return None
        start, size = self._blocks[number]
        pieces = []
        while size:
            piece = os.pread(self._file.fileno(), size, start)
            if not piece:
                raise EOFError(f"{size} bytes of a sorted run are missing at {start}")
            pieces.append(piece)
            start, size = start + len(piece), size - len(piece)
        block = b"".join(pieces)
        (head,) = array.array("Q", block[:8])
        count, has_flags = head >> 1, head & 1
        first = 8 + 8 * count
        numbers = array.array("Q", block[8:first])
        lengths = [each >> 1 for each in numbers] if has_flags else numbers
        ends = [*itertools.accumulate(lengths, initial=first)]
        coded = [block[start:end] for start, end in itertools.pairwise(ends)]
        if not has_flags:
            return coded
        return [
            WindowedBytes(each) if flag & 1 else each
            for each, flag in zip(coded, numbers, strict=True)
        ]

    def close(self) -> None:
        self._file.close()


class _Part:
    """Records that follow each other in one run."""

    def __init__(
        self, keys: list[Any], values: list[Any], origins: list[Any], coded: list[bytes]
    ) -> None:
        self.keys = keys
        self.values = values
        self.origins = origins
        self.coded = coded


class _Cursor(_Part):
    """What has been read of a run, and not taken yet."""

    def __init__(
        self,
        run: _Run,
        decode: Callable[[Sequence[bytes]], tuple[list[Any], list[Any]]],
        key: Callable[[Any], Any],
    ) -> None:
        super().__init__([], [], [], [])
        self._run = run
        self._decode = decode
        self._key = key
        self._next = 0

    def load(self) -> bool:
        """See to it that there are records. False: the run has no more."""
        if self.keys:
            return True
        coded = self._run.read(self._next)
        if coded is None:
            return False
        self._next += 1
        self.values, self.origins = self._decode(coded)
        self.keys, self.coded = [*map(self._key, self.values)], coded
        return True

    def take(self, bound: Any, *, descends: bool, equals_too: bool) -> _Part:
        """Take the records before ``bound``, or up to it."""
        if descends:
            end = _bisect_descending(self.keys, bound, equals_too=equals_too)
        else:
            end = (bisect_right if equals_too else bisect_left)(self.keys, bound)
        part = _Part(self.keys[:end], self.values[:end], self.origins[:end], self.coded[:end])
        self.keys, self.values = self.keys[end:], self.values[end:]
        self.origins, self.coded = self.origins[end:], self.coded[end:]
        return part


def _bisect_descending(keys: list[Any], bound: Any, *, equals_too: bool) -> int:
    low, high = 0, len(keys)
    while low < high:
        middle = (low + high) // 2
        is_taken = not keys[middle] < bound if equals_too else bound < keys[middle]
        if is_taken:
            low = middle + 1
        else:
            high = middle
    return low


def _bytes_of(keys: Sequence[Any]) -> int:
    """Estimate the memory of keys: they may be parts of elements, which live on with them."""
    if _FLAT.issuperset(map(type, keys)):
        return sum(map(sys.getsizeof, keys))
    return sum(map(_bytes_of_one, keys))


def _bytes_of_one(key: Any) -> int:
    parts: Iterable[Any] = ()
    if isinstance(key, tuple | list):
        parts = key
    elif hasattr(key, "__dict__"):
        parts = vars(key).values()
    return sys.getsizeof(key) + sum(map(_bytes_of_one, parts))
