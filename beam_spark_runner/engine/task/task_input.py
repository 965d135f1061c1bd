"""Reads the input batches of a task, and separates reports and marks from rows."""

from collections.abc import Callable, Iterator

import pyarrow as pa

from beam_spark_runner.engine.rows import schema
from beam_spark_runner.engine.rows.marks import MarkReader


class TaskInput:
    """An iterator over the task's batches, without reports of earlier levels and marks.

    Reports are emitted for the driver, and marks are read, as soon as their batch is taken from
    Spark and before its other rows are processed: none is lost if this task fails.

    Args:
        batches: the batches of the task's partition, as Spark passes them.
        emit: takes batches of reports.
    """

    def __init__(
        self, batches: Iterator[pa.RecordBatch], emit: Callable[[pa.RecordBatch], None]
    ) -> None:
        self._batches = batches
        self._emit = emit
        self._looked_at: list[pa.RecordBatch] = []
        self.marks = MarkReader()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self

    def __next__(self) -> pa.RecordBatch:
        return self._looked_at.pop() if self._looked_at else self._next_batch()

    def _next_batch(self) -> pa.RecordBatch:
        batch = self.marks.without_marks(next(self._batches))
        is_report = schema.dests_of(batch) == schema.REPORT
        if not is_report.any():
            return batch
        self._emit(schema.conformed(batch.filter(pa.array(is_report))))
        return batch.filter(pa.array(~is_report))

    def read_marks_first(self) -> None:
        """Read all marks; they must be sorted before all other rows."""
        for batch in self:
            if len(batch):
                self._looked_at.append(batch)
                return

    def drain(self) -> None:
        """Read to the end: Spark ends a worker that does not, and reports may follow."""
        for _ in self:
            pass
