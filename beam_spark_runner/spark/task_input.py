"""The batches that Spark hands to a task, and what happens to the reports among them."""

from collections.abc import Callable, Iterator

import pyarrow as pa

from beam_spark_runner.spark import rows


class TaskInput:
    """An iterator over the task's batches, without the reports of earlier levels.

    Reports go on to the driver in the moment in which their batch is taken from Spark, before
    anything can be done with its other rows: whatever becomes of this task, none is lost.

    Args:
        batches: of the partition, as Spark gives them.
        emit: takes finished batches.
    """

    def __init__(
        self, batches: Iterator[pa.RecordBatch], emit: Callable[[pa.RecordBatch], None]
    ) -> None:
        self._batches = batches
        self._emit = emit

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self

    def __next__(self) -> pa.RecordBatch:
        batch = next(self._batches)
        is_report = rows.dests_of(batch) == rows.REPORT
        if not is_report.any():
            return batch
        self._emit(rows.conformed(batch.filter(pa.array(is_report))))
        return batch.filter(pa.array(~is_report))

    def drain(self) -> None:
        """Read on to the end: Spark throws away a worker that does not, and reports may come."""
        for _ in self:
            pass
