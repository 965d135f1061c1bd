"""A position in the rows that a task reads."""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from beam_spark_runner.engine.rows import schema
from beam_spark_runner.engine.rows.joined_keys import key_before, key_end
from beam_spark_runner.engine.rows.packed_rows import unpacked


class LargestKey(NamedTuple):
    """The key that has the most rows of a task, so far.

    Attributes:
        dest: The destination of its rows.
        key: The bytes of its column.
        rows: Their number. 0: no row has a key.
    """

    dest: int = 0
    key: bytes = b""
    rows: int = 0


class RowCursor:
    """A position in the task's input. It joins long values, restores long keys, and unpacks
    rows.

    ``forward`` gets the parts of batches that are not for this level's stages.

    Attributes:
        rows: The number of rows so far.
        largest: The key with the most of them; of several keys with one hash, the first one.
    """

    def __init__(
        self,
        batches: Iterator[pa.RecordBatch],
        hosted: Iterable[int],
        forward: Callable[[pa.RecordBatch], None],
    ) -> None:
        self._batches = batches
        self._hosted = np.array(sorted(hosted), np.int32)
        self._forward = forward
        self._joiner = schema.PieceJoiner()
        self._long_keys: dict[bytes, bytes] = {}
        self._blocks: Iterator[schema.RowBatch] = iter(())  # the rest of a batch
        self.block: schema.RowBatch | None = None
        self.position = 0
        self._failure: BaseException | None = None
        self._ends: list[int] = []  # where each run of rows with one destination ends
        self._run = 0
        self.rows = 0
        self.largest = LargestKey()
        self._last_route, self._last_rows = -1, 0  # of the last row of the previous block

    def load(self) -> bool:
        """Make sure that there is a row at ``position``; False at the end of the input.

        An error is raised again by every later call: user code that iterates over a large group
        calls this, and may catch it. Otherwise, the input would seem to have ended.
        """
        if self._failure is not None:
            raise self._failure
        try:
            while self.block is None or self.position >= len(self.block):
                if (block := next(self._blocks, None)) is not None:
                    self._open(block)
                    continue
                batch = next(self._batches, None)
                if batch is None:
                    self._joiner.check_empty()
                    self.block = None
                    return False
                self._blocks = self._blocks_of(batch)
        except BaseException as error:
            self._failure = error
            raise
        return True

    def _blocks_of(self, batch: pa.RecordBatch) -> Iterator[schema.RowBatch]:
        ids = schema.dests_of(batch)
        mine = np.isin(ids, self._hosted)
        if not mine.all():
            self._forward(schema.conformed(batch.filter(pa.array(~mine))))
            batch = batch.filter(pa.array(mine))
        block = self._joiner.join_block(schema.block_of(batch))
        self._restore_long_keys(block)
        return unpacked(block)

    def _open(self, block: schema.RowBatch) -> None:
        ids = block.dests & schema.DEST_MASK
        self._ends = [*(np.flatnonzero(ids[1:] != ids[:-1]) + 1).tolist(), len(block)]
        self._run = 0
        self.block, self.position = block, 0
        self._count(block)

    def _count(self, block: schema.RowBatch) -> None:
        """Find the longest run of rows with one route, which a run may continue from before."""
        count = len(block)
        if not count:
            return
        self.rows += count
        routes = block.routes
        begins = np.concatenate(([0], np.flatnonzero(routes[1:] != routes[:-1]) + 1))
        lengths = np.diff(begins, append=count)
        if int(routes[0]) == self._last_route:
            lengths[0] += self._last_rows
        longest = int(lengths.argmax())
        first = int(begins[longest])
        key = block.keys[first]
        if key is not None and lengths[longest] > self.largest.rows:
            dest = int(block.dests[first]) & schema.DEST_MASK
            self.largest = LargestKey(dest, key, int(lengths[longest]))
        self._last_route, self._last_rows = int(routes[-1]), int(lengths[-1])

    def _restore_long_keys(self, block: schema.RowBatch) -> None:
        for row in np.flatnonzero(block.dests & schema.LONG_KEY).tolist():
            digest, value = block.keys[row], block.values[row]
            assert digest is not None
            key = self._long_keys.get(digest)
            if key is None:
                # One object for all rows of the group, and of one group at a time.
                self._long_keys.clear()
                key = self._long_keys[digest] = key_before(value)
            block.keys[row], block.values[row] = key, value[key_end(value) :]

    @property
    def dest(self) -> int:
        """Destination of the row at ``position``, without flags."""
        assert self.block is not None
        return int(self.block.dests[self.position]) & schema.DEST_MASK

    def run_end(self) -> int:
        """Return where the run of rows with this row's destination ends in this block."""
        while self._ends[self._run] <= self.position:
            self._run += 1
        return self._ends[self._run]
