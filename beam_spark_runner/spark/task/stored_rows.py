"""Rows between two Spark jobs of one epoch: each task stores its own, and the next job reads them.

Tasks of a level that the next Spark job follows do as if the next level were in their own: their
rows and their marks, for each partition, are the same. They go into a file in place of Spark's
exchange, and the first stage of the next Spark job gives them to that.
"""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import pyarrow as pa
from pyspark import TaskContext

from beam_spark_runner._generated import reports_pb2
from beam_spark_runner.core.errors import InvariantError
from beam_spark_runner.spark.program import ShardPlaces
from beam_spark_runner.spark.rows import schema
from beam_spark_runner.spark.rows.marks import marks_for
from beam_spark_runner.spark.rows.reports import failure_proto, report_row
from beam_spark_runner.spark.task.epoch_files import local_path
from beam_spark_runner.state.stored_deltas import ShardStorageError

_STORAGE_ERRORS = (OSError, pa.ArrowException)


class RowFile:
    """A file of rows. It is gone if its context is left by an error.

    It is not written durably: who cannot read it has the epoch run again. Its name is that of one
    attempt, and counts only once that has reported.

    Args:
        path: of the file.
        store: is called once it is complete, see ``epoch_files.new_file``.
    """

    def __init__(self, path: Path, store: Callable[[], object]) -> None:
        self._path, self._store = path, store
        self._problem: Exception | None = None
        self._open = contextlib.ExitStack()
        try:
            sink = self._open.enter_context(pa.OSFile(str(path), "wb"))
            options = pa.ipc.IpcWriteOptions(compression="lz4")
            writer = pa.ipc.new_file(sink, schema.ARROW_SCHEMA, options=options)
            self._writer = self._open.enter_context(writer)
        except _STORAGE_ERRORS as error:
            raise self._failed(error) from error

    def write(self, batch: pa.RecordBatch) -> None:
        """Store rows.

        Raises nothing, since user code may be among the callers: ``finish`` does. What is written
        after an error is dropped.
        """
        if self._problem is None:
            try:
                self._writer.write_batch(batch)
            except _STORAGE_ERRORS as error:
                self._problem = error

    def finish(self) -> None:
        """Close the file, and store it.

        Raises:
            ShardStorageError: some of it could not be written.
        """
        if self._problem is None:
            try:
                self._open.close()
                self._store()
            except _STORAGE_ERRORS as error:
                self._problem = error
        if self._problem is not None:
            raise self._failed(self._problem) from self._problem

    def __enter__(self) -> "RowFile":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None:
            with contextlib.suppress(*_STORAGE_ERRORS):
                self._open.close()
            with contextlib.suppress(OSError):  # the next commit deletes it
                self._path.unlink(missing_ok=True)

    def _failed(self, error: Exception) -> ShardStorageError:
        return ShardStorageError(str(self._path), str(error))


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRows:
    """The rows that the tasks of a level have stored.

    Attributes:
        places: of the files.
        level: that has stored them, counted over all segments.
        partitions: of the exchange that follows.
        max_attempts: at a task, as Spark counts them.
        names_from: local property of the Spark job that has their names, a line for each
            partition; None: the task's input has them.
    """

    places: ShardPlaces
    level: int
    partitions: int
    max_attempts: int
    names_from: str | None


def reading_function(
    stored: StoredRows,
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function for ``mapInArrow`` whose tasks each give the rows of one file.

    If the file cannot be read, the last attempt at the task says so in a report, and the tasks
    after the exchange run nothing.
    """

    def read_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        partition = context.partitionId() if context else 0
        attempt_number = context.attemptNumber() if context else 0
        names = [name for batch in batches for name in batch.column(0).to_pylist()]
        if context is not None and stored.names_from is not None:
            names = _names_of_job(context, stored.names_from)[partition : partition + 1]
        (name,) = names
        try:
            yield from rows_of(stored.places, name)
        except ShardStorageError as error:
            if attempt_number + 1 < stored.max_attempts:
                raise
            yield marks_for(stored.partitions, reports_pb2.AttemptMark(failed=True))
            report = reports_pb2.TaskReport(
                level=stored.level, partition=partition, failure=failure_proto(error)
            )
            yield report_row(report, stored.partitions)

    return read_rows


def rows_of(places: ShardPlaces, name: str) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file.

    Raises:
        ShardStorageError: it cannot be read, or is not whole.
    """
    try:
        with (
            local_path(places, name) as path,
            pa.OSFile(str(path), "rb") as source,
            pa.ipc.open_file(source) as reader,
        ):
            for index in range(reader.num_record_batches):
                yield reader.get_batch(index)
    except _STORAGE_ERRORS as error:
        raise ShardStorageError(f"{places.deltas}/{name}", str(error)) from error


def _names_of_job(context: TaskContext, names_from: str) -> list[str]:
    listed = context.getLocalProperty(names_from)
    if listed is None:
        raise InvariantError(f"the Spark job has no local property {names_from}")
    return str(listed).split("\n")
