"""Exchanges rows between two levels in one process, as ``driver.exchange`` has Spark do it."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from beam_spark_runner.core import routing
from beam_spark_runner.engine.program import LevelProgram
from beam_spark_runner.engine.rows import schema
from beam_spark_runner.engine.rows.row_memory import Block, RowMemory
from beam_spark_runner.engine.rows.sorted_runs import in_blocks, merge_runs, places_in_order

_Run: TypeAlias = Sequence[Block]


class Exchange:
    """Partitions the rows that the tasks of one level emit among the tasks of the next one.

    Rows that Spark leaves in any order come in that in which they were emitted.

    Each time that its share of the memory is full, its rows are written to a file: one run for each
    partition. A task that reads a partition merges its runs.

    Args:
        partitions: the number of partitions.
        memory: for the rows that fit.
        is_sorted: whether the rows of a partition are sorted by route.
        is_ordered: whether rows with equal routes are sorted by ``order``.
    """

    def __init__(
        self, partitions: int, memory: RowMemory, *, is_sorted: bool, is_ordered: bool = False
    ) -> None:
        self._memory = memory
        self._partitions = partitions
        self._is_sorted, self._is_ordered = is_sorted, is_ordered
        self._buffered: list[pa.RecordBatch] = []
        self._buffered_bytes = 0
        self._file = memory.new_file()
        self._runs: list[list[_Run]] = [[] for _ in range(self._partitions)]

    @classmethod
    def before_level(cls, program: LevelProgram, memory: RowMemory) -> "Exchange":
        """Return the exchange in front of a level."""
        inputs = [stage.input for stage in program.stages]
        is_ordered = any(edge.is_ordered for edge in inputs)
        is_sorted = (
            is_ordered or program.reads_marks_first or any(edge.is_grouped for edge in inputs)
        )
        return cls(program.partitions, memory, is_sorted=is_sorted, is_ordered=is_ordered)

    def add(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Add the rows that a task has emitted.

        Raises:
            RowStorageError: they do not fit in memory, and cannot be written.
        """
        for batch in batches:
            self._buffered.append(schema.conformed(batch))
            self._buffered_bytes += batch.nbytes
            if self._buffered_bytes > self._memory.share_bytes:
                self._spill()

    def finish(self) -> Sequence[Iterable[pa.RecordBatch]]:
        """Return what each task reads, once. No rows can be added any more.

        Raises:
            RowStorageError: see ``add``.
        """
        if not any(self._runs):
            rows, places = self._in_partitions()
            return [[rows.take(pa.array(here))] for here in places]
        self._spill()
        if self._is_sorted:
            return [self._merge(self._merge_excess(runs)) for runs in self._runs]
        return [itertools.chain.from_iterable(map(self._read_run, runs)) for runs in self._runs]

    def _in_partitions(self) -> tuple[pa.RecordBatch, Sequence[schema.Int64Array]]:
        """Remove the buffered rows; return them, and the places of those of each partition."""
        rows = pa.concat_batches(self._buffered or [schema.NO_ROWS])
        self._buffered, self._buffered_bytes = [], 0
        places: schema.Int64Array = np.arange(len(rows))
        if self._is_sorted:
            places = places_in_order(rows, is_ordered=self._is_ordered)
        if self._partitions == 1:
            return rows, [places]
        routes = rows.column("route").to_numpy()[places]
        partitions = routing.partitions_of_routes(routes, self._partitions)
        return rows, [places[partitions == partition] for partition in range(self._partitions)]

    def _spill(self) -> None:
        rows, places = self._in_partitions()
        for runs, here in zip(self._runs, places, strict=True):
            if len(here):
                runs.append(self._write_run(in_blocks(rows, here, self._memory.block_bytes)))

    def _write_run(self, batches: Iterable[pa.RecordBatch]) -> _Run:
        return [self._file.write(batch) for batch in batches]

    def _read_run(self, run: _Run) -> Iterator[pa.RecordBatch]:
        return map(self._file.read, run)

    def _merge(self, runs: Sequence[_Run]) -> Iterator[pa.RecordBatch]:
        return merge_runs([self._read_run(run) for run in runs], is_ordered=self._is_ordered)

    def _merge_excess(self, runs: Sequence[_Run]) -> Sequence[_Run]:
        """Merge runs until they are few enough to be read at once; the order of runs stays."""
        max_runs = self._memory.max_runs
        while len(runs) > max_runs:
            excess = len(runs) - max_runs
            merged: list[_Run] = []
            while excess > 0 and runs:
                group, runs = runs[: min(max_runs, excess + 1)], runs[min(max_runs, excess + 1) :]
                blocks = itertools.chain.from_iterable(
                    in_blocks(batch, np.arange(len(batch)), self._memory.block_bytes)
                    for batch in self._merge(group)
                )
                merged.append(self._write_run(blocks))
                excess -= len(group) - 1
            runs = [*merged, *runs]
        return runs
