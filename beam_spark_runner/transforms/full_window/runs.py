"""Encoded records in memory that wait to be sorted, and sorted runs on disk.

Pickled by value, see ``functions``.
"""

import array
import tempfile
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from beam_spark_runner.transforms.full_window.ordering import Places

_EXTRA_BYTES = 8 + 2 + 3 * 8  # length and number; during a sort: offset, index and sum
_SCHEMA = pa.schema([("coded", pa.large_binary()), ("number", pa.int16())])


class RecordBlock(NamedTuple):
    """Encoded records.

    Attributes:
        coded: The encoded values or elements.
        numbers: A number of the caller for each record, less than 2^15.
    """

    coded: list[bytes]
    numbers: list[int]

    def part(self, start: int, end: int | None = None) -> "RecordBlock":
        """Return the records from index ``start`` to before ``end``."""
        return RecordBlock(self.coded[start:end], self.numbers[start:end])

    def at(self, places: list[int]) -> "RecordBlock":
        """Return the records at these indices."""
        return RecordBlock([self.coded[i] for i in places], [self.numbers[i] for i in places])

    @staticmethod
    def of(batch: pa.RecordBatch) -> "RecordBlock":
        """Return the records of a batch with ``_SCHEMA``."""
        coded, numbers = batch.columns
        return RecordBlock(coded.to_pylist(), numbers.to_numpy().tolist())


class WaitingRecords:
    """Encoded records in the order in which they were added, in contiguous memory."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._lengths = array.array("q")
        self._numbers = array.array("h")

    def __len__(self) -> int:
        return len(self._lengths)

    @property
    def size_bytes(self) -> int:
        """The memory of the records, with that which ``in_order`` needs, in bytes.

        The batch that ``in_order`` yields is not included.
        """
        return len(self._bytes) + len(self._lengths) * _EXTRA_BYTES

    def extend(self, block: RecordBlock) -> None:
        """Add records."""
        coded, numbers = block
        self._bytes += b"".join(coded)
        self._lengths.extend(map(len, coded))
        self._numbers.extend(numbers)

    def in_order(self, places: Places, block_bytes: int) -> Iterator[pa.RecordBatch]:
        """Yield the records in the order of ``places``, their indices.

        Each batch has at least ``block_bytes`` of records, but for the last one. No records may be
        added meanwhile.
        """
        if not len(places):
            return
        lengths = np.asarray(self._lengths)
        offsets = np.concatenate(([0], np.cumsum(lengths)))
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(self._bytes)]
        coded = pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(self), buffers)
        numbers = pa.array(np.asarray(self._numbers))
        ends = np.cumsum(lengths[places])
        start = size = 0
        while start < len(places):
            end = int(np.searchsorted(ends, size + block_bytes)) + 1
            some = pa.array(places[start:end])
            yield pa.record_batch([coded.take(some), numbers.take(some)], schema=_SCHEMA)
            start, size = end, int(ends[min(end, len(ends)) - 1])


class SortedRun:
    """Sorted records in an Arrow file without a name, which is deleted when the process ends."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        # Buffered: Arrow ignores the result of ``write``, and a raw file may write only a part.
        self._file = tempfile.TemporaryFile(prefix="beam-sort-")  # noqa: SIM115
        try:
            with pa.ipc.new_file(self._file, _SCHEMA) as writer:
                for batch in batches:
                    writer.write_batch(batch)
            self.size_bytes = self._file.tell()
            self._reader = pa.ipc.open_file(self._file)
        except BaseException:
            self.close()
            raise

    def read(self, number: int) -> RecordBlock | None:
        """Return the records of batch ``number``; None: the run has ended."""
        if number == self._reader.num_record_batches:
            return None
        return RecordBlock.of(self._reader.get_batch(number))

    def close(self) -> None:
        """Close the file, which frees its disk space."""
        self._file.close()
