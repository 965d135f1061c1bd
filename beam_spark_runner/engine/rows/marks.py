"""Marks: control rows with which a task labels its rows with its attempt.

Between two levels a task sends one to each partition. Rows that are materialised for later Spark
jobs have one mark for each task that made them: rows and mark of one task are in one block, which
one Spark task reads as a whole, so that a reader of the rows reads their mark, too.
"""

from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow as pa

from beam_spark_runner._generated import reports_pb2
from beam_spark_runner.core import routing
from beam_spark_runner.engine.rows import schema
from beam_spark_runner.scheduling.attempts import Attempts


def marks_for(partitions: int, mark: reports_pb2.AttemptMark) -> pa.RecordBatch:
    """Return rows that bring a mark to each partition of the next exchange."""
    targets = routing.routes_to_partitions(routing.CONTROL_CODE, partitions)
    values = [mark.SerializeToString()] * partitions
    return schema.batch_of(schema.CONTROL, np.array(targets, np.int64), None, None, values)


def mark_to_keep(mark: reports_pb2.AttemptMark) -> pa.RecordBatch:
    """Return the mark that is stored with a task's rows."""
    route = np.array([routing.route_prefix(routing.CONTROL_CODE)], np.int64)
    return schema.batch_of(schema.CONTROL, route, None, None, [mark.SerializeToString()])


class MarkReader:
    """Reads the marks among a task's input.

    Attributes:
        failed: whether rows are incomplete, since a task upstream failed in its last attempt.
        left_residuals: whether more rows will follow in a later Spark job.
        watermarks_us: destination -> event time up to which all tasks have sent its elements. A
            destination that is missing has got all of them.
        partition_of: number of the task that sent the mark -> destinations of which its rows are
            a partition, for readers that take it as a whole.
        epoch: the epoch; None: the pipeline does not stream.
    """

    def __init__(self) -> None:
        self.failed = False
        self.left_residuals = False
        self.watermarks_us: dict[int, int] = {}
        self.epoch: reports_pb2.Epoch | None = None
        self.partition_of: dict[int, set[int]] = {}
        self._attempts: dict[int, list[int]] = {}

    def without_marks(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Read the marks of a batch, and return its other rows."""
        is_mark = schema.dests_of(batch) == schema.CONTROL
        if not is_mark.any():
            return batch
        for value in batch.filter(pa.array(is_mark)).column(4).to_pylist():
            mark = reports_pb2.AttemptMark.FromString(value)
            if mark.attempt:  # else it is the driver's
                self._attempts.setdefault(mark.run, []).append(mark.attempt)
            if mark.HasField("epoch"):
                self.epoch = mark.epoch
            if mark.partition_of:
                self.partition_of.setdefault(mark.partition, set()).update(mark.partition_of)
            self.failed |= mark.failed
            self.left_residuals |= mark.left_residuals
            for dest, watermark_us in mark.watermarks_us.items():
                least_us = self.watermarks_us.get(dest, watermark_us)
                self.watermarks_us[dest] = min(least_us, watermark_us)
        return batch.filter(pa.array(~is_mark))

    def consumed(self) -> dict[int, reports_pb2.Attempts]:
        """Return the attempts whose rows have been read so far, by run, for a report."""
        by_run = {run: Attempts.of(attempts) for run, attempts in self._attempts.items()}
        return {
            run: reports_pb2.Attempts(count=attempts.count, sum=attempts.sum)
            for run, attempts in by_run.items()
        }


def consumed_of(protos: Mapping[int, reports_pb2.Attempts]) -> dict[int, Attempts]:
    """Return the attempts whose rows a task has read, by run, as it reports them."""
    return {run: Attempts(attempts.count, attempts.sum) for run, attempts in protos.items()}


def attempts_in(values: Iterable[bytes]) -> dict[int, list[int]]:
    """Return the numbers of the attempts in marks, by the run (Spark job) that they belong to."""
    attempts: dict[int, list[int]] = {}
    for value in values:
        mark = reports_pb2.AttemptMark.FromString(bytes(value))
        attempts.setdefault(mark.run, []).append(mark.attempt)
    return attempts


def attempts_among(batches: Iterable[pa.RecordBatch]) -> dict[int, Attempts]:
    """Return which attempts have made materialised rows, by run, as the marks among them say."""
    control = np.array([schema.CONTROL], np.int32)
    marks = (schema.rows_to(control, batch).column("value") for batch in batches)
    values = (value for column in marks for value in column.to_pylist())
    return {run: Attempts.of(ids) for run, ids in attempts_in(values).items()}
