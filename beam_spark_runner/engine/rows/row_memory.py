"""Rows between the tasks of one process: in memory, and beyond a limit in files."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from beam_spark_runner.core.errors import RowStorageError
from beam_spark_runner.engine.rows import schema
from beam_spark_runner.state.spill import SpillFile

ROW_SHARES = 3
"""How many shares the memory has; see ``RowMemory``."""

_MAX_BYTES = 1 << 30  # so that an Arrow array can hold all values of a share
_BLOCKS_OF_A_SHARE = 64
_MIN_BLOCK_BYTES, _MAX_BLOCK_BYTES = 4 << 10, 256 << 10
_MIN_RUNS, _MAX_RUNS = 4, 256


class RowMemory:
    """The memory for rows between tasks.

    One share of it is for rows that are being exchanged, one for exchanged rows that tasks read,
    and one for those that are kept for later jobs.

    Threads: one at a time.

    Args:
        share_bytes: the size of the rows of each share.
        new_file: makes a file for rows that do not fit. It needs nothing as long as it has none.

    Attributes:
        share_bytes: see above; at most 1 GB.
        new_file: see above.
        block_bytes: about how large the blocks are that are written to, and read from, a file.
        max_runs: how many runs of sorted rows are merged at once, with a block of each in memory.
    """

    def __init__(self, share_bytes: int, new_file: Callable[[], "BlockFile"]) -> None:
        self.share_bytes = min(share_bytes, _MAX_BYTES)
        self.new_file = new_file
        block_bytes = self.share_bytes // _BLOCKS_OF_A_SHARE
        self.block_bytes = max(_MIN_BLOCK_BYTES, min(block_bytes, _MAX_BLOCK_BYTES))
        runs = self.share_bytes // self.block_bytes
        self.max_runs = max(_MIN_RUNS, min(runs, _MAX_RUNS))
        self._room_bytes = self.share_bytes  # for rows that are kept

    def keep(self, outputs: Iterable[Iterable[pa.RecordBatch]]) -> "list[KeptRows]":
        """Keep what each of some tasks emits, for later jobs.

        Raises:
            RowStorageError: it does not fit in memory, and cannot be written.
        """
        file = self.new_file()
        return [KeptRows(batches, self, file) for batches in outputs]

    def reserve(self, size: int) -> bool:
        """Reserve memory for rows that are kept; return whether there was room for them.

        Args:
            size: the size of the rows in bytes.
        """
        fits = size <= self._room_bytes
        if fits:
            self._room_bytes -= size
        return fits

    def release(self, size: int) -> None:
        """Give back memory that ``reserve`` has reserved."""
        self._room_bytes += size


class Block(NamedTuple):
    """Where a batch is in a file."""

    start: int
    length: int


class BlockFile:
    """Batches of rows in a file without a name, which vanishes with the process or this object.

    Threads: one writes; any may read.

    Args:
        folder: see ``SpillFile``.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._file = SpillFile(folder)

    def write(self, batch: pa.RecordBatch) -> Block:
        """Append a batch.

        Raises:
            RowStorageError: the disk is full, or has failed.
        """
        coded = schema.coded_block(batch)
        try:
            return Block(self._file.append(coded), len(coded))
        except OSError as error:
            raise RowStorageError(str(self._folder), str(error)) from error

    def read(self, block: Block) -> pa.RecordBatch:
        """Return a batch.

        Raises:
            RowStorageError: the disk has failed.
        """
        try:
            return schema.decoded_block(self._file.read(block.start, block.length))
        except (OSError, EOFError) as error:
            raise RowStorageError(str(self._folder), str(error)) from error

    def __del__(self) -> None:
        self._file.close()


class KeptRows:
    """Rows in the order of their arrival. They can be read repeatedly."""

    def __init__(
        self, batches: Iterable[pa.RecordBatch], memory: RowMemory, file: BlockFile
    ) -> None:
        self._memory, self._file = memory, file
        self._size = 0
        self._in_memory: list[pa.RecordBatch] = []
        self._blocks: list[Block] = []
        for batch in batches:
            size = batch.nbytes
            if not self._blocks and memory.reserve(size):
                self._size += size
                self._in_memory.append(batch)
            else:
                self._blocks.append(file.write(batch))

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        yield from self._in_memory
        yield from map(self._file.read, self._blocks)

    def __del__(self) -> None:
        self._memory.release(self._size)
