"""Looks up values of gathered side inputs, in files that are mapped into memory."""

import heapq
import mmap
from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from beam_spark_runner.core import routing
from beam_spark_runner.engine.program import SideInputRows
from beam_spark_runner.engine.rows.joined_keys import join_key, split_key
from beam_spark_runner.engine.shared_file import MountedFile
from beam_spark_runner.engine.side_inputs.files import EPOCHS_SCHEMA
from beam_spark_runner.engine.side_inputs.sorted_rows import SortedRows
from beam_spark_runner.state.checked_blocks import BlockReader, DamagedFileError
from beam_spark_runner.state.checked_files import ARROW_START

RESIDENT_BYTES = 64 << 20
"""How many bytes of mapped files a worker reads before it releases their pages.

They stay in the machine's page cache, which all workers share, but would be
counted as this process's memory for as long as it lives.
"""
_MAX_READ = 4_096
"""The most batches that are kept open: each takes about a kilobyte. Others are verified again."""


class Row(NamedTuple):
    """Values of one window and key.

    Attributes:
        epoch: the epoch in which they have come; 0 where there are no epochs.
        coded: their nested encodings, one after the other.
        values: how many they are.
    """

    epoch: int
    coded: bytes
    values: int


class _File(Protocol):
    """A file of sorted batches.

    Attributes:
        batches: of each batch: its first and its last route, and its bytes.
    """

    batches: list[tuple[int, int, int]]

    def batch(self, number: int) -> SortedRows:
        """Return a batch, by its number."""


class _BlockFile:
    """A file that ``SortedWriter`` has written; batches are verified."""

    def __init__(self, buffer: pa.Buffer, name: str, place: str) -> None:
        content = memoryview(buffer)
        self._reader = BlockReader(
            lambda start, size: content[start : start + size], len(content), name, place
        )
        self.batches = [(block.first, block.last, block.size) for block in self._reader.blocks]

    def batch(self, number: int) -> SortedRows:
        return SortedRows.of_block(self._reader.content(self._reader.blocks[number]))


class _ArrowFile:
    """A view of a version of this package whose files have no digests."""

    def __init__(self, buffer: pa.Buffer, place: str) -> None:
        try:
            with pa.ipc.open_file(buffer) as reader:
                batches = [reader.get_batch(rows) for rows in range(reader.num_record_batches)]
            for batch in batches:
                batch.validate(full=True)
            if any(batch.schema != EPOCHS_SCHEMA for batch in batches):
                raise DamagedFileError(place, "it is no view")
        except (OSError, pa.ArrowException) as error:
            raise DamagedFileError(place, f"it is no whole Arrow file: {error}") from error
        self._batches = [SortedRows.of_arrow(batch) for batch in batches if len(batch)]
        self.batches = [
            (int(rows.routes[0]), int(rows.routes[-1]), rows.routes.nbytes)
            for rows in self._batches
        ]

    def batch(self, number: int) -> SortedRows:
        return self._batches[number]


def distinct_keys(routed_keys: Sequence[Iterator[tuple[int, bytes]]]) -> Iterator[bytes]:
    """Yield each key once. Each of the iterators has keys in the order of their routes."""
    for _, keys in groupby(heapq.merge(*routed_keys), itemgetter(0)):
        yield from dict.fromkeys(key for _, key in keys)


class GatheredRows:
    """All rows of one side input, shared by the stages of this worker.

    Threads: one at a time.

    Raises:
        DamagedFileError: a file is damaged. What a lookup reads is verified then.
        OSError: a file cannot be read.
    """

    def __init__(self, source: SideInputRows) -> None:
        self.id = self.cache_id = source.id
        self._code = source.code
        self._maps: list[mmap.mmap] = []
        files = list(self._open_files(source))
        self._places = [(file, number) for file in files for number in range(len(file.batches))]
        self._firsts = np.array([first for file in files for first, *_ in file.batches], np.int64)
        self._lasts = np.array([last for file in files for _, last, _ in file.batches], np.int64)
        self._sizes = [size for file in files for *_, size in file.batches]
        self._batches: dict[int, SortedRows] = {}  # verified batches, by the index in these lists
        self._resident_bytes = 0
        self._releases_pages = sum(map(len, self._maps)) > RESIDENT_BYTES

    def _open_files(self, source: SideInputRows) -> Iterator[_File]:
        if source.inline is not None:
            yield _BlockFile(pa.py_buffer(source.inline), source.name, source.id)
        for file in source.files:
            place = file.path if isinstance(file, MountedFile) else source.id
            try:
                buffer, mapped = file.map()
            except ValueError as error:  # no memory map is empty
                raise DamagedFileError(place, "it is empty") from error
            if mapped is not None:
                self._maps.append(mapped)
            if source.name and memoryview(buffer)[: len(ARROW_START)] == ARROW_START:
                yield _ArrowFile(buffer, place)
            else:
                yield _BlockFile(buffer, source.name, place)

    def values(self, window: bytes, key: bytes | None) -> Iterator[tuple[bytes, int]]:
        """See ``SideInputLookup.values``."""
        return ((coded, count) for _, coded, count in self.rows(window, key))

    def rows(self, window: bytes, key: bytes | None) -> Iterator[Row]:
        """Yield what ``values`` yields, with its epoch."""
        joined_key = join_key(key or b"", window)
        route = routing.route_of_key(joined_key, self._code)
        for place in ((self._firsts <= route) & (self._lasts >= route)).nonzero()[0].tolist():
            batch = self._batches.get(place) or self._batch(place)
            if self._releases_pages:
                self._count_read(self._sizes[place])
            first = int(batch.routes.searchsorted(route))
            last = int(batch.routes.searchsorted(route, "right"))
            for row in range(first, last):
                if batch.keys[row] == joined_key:  # else another key with that hash
                    epoch = 0 if batch.epochs is None else int(batch.epochs[row])
                    yield Row(epoch, batch.values[row], int(batch.counts[row]))

    def keys(self, window: bytes) -> Iterator[bytes]:
        """See ``SideInputLookup.keys``."""
        return distinct_keys([self.routed_keys(window)])

    def routed_keys(self, window: bytes) -> Iterator[tuple[int, bytes]]:
        """Yield the keys of a window in the order of their routes; a key may come again."""
        return heapq.merge(*(self._keys_in(place, window) for place in range(len(self._places))))

    def _keys_in(self, place: int, window: bytes) -> Iterator[tuple[int, bytes]]:
        batch = self._batches.get(place) or self._batch(place)
        if self._releases_pages:
            self._count_read(self._sizes[place])
        for row, route in enumerate(batch.routes.tolist()):
            key, of_window = split_key(batch.keys[row])
            if of_window == window:
                yield route, key

    def _batch(self, place: int) -> SortedRows:
        if len(self._batches) == _MAX_READ:
            self._batches.clear()
        file, number = self._places[place]
        batch = self._batches[place] = file.batch(number)
        return batch

    def _count_read(self, size: int) -> None:
        self._resident_bytes += size
        if self._resident_bytes > RESIDENT_BYTES:
            self._resident_bytes = 0
            for mapped in self._maps:
                mapped.madvise(mmap.MADV_DONTNEED)
