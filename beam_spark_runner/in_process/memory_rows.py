"""Rows of the engine in the memory of this process."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from beam_spark_runner.core import routing
from beam_spark_runner.driving.output_rows import ClusterRows
from beam_spark_runner.engine.rows import schema
from beam_spark_runner.engine.rows.marks import attempts_in
from beam_spark_runner.engine.task.chained_tasks import joined
from beam_spark_runner.scheduling.attempts import Attempts

Partition = Sequence[pa.RecordBatch]


@dataclass(frozen=True, slots=True)
class MemoryRows:
    """Rows in partitions, each of which one task has made; see ``ClusterRows``."""

    partitions: Sequence[Partition]

    def rows_for(self, dests: Iterable[int]) -> "MemoryRows":
        """See ``ClusterRows``."""
        wanted = np.array([schema.CONTROL, *dests], np.int32)
        return MemoryRows([_of(wanted, each) for each in self.partitions])

    def united_with(self, other: ClusterRows) -> "MemoryRows":
        """See ``ClusterRows``."""
        return MemoryRows([*self.partitions, *partitions_of(other)])

    def attempts(self) -> dict[int, Attempts]:
        """See ``ClusterRows``."""
        marks = self.rows_for(())
        values = (
            value
            for partition in marks.partitions
            for batch in partition
            for value in batch.column("value").to_pylist()
        )
        return {run: Attempts.of(each) for run, each in attempts_in(values).items()}


def partitions_of(rows: ClusterRows) -> Sequence[Partition]:
    """Return the partitions of rows that this room has made."""
    assert isinstance(rows, MemoryRows)
    return rows.partitions


def split_reports(outputs: Iterable[Partition]) -> tuple[MemoryRows, list[bytes]]:
    """Take the reports out of what tasks have emitted, and return both."""
    found: list[bytes] = []
    rows: list[Partition] = []
    for partition in outputs:
        rest = []
        for batch in map(schema.conformed, partition):
            is_report = schema.dests_of(batch) == schema.REPORT
            found += batch.filter(pa.array(is_report)).column("value").to_pylist()
            rest.append(batch.filter(pa.array(~is_report)))
        rows.append([batch for batch in rest if len(batch)])
    return MemoryRows(rows), found


def with_spread_marks(partitions: Iterable[Partition], count: int) -> list[Partition]:
    """Return rows that earlier jobs have made, with each mark once for each of their readers.

    Args:
        partitions: the rows.
        count: the number of partitions of the next exchange.
    """
    return [[_with_spread_marks(batch, count) for batch in each] for each in partitions]


def _with_spread_marks(batch: pa.RecordBatch, partitions: int) -> pa.RecordBatch:
    """Return a batch with each mark once for each partition of the next exchange."""
    is_mark = schema.dests_of(batch) == schema.CONTROL
    if not is_mark.any():
        return batch
    targets = np.array(routing.routes_to_partitions(routing.CONTROL_CODE, partitions), np.int64)
    marks = batch.filter(pa.array(is_mark)).column("value").to_pylist()
    values = [mark for mark in marks for _ in targets]
    spread = schema.batch_of(schema.CONTROL, np.tile(targets, len(marks)), None, None, values)
    rest = batch.filter(pa.array(~is_mark))
    (united,) = joined([spread, rest]).combine_chunks().to_batches()
    return united


def _of(dests: schema.Int32Array, partition: Partition) -> list[pa.RecordBatch]:
    kept = []
    for batch in partition:
        is_wanted = np.isin(schema.dests_of(batch), dests)
        if is_wanted.any():
            kept.append(batch.filter(pa.array(is_wanted)))
    return kept
