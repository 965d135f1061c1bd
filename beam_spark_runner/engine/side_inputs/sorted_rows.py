"""Rows of side inputs in the blocks of a file: columns that a reader uses where they are mapped.

A block is the number of its rows and of its columns of numbers (two, or three with epochs), as
64-bit integers; these columns; the offsets of keys and of values, of 32 bits, and then the bytes
that they point to. All numbers are little-endian.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

BLOCK_BYTES = 64 << 10
"""About the bytes of a block, of which a lookup reads all; a longer row is a block by itself."""
_HEAD = 2
_ROW_BYTES = 32  # numbers and offsets of a row

Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]


class Strings:
    """A column of byte strings, without a copy of it."""

    __slots__ = ("_data", "offsets")

    def __init__(self, offsets: Int32Array, data: memoryview) -> None:
        self.offsets, self._data = offsets, data

    @classmethod
    def of_arrow(cls, column: Any) -> "Strings":
        """Return an Arrow column of byte strings."""
        _, offsets, data = column.buffers()
        first, last = column.offset, column.offset + len(column) + 1
        return cls(
            np.frombuffer(offsets, np.int32)[first:last],
            memoryview(data if data is not None else b""),
        )

    def __getitem__(self, row: int) -> bytes:
        return bytes(self._data[self.offsets[row] : self.offsets[row + 1]])

    def coded(self, begin: int, end: int) -> tuple[bytes, memoryview]:
        """Return the offsets of some rows, from 0 on, and their bytes."""
        offsets = self.offsets[begin : end + 1]
        return (offsets - offsets[0]).tobytes(), self._data[offsets[0] : offsets[-1]]


class SortedRows(NamedTuple):
    """Rows sorted by route. ``epochs``: None where there are no epochs."""

    routes: Int64Array
    counts: Int64Array
    epochs: Int64Array | None
    keys: Strings
    values: Strings

    @classmethod
    def of_arrow(cls, batch: pa.RecordBatch) -> "SortedRows":
        """Return a batch of ``files.SCHEMA`` or ``files.EPOCHS_SCHEMA``."""
        epochs = batch.column(4).to_numpy() if batch.num_columns > 4 else None
        keys, values = map(Strings.of_arrow, batch.columns[2:4])
        return cls(batch.column(0).to_numpy(), batch.column(1).to_numpy(), epochs, keys, values)

    @classmethod
    def of_block(cls, block: bytes | memoryview) -> "SortedRows":
        """Decode a block, which may be padded; its bytes are used where they are."""
        rows, columns = np.frombuffer(block, np.int64, _HEAD).tolist()
        numbers = np.frombuffer(block, np.int64, _HEAD + columns * rows)[_HEAD:]
        end = 8 * (_HEAD + columns * rows)
        offsets = np.frombuffer(block, np.int32, 2 * (rows + 1), end)
        keys, values = offsets[: rows + 1], offsets[rows + 1 :]
        content = memoryview(block)[end + offsets.nbytes :]
        return cls(
            numbers[:rows],
            numbers[rows : 2 * rows],
            numbers[2 * rows :] if columns > 2 else None,
            Strings(keys, content),
            Strings(values, content[keys[-1] :]),
        )

    def blocks(self) -> Iterator[tuple[bytes, int, int]]:
        """Yield rows in blocks, each with its first and its last route. There are rows."""
        columns = [self.routes, self.counts, *([] if self.epochs is None else [self.epochs])]
        begins = self._begins().tolist()
        for begin, end in zip(begins, [*begins[1:], len(self.routes)], strict=True):
            head = np.array([end - begin, len(columns)], np.int64).tobytes()
            (key_offsets, keys), (value_offsets, values) = (
                column.coded(begin, end) for column in (self.keys, self.values)
            )
            numbers = (column[begin:end].tobytes() for column in columns)
            block = b"".join((head, *numbers, key_offsets, value_offsets, keys, values))
            yield block, int(self.routes[begin]), int(self.routes[end - 1])

    def _begins(self) -> Int64Array:
        """Return the first rows of the blocks."""
        sizes = np.diff(self.keys.offsets).astype(np.int64)
        sizes += np.diff(self.values.offsets) + _ROW_BYTES
        places = (np.cumsum(sizes) - sizes) // BLOCK_BYTES
        is_long = sizes > BLOCK_BYTES
        begins = (places[1:] != places[:-1]) | is_long[1:] | is_long[:-1]
        return np.concatenate(([0], 1 + begins.nonzero()[0]))
