"""Rows between two Spark jobs of one epoch: each task stores its rows, and the next job reads them.

The last level of a Spark job makes rows and marks as if the next level were in the same job, but
its tasks write them to files. In the next Spark job, the tasks of its first Spark stage read the
files, and pass rows and marks to Spark's exchange.
"""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import pyarrow as pa

from beam_spark_runner._generated import reports_pb2
from beam_spark_runner.core.errors import CheckpointStorageError
from beam_spark_runner.engine.epoch_files import folder_of_epochs
from beam_spark_runner.engine.program import LevelProgram, ShardLocations
from beam_spark_runner.engine.rows import schema
from beam_spark_runner.engine.rows.marks import marks_for
from beam_spark_runner.engine.rows.reports import failure_proto, report_row
from beam_spark_runner.state.checked_blocks import BlockWriter, DamagedFileError, reader_of
from beam_spark_runner.state.stored_deltas import ShardStorageError


class RowFile:
    """A file of rows. It is deleted if its context is left by an error.

    It need not be durable: if it cannot be read, the epoch runs again. Its name has the number of
    the attempt, and is not used before that attempt has reported.

    Args:
        path: the path of the file.
        store: is called once the file is complete, see ``epoch_files.new_file``.
        name: the name by which readers know it, if that differs from the path's.
        error: the class of the error if it cannot be stored.
    """

    def __init__(
        self,
        path: Path,
        store: Callable[[], object],
        name: str | None = None,
        error: type[CheckpointStorageError] = ShardStorageError,
    ) -> None:
        self._path, self._store, self._error = path, store, error
        self._problem: Exception | None = None
        self._opened_file = contextlib.ExitStack()
        try:
            self._writer = BlockWriter(
                self._opened_file.enter_context(path.open("wb")), name or path.name
            )
        except OSError as error:
            raise self._storage_error(error) from error

    def write(self, batch: pa.RecordBatch) -> None:
        """Store rows.

        Raises nothing, since user code may be among the callers: ``finish`` raises the error. Rows
        that are written after it are dropped.
        """
        if self._problem is None:
            try:
                self._writer.add(schema.coded_block(batch))
            except OSError as error:
                self._problem = error

    def finish(self) -> None:
        """Close the file, and store it.

        Raises:
            CheckpointStorageError: some of it could not be written.
        """
        if self._problem is None:
            try:
                self._writer.finish()
                self._opened_file.close()
                self._store()
            except OSError as error:
                self._problem = error
        if self._problem is not None:
            raise self._storage_error(self._problem) from self._problem

    def __enter__(self) -> "RowFile":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None:
            with contextlib.suppress(OSError):
                self._opened_file.close()
            with contextlib.suppress(OSError):  # the next commit deletes it
                self._path.unlink(missing_ok=True)

    def _storage_error(self, error: Exception) -> CheckpointStorageError:
        return self._error(str(self._path), str(error))


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRows:
    """The rows that the tasks of a level have stored.

    Attributes:
        places: the folders of the files.
        level: the number of the level that has stored them, counted over all segments.
        partitions: the number of partitions of the next exchange.
        max_attempts: how often Spark runs a task before it fails the Spark job.
    """

    places: ShardLocations
    level: int
    partitions: int
    max_attempts: int

    @classmethod
    def before_level(cls, program: LevelProgram) -> "StoredRows":
        """Return the rows that the tasks of the previous level have stored.

        Args:
            program: the program of the level that reads them.
        """
        return cls(
            places=program.shards,
            level=program.level - 1,
            partitions=program.partitions,
            max_attempts=program.limits.max_attempts,
        )


def read_rows(
    stored: StoredRows, name: str, partition: int, attempt_number: int
) -> Iterator[pa.RecordBatch]:
    """Run a task that yields the rows of one file.

    If the file cannot be read, the last attempt at the task reports a failure, and the tasks
    downstream are poisoned.

    Args:
        stored: what the tasks of the level have stored.
        name: the name of the file.
        partition: which partition has these rows.
        attempt_number: how many earlier attempts the task has had.
    """
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


def rows_of(places: ShardLocations, name: str) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file.

    Raises:
        ShardStorageError: the file cannot be read, or is damaged.
    """
    try:
        with (
            folder_of_epochs(places).local(name) as path,
            open(path, "rb") as source,
        ):
            for block in reader_of(source, name).contents():
                yield schema.decoded_block(block)
    except DamagedFileError as error:
        raise ShardStorageError(f"{places.deltas}/{name}", error.why) from error
    except OSError as error:
        raise ShardStorageError(f"{places.deltas}/{name}", str(error)) from error
