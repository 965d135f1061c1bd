"""Looks up values of gathered side inputs, in files that are mapped into memory."""

import mmap
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from beam_spark_runner.core import routing
from beam_spark_runner.spark.program import SideInputRows
from beam_spark_runner.spark.rows.keys import join_key
from beam_spark_runner.spark.side_inputs.files import SCHEMA

RESIDENT_BYTES = 64 << 20
"""How many bytes of mapped files a worker reads before it releases their pages.

They stay in the machine's page cache, which all workers share, but would be
counted as this process's memory for as long as it lives.
"""
_LOOKUP_BYTES = 1 << 20
"""About what one search reads: the kernel maps more than the pages that are touched."""

_Int32Array = npt.NDArray[np.int32]
_Int64Array = npt.NDArray[np.int64]


class _Column:
    """A column of byte strings, without a copy of it."""

    __slots__ = ("_data", "_offsets")

    def __init__(self, column: Any) -> None:
        _, offsets, data = column.buffers()
        first, last = column.offset, column.offset + len(column) + 1
        self._offsets: _Int32Array = np.frombuffer(offsets, np.int32)[first:last]
        self._data = memoryview(data) if data is not None else memoryview(b"")

    def __getitem__(self, row: int) -> bytes:
        return bytes(self._data[self._offsets[row] : self._offsets[row + 1]])


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


class _Batch:
    """Rows sorted by route."""

    __slots__ = ("counts", "epochs", "keys", "routes", "values")

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.routes: _Int64Array = batch.column(0).to_numpy()
        self.counts: _Int64Array = batch.column(1).to_numpy()
        self.keys = _Column(batch.column(2))
        self.values = _Column(batch.column(3))
        self.epochs: _Int64Array | None = None
        if batch.num_columns > len(SCHEMA):
            self.epochs = batch.column(len(SCHEMA)).to_numpy()


class GatheredRows:
    """All rows of one side input, shared by the stages of this worker.

    Threads: one at a time.
    """

    def __init__(self, source: SideInputRows) -> None:
        self.id = self.kept_as = source.id
        self._code = source.code
        self._maps: list[mmap.mmap] = []
        self._batches: list[_Batch] = []
        for buffer in self._open(source):
            with pa.ipc.open_file(buffer) as reader:
                for index in range(reader.num_record_batches):
                    batch = reader.get_batch(index)
                    if len(batch):
                        self._batches.append(_Batch(batch))
        self._firsts = np.array([batch.routes[0] for batch in self._batches], np.int64)
        self._lasts = np.array([batch.routes[-1] for batch in self._batches], np.int64)
        self._resident = 0
        self._lets_go = sum(map(len, self._maps)) > RESIDENT_BYTES

    def _open(self, source: SideInputRows) -> Iterator[pa.Buffer]:
        if source.inline is not None:
            yield pa.py_buffer(source.inline)
        for file in source.files:
            buffer, mapped = file.map()
            if mapped is not None:
                self._maps.append(mapped)
            yield buffer

    def values(self, window: bytes, key: bytes | None) -> Iterator[tuple[bytes, int]]:
        """See ``SideInputLookup.values``."""
        return ((coded, count) for _, coded, count in self.rows(window, key))

    def rows(self, window: bytes, key: bytes | None) -> Iterator[Row]:
        """Yield what ``values`` yields, with its epoch."""
        joined = join_key(key or b"", window)
        route = routing.route_of_key(joined, self._code)
        for place in ((self._firsts <= route) & (self._lasts >= route)).nonzero()[0].tolist():
            batch = self._batches[place]
            first = int(batch.routes.searchsorted(route))
            last = int(batch.routes.searchsorted(route, "right"))
            self._touch(_LOOKUP_BYTES)
            for row in range(first, last):
                if batch.keys[row] == joined:  # else another key with that hash
                    values = batch.values[row]
                    self._touch(len(values))
                    epoch = 0 if batch.epochs is None else int(batch.epochs[row])
                    yield Row(epoch, values, int(batch.counts[row]))

    def _touch(self, size: int) -> None:
        if not self._lets_go:
            return
        self._resident += size
        if self._resident > RESIDENT_BYTES:
            self._resident = 0
            for mapped in self._maps:
                mapped.madvise(mmap.MADV_DONTNEED)
