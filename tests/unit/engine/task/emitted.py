"""What a task has emitted, whatever batches its rows are in."""

from collections.abc import Iterable

import pyarrow as pa

from beam_spark_runner._generated import reports_pb2
from beam_spark_runner.engine.rows import schema


def values_to(dest: int, batches: Iterable[pa.RecordBatch]) -> list[bytes]:
    """Return the values of the rows that go to a destination."""
    return [
        value
        for batch in batches
        for value in batch.filter(pa.array(schema.dests_of(batch) == dest)).column(4).to_pylist()
    ]


def reports_in(batches: Iterable[pa.RecordBatch]) -> list[reports_pb2.TaskReport]:
    """Return the reports, those of earlier tasks included."""
    return [reports_pb2.TaskReport.FromString(value) for value in values_to(schema.REPORT, batches)]
