"""Rows of the engine that tasks in this process have emitted."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from beam_spark_runner.core import routing
from beam_spark_runner.driving.output_rows import ClusterRows
from beam_spark_runner.engine.rows import schema
from beam_spark_runner.engine.rows.marks import attempts_among
from beam_spark_runner.engine.task.stored_output import OutputFile
from beam_spark_runner.scheduling.attempts import Attempts
from beam_spark_runner.storage.folder import Settings

Partition = Iterable[pa.RecordBatch]
"""Rows that can be read repeatedly: they need not be in memory."""


@dataclass(frozen=True, slots=True)
class LocalRows:
    """Rows in partitions, each of which one task has made; see ``ClusterRows``."""

    partitions: Sequence[Partition]

    def rows_for(self, dests: Iterable[int]) -> "LocalRows":
        """See ``ClusterRows``."""
        chosen = np.array([schema.CONTROL, *dests], np.int32)
        return LocalRows([_RowsOfDestinations(partition, chosen) for partition in self.partitions])

    def united_with(self, other: ClusterRows) -> "LocalRows":
        """See ``ClusterRows``."""
        return LocalRows([*self.partitions, *partitions_of(other)])

    def attempts(self) -> dict[int, Attempts]:
        """See ``ClusterRows``."""
        return attempts_among(batch for partition in self.partitions for batch in partition)


@dataclass(frozen=True, slots=True)
class StoredPartition:
    """The rows that a task has stored.

    Attributes:
        file: their file.
        store: see ``OutputPlace``.
    """

    file: OutputFile
    store: Settings

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self.file.read(self.store)


@dataclass(frozen=True, slots=True)
class _RowsOfDestinations:
    """The rows of a partition to some destinations."""

    rows: Partition
    dests: schema.Int32Array

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self.rows:
            selected = schema.rows_to(self.dests, batch)
            if len(selected):
                yield selected


def partitions_of(rows: ClusterRows) -> Sequence[Partition]:
    """Return the partitions of rows that this room has made."""
    assert isinstance(rows, LocalRows)
    return rows.partitions


def with_spread_marks(rows: Partition, count: int) -> Iterator[pa.RecordBatch]:
    """Yield rows that earlier jobs have made, with each mark once for each of their readers.

    Args:
        rows: the rows.
        count: the number of partitions of the next exchange.
    """
    for batch in rows:
        is_mark = schema.dests_of(batch) == schema.CONTROL
        if is_mark.any():
            targets = routing.routes_to_partitions(routing.CONTROL_CODE, count)
            marks = batch.filter(pa.array(is_mark)).column("value").to_pylist()
            values = [mark for mark in marks for _ in targets]
            routes = np.tile(np.array(targets, np.int64), len(marks))
            yield schema.batch_of(schema.CONTROL, routes, None, None, values)
            batch = batch.filter(pa.array(~is_mark))
        yield batch
